#include "lib/evaluate/caption_words.h"

#include <algorithm>
#include <array>
#include <map>

#include "lib/text/regex.h"
#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

/// What a word may be; of those that fit at a place, the first.
constexpr std::string_view kRules[] = {
    R"((?:https?://|www\.)[^\s"<>()]*[^\s"<>().,;:!?'`])",  // addresses
    R"([\w.+-]+@\w[\w-]*(?:\.\w[\w-]*)+)",
    R"(</?\p{L}[^<>\s]*>)",  // tags
    R"([#@]\p{L}\w*)",
    R"((?:mr|mrs|ms|messrs|drs?|profs?|sens?|reps?|gens?|lt|col|govs?|adm|rev|maj|sgt|cpl|pvt|capt|ste?|mt|ft|ave|pres)"
    R"(|hon|jr|sr|bros|inc|co|corp|ltd|plc|rd|blvd|etc|al|vs|sq|dept|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|mon)"
    R"(|tues?|wed|thurs?|fri|sat|sun|ph\.d|m\.d)\.(?!\w))",
    R"(nos?\.(?=\s+\d))",
    R"(\p{L}(?:\.\p{L})*\.(?!\w))",  // U.S., a.m.
    R"(can(?=not(?!\w))|(?:gon|wan)(?=na(?!\w))|got(?=ta(?!\w))|(?:gim|lem)(?=me(?!\w)))",
    R"('t(?=is(?!\w)|was(?!\w)))",
    R"('(?:em(?!\w)|n')|'\d\ds(?!\w)|ol'(?!\w)|(?:[odl]'\p{L}|ma'a)\p{L}*|y'(?=all))",  // 'em, '70s, o'clock
    R"(\p{L}+?(?=n't(?!\w))|n't(?!\w))",
    R"((?<=[\p{L}\p{N}])'(?:s|m|d|ll|re|ve)(?!\w))",
    R"((?<![\w.])[+-]?(?:\.\d+|(?<=[+-])\d+(?:[,.]\d+)*))",       // .5, -3
    R"(\d+:\d\d(?=[ap]m(?!\w))|(?-i:\p{Lu}{1,2}&\p{Lu})(?!\w))",  // 10:30am, R&B
    R"([\p{L}\p{M}\p{N}]+(?:(?:[-/._]|(?<=\d)[,:](?=\d))[\p{L}\p{M}\p{N}]+)*)",
    R"(\.\.\.|[!?]+|--+|_+|``|''|\S)"};

const std::map<std::string_view, std::string_view> kSpellings{
    {"(", "-lrb-"}, {")", "-rrb-"}, {"[", "-lsb-"}, {"]", "-rsb-"}, {"{", "-lcb-"}, {"}", "-rcb-"},
    {"€", "$"},     {"£", "#"},     {"¢", "cents"}, {"½", "1/2"},   {"¼", "1/4"},   {"¾", "3/4"}};

constexpr std::array<std::string_view, 13> kLeftOut{"'", "''", "`", "``", "\"",  ".", "?",
                                                    "!", ",",  ":", "-",  "...", ";"};

bool is_left_out(std::string_view word) {
  return std::find(kLeftOut.begin(), kLeftOut.end(), word) != kLeftOut.end() || word.starts_with("--");
}

/// Typographic marks as the typewriter's.
std::string plain_marks(std::string_view text) {
  static const std::map<std::string_view, std::string_view> marks{{"’", "'"},   {"‘", "`"},  {"“", "``"}, {"”", "''"},
                                                                  {"…", "..."}, {"–", "--"}, {"—", "--"}};
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto character = text.substr(at, utf8_width(text, at));
    const auto mark = marks.find(character);
    out += mark == marks.end() ? character : mark->second;
    at += character.size();
  }
  return out;
}

const Regex& word_pattern() {
  static const Regex pattern = [] {
    std::string rules;
    for (const auto rule : kRules) rules += (rules.empty() ? "(?i)" : "|") + std::string(rule);
    return Regex(rules);
  }();
  return pattern;
}

}  // namespace

Words caption_words(std::string_view text) {
  const auto plain = plain_marks(text);
  Words words;
  for (size_t begin = 0, end = 0; word_pattern().find(plain, end, begin, end);) {
    auto word = to_lower(std::string_view(plain).substr(begin, end - begin));
    if (is_left_out(word)) continue;
    const auto spelling = kSpellings.find(word);
    words.push_back(spelling == kSpellings.end() ? std::move(word) : std::string(spelling->second));
  }
  return words;
}

}  // namespace vlmtune
