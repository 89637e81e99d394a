// Unigram language model (Kudo 2018): the cut of a word with the highest sum of log probabilities.
#pragma once
#include "lib/text/token_model.h"

namespace vlmtune {

class UnigramModel : public TokenModel {
 public:
  struct Piece {
    std::string text;
    double score;
  };
  /// A piece's id is its index.
  UnigramModel(const std::vector<Piece>& pieces, std::optional<int32_t> unk, bool byte_fallback);
  void tokenize(std::string_view word, std::vector<TokenPiece>& pieces) const override;

 private:
  std::vector<double> scores_;
  std::optional<int32_t> unk_;
  bool byte_fallback_;
  double unk_score_;
  size_t longest_ = 1;  // bytes of the longest piece
};

}  // namespace vlmtune
