// Chat templates: a conversation to prompt spans, equal to transformers' apply_chat_template.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lib/text/prompt.h"

namespace vlmtune {

struct MessagePart {
  enum class Kind { kText, kImage, kVideo } kind = Kind::kText;
  std::string text;
};

struct Message {
  std::string role;  ///< system, user, assistant (others are handed to the template as they are)
  std::vector<MessagePart> parts;
};

/// The literals that templates write through the variables of the same names.
struct TemplateTokens {
  std::string bos_token = "<s>";
  std::string eos_token = "</s>";
  std::string unk_token = "<unk>";
  std::string pad_token = {};
  std::string image_token = "<image>";  ///< written by a template, it is an image slot
  std::string video_token = {};         ///< ... a video slot; empty: the model takes no videos
  std::string image_before = {},
              image_after = {};  ///< what stands around it where the template itself knows no pictures
};

/// A Jinja chat template of a checkpoint, or a built-in one.
///
/// How content is handed over: templates written for images read message.content as a list of {type, text} parts,
/// others as one string. Each role gets the list form if a trial conversation then shows the text of every message and
/// no list printed as text; else a string, in which an image is the image token, in its brackets, and a newline.
class ChatTemplate {
 public:
  /// `override_name` "": the checkpoint's own (chat_template.jinja, chat_template.json, processor_config.json,
  /// tokenizer_config.json, in this order; of several named ones "default"); else a built-in name, or the path of a
  /// template file. Without any, the result is empty(). `defaults` hold where the checkpoint's files do not say. Errors:
  /// input_error with file and line.
  static ChatTemplate from_checkpoint(const std::filesystem::path& dir, const std::string& override_name,
                                      const TemplateTokens& defaults = {});

  /// Built-in: "vicuna_v1", "llava_llama_2", "llama-2", "mistral", "llava_mistral", "chatml", "chatml_direct", "qwen_vl", "plain"
  /// (and LLaVA's own spellings of these). Errors: input_error that lists the names.
  static ChatTemplate named(const std::string& name, const TemplateTokens& tokens = {});

  /// A template given as text; `origin` names it in errors.
  static ChatTemplate from_source(const std::string& source, const std::string& origin,
                                  const TemplateTokens& tokens = {});

  ChatTemplate();
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&);
  ChatTemplate& operator=(const ChatTemplate&);

  /// True for a checkpoint without a template (a bare language model).
  bool empty() const;
  /// Where it came from: a file or "built-in vicuna_v1".
  const std::string& origin() const;
  const std::string& image_token() const;
  /// True when answers need no end-of-turn token: "plain" captions end with their newline.
  bool answers_end_themselves() const;

  /// Control text that spells the image or video token becomes a slot; there must be one for each of the messages' images and
  /// videos.
  /// Neighbouring spans differ in kind or turn; no text span is empty. Errors: input_error, with the template's own
  /// message when it refuses the conversation.
  std::vector<PromptSpan> render(const std::vector<Message>& messages, bool add_generation_prompt) const;

  /// The rendered text with images as the image token: transformers' apply_chat_template(tokenize=False).
  std::string render_text(const std::vector<Message>& messages, bool add_generation_prompt) const;

 private:
  /// As many spans of a kind as parts. Errors: input_error.
  void check_slots(const std::vector<PromptSpan>& spans, const std::vector<Message>& messages, SpanKind slot,
                   MessagePart::Kind kind, const char* name) const;

  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace vlmtune
