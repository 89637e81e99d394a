#include "lib/evaluate/answers.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

std::string join_words(std::string_view text) {
  std::string joined;
  for (const auto word : split_words(text)) (joined += joined.empty() ? "" : " ") += word;
  return joined;
}

std::string_view trim(std::string_view text) {
  const auto words = split_words(text);
  if (words.empty()) return {};
  const char* begin = words.front().data();
  return {begin, static_cast<size_t>(words.back().data() + words.back().size() - begin)};
}

std::u32string code_points(std::string_view text) {
  std::u32string points;
  for (size_t at = 0; at < text.size();) points += next_code_point(text, at);
  return points;
}

size_t levenshtein(const std::u32string& a, const std::u32string& b) {
  std::vector<size_t> row(b.size() + 1);  // distances of a's beginning to b's beginnings
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

/// 1 - distance / length. The challenge takes the length before white space is dropped.
double similarity(std::string_view answer, std::string_view reference) {
  const size_t length = std::max(code_points(answer).size(), code_points(reference).size());
  if (length == 0) return 1;
  const auto plain = [](std::string_view text) { return code_points(join_words(to_lower(text))); };
  return 1 - static_cast<double>(levenshtein(plain(answer), plain(reference))) / static_cast<double>(length);
}

}  // namespace

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0, at = 0;
  const auto end_word = [&](size_t end) {
    if (begin < end) words.push_back(text.substr(begin, end - begin));
  };
  while (at < text.size()) {
    const size_t here = at;
    if (!is_white_space(next_code_point(text, at))) continue;
    end_word(here);
    begin = at;
  }
  end_word(text.size());
  return words;
}

double exact_match(const std::vector<AnsweredRow>& rows) {
  return mean_over(rows, [](const AnsweredRow& row) {
    const auto plain = [](std::string_view text) { return to_lower(trim(text)); };
    const auto answer = plain(row.answer);
    return std::any_of(row.references.begin(), row.references.end(),
                       [&](const auto& reference) { return plain(reference) == answer; })
               ? 1.0
               : 0.0;
  });
}

double anls(const std::vector<AnsweredRow>& rows) {
  constexpr double kThreshold = 0.5;
  return mean_over(rows, [](const AnsweredRow& row) {
    double best = 0;
    for (const auto& reference : row.references) best = std::max(best, similarity(row.answer, reference));
    return best < kThreshold ? 0 : best;
  });
}

}  // namespace vlmtune
