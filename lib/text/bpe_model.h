// Byte-pair encoding (Sennrich et al. 2016) with the options of the Hugging Face tokenizers library.
#pragma once
#include <array>
#include <memory>
#include <span>

#include "lib/text/token_model.h"

namespace vlmtune {

struct BpeOptions {
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  bool fuse_unk = false;       ///< neighbouring unknown characters become one token
  bool byte_fallback = false;  ///< an unknown character becomes the tokens <0x00>..<0xFF> of its bytes
  bool rank_by_token = false;  ///< merges that make the same token are equals, and lower tokens go first (tiktoken)
  bool ignore_merges = false;  ///< a word that is in the vocabulary is one token, whatever the merges say
};

class BpeModel : public TokenModel {
 public:
  /// A merge by its two strings; earlier ones go first.
  struct Merge {
    std::string left, right;
  };

  /// Throws std::invalid_argument for a merge or unknown token that is not in the vocabulary.
  BpeModel(Vocabulary vocabulary, const std::vector<Merge>& merges, BpeOptions options);
  ~BpeModel() override;
  void tokenize(std::string_view word, std::vector<TokenPiece>& pieces) const override;

 private:
  class MergeTable;
  class WordCache;
  void split_into_characters(std::string_view word, std::vector<TokenPiece>& pieces) const;
  void append_unknown(std::string_view character, bool& last_was_unknown, std::vector<TokenPiece>& pieces) const;
  void apply_merges(std::vector<TokenPiece>& pieces) const;
  int32_t character_id(std::string_view character) const;

  BpeOptions options_;
  std::optional<int32_t> unk_;
  std::array<int32_t, 256> byte_ids_;         // of <0x00>..<0xFF>; -1 where absent
  std::array<int32_t, 0x800> character_ids_;  // of the one-character tokens below U+0800
  std::unique_ptr<MergeTable> merges_;
  std::unique_ptr<WordCache> cache_;
};

}  // namespace vlmtune
