#include "lib/text/unigram_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

constexpr double kUnknownPenalty = 10;  // below the least likely piece, as in sentencepiece

Vocabulary to_vocabulary(const std::vector<UnigramModel::Piece>& pieces) {
  Vocabulary vocabulary;
  for (size_t id = 0; id < pieces.size(); ++id) vocabulary.add(pieces[id].text, static_cast<int64_t>(id));
  return vocabulary;
}

}  // namespace

UnigramModel::UnigramModel(const std::vector<Piece>& pieces, std::optional<int32_t> unk, bool byte_fallback)
    : TokenModel(to_vocabulary(pieces)), unk_(unk), byte_fallback_(byte_fallback) {
  double lowest = std::numeric_limits<double>::max();
  for (const auto& piece : pieces) {
    scores_.push_back(piece.score);
    lowest = std::min(lowest, piece.score);
    longest_ = std::max(longest_, piece.text.size());
  }
  unk_score_ = lowest - kUnknownPenalty;
  longest_ = std::min<size_t>(longest_, 256);  // bounds the work on a damaged file
}

void UnigramModel::tokenize(std::string_view word, std::vector<TokenPiece>& pieces) const {
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    size_t from = 0;
    int32_t id = -1;
  };
  std::vector<Best> best(word.size() + 1);
  best[0].score = 0;
  for (size_t begin = 0; begin < word.size(); begin += utf8_width(word, begin)) {
    size_t width = utf8_width(word, begin);
    bool single_found = false;
    for (size_t length = width; length <= longest_ && begin + length <= word.size();) {
      if (auto id = vocabulary().id_of(word.substr(begin, length)); id && !is_forbidden(*id)) {
        double score = best[begin].score + scores_[static_cast<size_t>(*id)];
        auto& target = best[begin + length];
        if (score > target.score) target = {score, begin, *id};
        single_found = single_found || length == width;
      }
      length += begin + length < word.size() ? utf8_width(word, begin + length) : 1;
    }
    if (!single_found) {
      auto& target = best[begin + width];
      double score = best[begin].score + unk_score_;
      if (score > target.score) target = {score, begin, -1};
    }
  }
  std::vector<TokenPiece> reversed;
  for (size_t end = word.size(); end > 0; end = best[end].from) {
    auto length = static_cast<uint32_t>(end - best[end].from);
    bool unknown = best[end].id < 0;
    if (unknown && !reversed.empty() && reversed.back().id < 0)
      reversed.back().length += length;  // neighbours fuse
    else
      reversed.push_back({best[end].id, length});
  }
  size_t at = 0;
  for (auto piece = reversed.rbegin(); piece != reversed.rend(); ++piece) {
    auto text = word.substr(at, piece->length);
    at += piece->length;
    if (piece->id >= 0) {
      pieces.push_back(*piece);
      continue;
    }
    std::vector<TokenPiece> bytes;
    for (char c : text) {
      auto id =
          byte_fallback_ ? vocabulary().id_of(fmt::format("<0x{:02X}>", static_cast<unsigned char>(c))) : std::nullopt;
      if (id) bytes.push_back({*id, 1});
    }
    if (bytes.size() == text.size())
      pieces.insert(pieces.end(), bytes.begin(), bytes.end());
    else if (unk_)
      pieces.push_back({*unk_, piece->length});
  }
}

}  // namespace vlmtune
