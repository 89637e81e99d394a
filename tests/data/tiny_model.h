// What a builder needs, small enough to check by eye: every byte is a token of its own value.
#pragma once
#include <functional>
#include <string>

#include "lib/data/example.h"
#include "tests/data/scratch.h"

namespace vlmtune::test {

inline constexpr int64_t kBos = 256, kEos = 257, kImage = 258;

/// tokenizer.json of a byte-level BPE without merges, and <s>, </s>, <image>.
inline std::string byte_tokenizer_json() {
  std::string vocab;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    // GPT-2's bytes_to_unicode: printable Latin-1 stands for itself, the rest follows from 256 on.
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    vocab += fmt::format("{}\"\\u{:04x}\":{}", byte == 0 ? "" : ",", printable ? byte : next++, byte);
  }
  std::string added;
  for (const auto& [text, id] : {std::pair{"<s>", kBos}, {"</s>", kEos}, {"<image>", kImage}})
    added += fmt::format(
        R"({}{{"id":{},"content":"{}","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}})",
        added.empty() ? "" : ",", id, text);
  return fmt::format(
      R"({{"version":"1.0","added_tokens":[{}],"normalizer":null,)"
      R"("pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}},)"
      R"("post_processor":null,"decoder":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}},)"
      R"("model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,)"
      R"("fuse_unk":false,"byte_fallback":false,"vocab":{{{}}},"merges":[]}}}})",
      added, vocab);
}

/// A binary pixmap of one colour.
inline std::string pixmap(int width, int height, char value = 7) {
  return fmt::format("P6 {} {} 255\n", width, height) + std::string(static_cast<size_t>(3 * width * height), value);
}

/// Tokenizer, template and processor; a picture makes as many tokens as it is wide.
class TinyModel {
 public:
  TinyModel() {
    scratch.write("model/tokenizer.json", byte_tokenizer_json());
    scratch.write("model/tokenizer_config.json",
                  R"({"bos_token":"<s>","eos_token":"</s>","tokenizer_class":"PreTrainedTokenizerFast"})");
    tokenizer = Tokenizer::load(scratch.path() / "model");
    chat_template = ChatTemplate::from_source(
        "{% for m in messages %}{{ m['role'][0] }}:{% for p in m['content'] %}{% if p['type'] == 'image' %}<image>"
        "{% else %}{{ p['text'] }}{% endif %}{% endfor %}{% if m['role'] == 'assistant' %}</s>{% else %}|{% endif %}{% "
        "endfor %}"
        "{% if add_generation_prompt %}a:{% endif %}",
        "tiny template");
    processor.shortest_edge = processor.crop_height = processor.crop_width = 4;
  }

  ExampleOptions options() const {
    ExampleOptions options;
    options.tokenizer = tokenizer.get();
    options.chat_template = &chat_template;
    options.image_processor = &processor;
    options.image_tokens = [](const PictureShape& picture) { return int64_t{picture.original.width}; };
    options.image_token_id = kImage;
    return options;
  }

  /// Rows of a file with this content.
  Dataset data(const std::string& content, bool needs_answer = true) const {
    DatasetOptions options;
    options.files = {{scratch.write("data.json", content), 1}};
    options.needs_answer = needs_answer;
    return Dataset::open(options);
  }

  Scratch scratch;
  std::shared_ptr<const Tokenizer> tokenizer;
  ChatTemplate chat_template;
  ImageProcessor processor;
};

}  // namespace vlmtune::test
