#include "lib/evaluate/yes_no.h"

#include <algorithm>

#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

/// The first reference in lower case without what surrounds its letters.
std::string label_of(const AnsweredRow& row) {
  std::string label = to_lower(row.references.front());
  const auto is_mark = [](char c) { return c == ' ' || c == '\n' || c == '.'; };
  while (!label.empty() && is_mark(label.back())) label.pop_back();
  label.erase(label.begin(), std::find_if_not(label.begin(), label.end(), is_mark));
  return label;
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

bool is_yes_no(const AnsweredRow& row) {
  const auto label = label_of(row);
  return label == "yes" || label == "no";
}

bool says_yes(std::string_view answer) {
  std::string sentence(answer.substr(0, answer.find('.')));
  std::erase(sentence, ',');
  for (size_t begin = 0; begin <= sentence.size();) {
    const size_t end = std::min(sentence.find(' ', begin), sentence.size());
    const auto word = std::string_view(sentence).substr(begin, end - begin);
    if (word == "No" || word == "no" || word == "not") return false;
    begin = end + 1;
  }
  return true;
}

YesNoScores yes_no(const std::vector<AnsweredRow>& rows) {
  double hits = 0, false_alarms = 0, misses = 0, rejections = 0;
  for (const auto& row : rows) {
    const bool right = label_of(row) == "yes", said = says_yes(row.answer);
    ++(said ? (right ? hits : false_alarms) : (right ? misses : rejections));
  }
  const auto all = static_cast<double>(rows.size());
  YesNoScores scores;
  scores.accuracy = ratio(hits + rejections, all);
  scores.precision = ratio(hits, hits + false_alarms);
  scores.recall = ratio(hits, hits + misses);
  scores.f1 = ratio(2 * scores.precision * scores.recall, scores.precision + scores.recall);
  scores.yes_ratio = ratio(hits + false_alarms, all);
  return scores;
}

}  // namespace vlmtune
