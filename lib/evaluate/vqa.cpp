#include "lib/evaluate/vqa.h"

#include <algorithm>
#include <map>

#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

constexpr std::string_view kPunctuation = ";/[]\"{}()=+\\_-><@`,?!";

const std::map<std::string_view, std::string_view> kNumbers{
    {"none", "0"}, {"zero", "0"}, {"one", "1"},   {"two", "2"},   {"three", "3"}, {"four", "4"},
    {"five", "5"}, {"six", "6"},  {"seven", "7"}, {"eight", "8"}, {"nine", "9"},  {"ten", "10"}};

constexpr std::string_view kContractions[] = {
    "'ow's'at",     "'twas",      "ain't",        "aren't",     "can't",        "could've",      "couldn't",
    "couldn't've",  "didn't",     "doesn't",      "don't",      "hadn't",       "hadn't've",     "hasn't",
    "haven't",      "he'd",       "he'd've",      "he's",       "how'd",        "how'll",        "how's",
    "isn't",        "it'd",       "it'd've",      "it'll",      "ma'am",        "might've",      "mightn't",
    "mightn't've",  "must've",    "mustn't",      "needn't",    "not've",       "o'clock",       "oughtn't",
    "shan't",       "she'd've",   "should've",    "shouldn't",  "shouldn't've", "somebody'd've", "somebody'll",
    "somebody's",   "someone'd",  "someone'd've", "someone'll", "someone's",    "something'd",   "something'd've",
    "something'll", "that's",     "there'd",      "there'd've", "there're",     "there's",       "they'd",
    "they'd've",    "they'll",    "they're",      "they've",    "wasn't",       "we'd've",       "we've",
    "weren't",      "what'll",    "what're",      "what's",     "what've",      "when's",        "where'd",
    "where's",      "where've",   "who'd",        "who'd've",   "who'll",       "who's",         "who've",
    "why'll",       "why're",     "why's",        "won't",      "would've",     "wouldn't",      "wouldn't've",
    "y'all",        "y'all'd've", "y'all'll",     "you'd",      "you'd've",     "you'll",        "you're",
    "you've"};

/// Contractions by how they look when one apostrophe is left out.
std::map<std::string, std::string_view> misspelt_contractions() {
  std::map<std::string, std::string_view> map{{"somebody'd", "somebodyd"}};  // the other way round in the original, too
  for (const auto word : kContractions)
    for (size_t i = word.find('\''); i != std::string_view::npos; i = word.find('\'', i + 1))
      map.emplace(std::string(word).erase(i, 1), word);
  return map;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Commas between digits: then all punctuation goes without leaving a blank.
bool has_thousands(std::string_view text) {
  for (size_t comma = text.find(','); comma != std::string_view::npos; comma = text.find(',', comma)) {
    const size_t end = std::min(text.find_first_not_of(',', comma), text.size());
    if (comma > 0 && is_digit(text[comma - 1]) && end < text.size() && is_digit(text[end])) return true;
    comma = end;
  }
  return false;
}

std::string without_punctuation(std::string_view text) {
  const bool thousands = has_thousands(text);
  const auto stands_beside_blank = [&](char mark) {
    return text.find(std::string{mark, ' '}) != std::string_view::npos ||
           text.find(std::string{' ', mark}) != std::string_view::npos;
  };
  std::string out;
  for (const char c : text) {
    if (kPunctuation.find(c) == std::string_view::npos)
      out += c;
    else if (!thousands && !stands_beside_blank(c))
      out += ' ';
  }
  std::string kept;
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i] != '.' || (i + 1 < out.size() && is_digit(out[i + 1]))) kept += out[i];
  return kept;
}

}  // namespace

std::string normalize_vqa_answer(std::string_view answer) {
  static const auto contractions = misspelt_contractions();
  std::string line(answer);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  const auto first = line.find_first_not_of(" \r\v\f"), last = line.find_last_not_of(" \r\v\f");
  line = first == std::string::npos ? "" : line.substr(first, last + 1 - first);
  const std::string lower = to_lower(without_punctuation(line));
  std::string out;
  for (std::string_view word : split_words(lower)) {
    if (const auto number = kNumbers.find(word); number != kNumbers.end()) word = number->second;
    if (word == "a" || word == "an" || word == "the") continue;
    if (const auto whole = contractions.find(std::string(word)); whole != contractions.end()) word = whole->second;
    (out += out.empty() ? "" : " ") += word;
  }
  return out;
}

double vqa_accuracy(const std::vector<AnsweredRow>& rows) {
  return mean_over(rows, [](const AnsweredRow& row) {
    const auto answer = normalize_vqa_answer(row.answer);
    const auto matches =
        static_cast<double>(std::count_if(row.references.begin(), row.references.end(), [&](const auto& reference) {
          return normalize_vqa_answer(reference) == answer;
        }));
    const auto people = static_cast<double>(row.references.size());
    if (people == 1) return matches;
    // Left out is one of the matching references, or one of the others.
    return (matches * std::min(1.0, (matches - 1) / 3) + (people - matches) * std::min(1.0, matches / 3)) / people;
  });
}

}  // namespace vlmtune
