#include "lib/evaluate/retrieval.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "lib/base/errors.h"

namespace vlmtune {
namespace {

constexpr int64_t kDepths[] = {1, 5, 10};

void add_recalls(const char* direction, const std::vector<int64_t>& ranks, Scores& scores) {
  for (const auto depth : kDepths) {
    const auto found = std::count_if(ranks.begin(), ranks.end(), [&](int64_t rank) { return rank < depth; });
    scores.emplace_back(fmt::format("{}_r{}", direction, depth),
                        static_cast<double>(found) / static_cast<double>(ranks.size()));
  }
}

}  // namespace

Scores retrieval_scores(std::span<const float> similarities, const std::vector<int64_t>& picture_of) {
  const size_t texts = picture_of.size(), pictures = texts == 0 ? 0 : similarities.size() / texts;
  VLMTUNE_CHECK(pictures > 0 && pictures * texts == similarities.size(), "{} similarities of {} texts",
                similarities.size(), texts);
  // A rank is the number of others that are more similar.
  std::vector<int64_t> picture_ranks(pictures, std::numeric_limits<int64_t>::max()), text_ranks;
  double of_pairs = 0;
  for (size_t text = 0; text < texts; ++text) {
    const auto own = static_cast<size_t>(picture_of[text]);
    const auto* row = similarities.data() + own * texts;
    const float similarity = row[text];
    of_pairs += similarity;
    int64_t better_pictures = 0;
    for (size_t picture = 0; picture < pictures; ++picture)
      better_pictures += similarities[picture * texts + text] > similarity;
    text_ranks.push_back(better_pictures);
    const auto better_texts = std::count_if(row, row + texts, [&](float other) { return other > similarity; });
    picture_ranks[own] = std::min<int64_t>(picture_ranks[own], better_texts);
  }
  Scores scores;
  add_recalls("image_to_text", picture_ranks, scores);
  add_recalls("text_to_image", text_ranks, scores);
  scores.emplace_back("similarity", of_pairs / static_cast<double>(texts));
  return scores;
}

}  // namespace vlmtune
