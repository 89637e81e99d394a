// The parts of a loaded tokenizer and the way text takes through them:
// added tokens -> normalizer -> added tokens of the normalized text -> pre-tokenizer -> model.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/text/added_tokens.h"
#include "lib/text/decoder.h"
#include "lib/text/normalizer.h"
#include "lib/text/pre_tokenizer.h"
#include "lib/text/token_model.h"

namespace vlmtune {

struct EncodedToken {
  int64_t id;
  uint8_t labels;  ///< all labels of its bytes
  bool added;      ///< an added token, so not from the model
  bool ends_turn;  ///< an added token at the place behind an answer
};

class TokenizerPipeline {
 public:
  // Filled by the loaders, then completed by finish().
  std::unique_ptr<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<TokenModel> model;
  std::vector<std::unique_ptr<DecoderPart>> decoder;
  std::optional<std::string> bos_token, eos_token, pad_token, unk_token;
  bool adds_bos = false, adds_eos = false;
  std::optional<std::string> template_bos;  ///< what the post-processor puts in front
  std::string origin;                       ///< the file, for errors

  /// Adds or replaces (by content) an added token. False when the id is out of range.
  bool add_token(AddedToken token);
  /// As add_token, with the model's id for the content or else the next free one.
  void add_token_without_id(AddedToken token);
  bool is_added(std::string_view content) const { return added_by_content_.find(content) != added_by_content_.end(); }
  /// Builds the matchers; nothing is added afterwards.
  void finish();

  /// Appends the tokens of a text. `at_start`: it begins what the user gave. Errors: input_error unless UTF-8.
  void encode(LabelledText text, bool at_start, ParseRule rule, std::vector<EncodedToken>& tokens) const;
  /// True when an added token can be parsed at `position`.
  bool has_added_token_at(std::string_view text, size_t position) const;

  std::optional<int64_t> id_of(std::string_view token) const;
  const std::string* token_of(int64_t id) const;
  const AddedToken* added_token(int64_t id) const;
  int64_t vocab_size() const;

 private:
  void encode_section(LabelledText section, bool at_start, ParseRule rule, std::vector<EncodedToken>& tokens) const;
  void encode_words(LabelledText section, bool at_start, std::vector<EncodedToken>& tokens) const;

  std::vector<std::unique_ptr<AddedToken>> added_;
  std::unordered_map<std::string, AddedToken*, StringHash, std::equal_to<>> added_by_content_;
  std::unordered_map<int64_t, const AddedToken*> added_by_id_;
  int64_t largest_added_id_ = -1;
  AddedTokenMatcher raw_matcher_, normalized_matcher_;
};

}  // namespace vlmtune
