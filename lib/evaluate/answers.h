// Short answers against what people say they should be. Scores are means over rows, in [0, 1].
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace vlmtune {

/// A model's answer and the right ones. UTF-8; at least one reference.
struct AnsweredRow {
  std::string answer;
  std::vector<std::string> references;
};

/// White space around words is dropped: one blank between words, none at the ends.
std::vector<std::string_view> split_words(std::string_view text);

/// Mean of `score` over rows; NaN without rows.
template <typename Rows, typename Score>
double mean_over(const Rows& rows, const Score& score) {
  double sum = 0;
  for (const auto& row : rows) sum += score(row);
  return sum / static_cast<double>(rows.size());
}

/// Equal to a reference but for case and white space at the ends (Pix2Struct's and Qwen-VL's exact match).
double exact_match(const std::vector<AnsweredRow>& rows);

/// Average normalised Levenshtein similarity to the nearest reference, 0 below 0.5 (Biten et al. 2019, arXiv 1905.13648, as
/// the DocVQA challenge computes it: case and white space do not count, a similarity of exactly 0.5 does).
double anls(const std::vector<AnsweredRow>& rows);

}  // namespace vlmtune
