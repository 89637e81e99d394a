#include "lib/text/pre_tokenizer.h"

#include <array>

#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Part {
  size_t begin, end;
  bool is_delimiter;
};

/// Joins or drops the parts of one word as the behaviour says, and appends what is left.
void append_parts(const std::vector<Part>& parts, SplitBehavior behavior, std::vector<Words::Range>& out) {
  size_t first = out.size();
  bool previous_was_delimiter = false;
  bool next_joins = false;  // the part before was a delimiter that goes with this one
  for (const auto& part : parts) {
    bool joins = false;
    switch (behavior) {
      case SplitBehavior::kRemoved:
        break;
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kContiguous:
        joins = part.is_delimiter == previous_was_delimiter && &part != &parts.front();
        break;
      case SplitBehavior::kMergedWithPrevious:
        joins = part.is_delimiter && !previous_was_delimiter;
        break;
      case SplitBehavior::kMergedWithNext:
        joins = next_joins && !part.is_delimiter;
        break;
    }
    next_joins = part.is_delimiter;
    previous_was_delimiter = part.is_delimiter;
    if (behavior == SplitBehavior::kRemoved && part.is_delimiter) continue;
    if (joins && out.size() > first) {
      out.back().second = part.end;
    } else {
      out.emplace_back(part.begin, part.end);
    }
  }
}

using ByteCharacters = std::array<std::string, 256>;

const ByteCharacters& byte_characters() {
  static const ByteCharacters table = [] {
    ByteCharacters characters;
    char32_t stand_in = 256;
    for (char32_t byte = 0; byte < 256; ++byte) {
      bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      append_utf8(characters[byte], printable ? byte : stand_in++);
    }
    return characters;
  }();
  return table;
}

}  // namespace

const std::string& byte_level_character(unsigned char byte) { return byte_characters()[byte]; }

int byte_level_byte(char32_t character) {
  static const std::array<int16_t, 512> bytes = [] {
    std::array<int16_t, 512> table;
    table.fill(-1);
    for (int byte = 0; byte < 256; ++byte) {
      size_t position = 0;
      table[next_code_point(byte_characters()[static_cast<size_t>(byte)], position)] = static_cast<int16_t>(byte);
    }
    return table;
  }();
  return character < bytes.size() ? bytes[character] : -1;
}

void PreTokenizerSequence::apply(Words& words) const {
  for (const auto& part : parts_) part->apply(words);
}

void SplittingPreTokenizer::apply(Words& words) const {
  std::vector<Words::Range> out;
  out.reserve(words.ranges.size() + words.source.text.size() / 4);
  std::vector<Part> parts;
  for (auto [word_begin, word_end] : words.ranges) {
    std::string_view word(words.source.text.data() + word_begin, word_end - word_begin);
    parts.clear();
    size_t at = 0, begin = 0, end = 0;
    for (size_t start = 0; start <= word.size() && find(word, start, begin, end);) {
      if (begin > at) parts.push_back({word_begin + at, word_begin + begin, invert_});
      if (end > begin) parts.push_back({word_begin + begin, word_begin + end, !invert_});
      at = end;
      start = end > begin ? end : end < word.size() ? end + utf8_width(word, end) : end + 1;
    }
    if (at < word.size()) parts.push_back({word_begin + at, word_end, invert_});
    append_parts(parts, behavior_, out);
  }
  words.ranges = std::move(out);
}

bool SplitPreTokenizer::find(std::string_view word, size_t start, size_t& begin, size_t& end) const {
  if (pattern_) return pattern_->find(word, start, begin, end);
  if (literal_.empty()) return false;
  begin = word.find(literal_, start);
  end = begin + literal_.size();
  return begin != std::string_view::npos;
}

bool CharacterPreTokenizer::find(std::string_view word, size_t start, size_t& begin, size_t& end) const {
  for (size_t at = start; at < word.size();) {
    begin = at;
    if (is_delimiter_(next_code_point(word, at))) {
      end = at;
      return true;
    }
  }
  return false;
}

ByteLevelPreTokenizer::ByteLevelPreTokenizer(bool add_prefix_space, bool use_regex)
    : add_prefix_space_(add_prefix_space) {
  if (use_regex)
    gpt2_split_ = std::make_unique<SplitPreTokenizer>(Regex(kGpt2Pattern), SplitBehavior::kIsolated, false);
}

void ByteLevelPreTokenizer::apply(Words& words) const {
  if (add_prefix_space_) {
    Words spaced;
    for (auto [begin, end] : words.ranges) {
      size_t first = spaced.source.text.size();
      bool labelled = words.source.labelled();
      if (words.source.text[begin] != ' ')
        spaced.source.append(" ", words.source.label_at(begin) & kAnswerByte, labelled);
      for (size_t i = begin; i < end; ++i)
        spaced.source.append({&words.source.text[i], 1}, words.source.label_at(i), labelled);
      spaced.ranges.emplace_back(first, spaced.source.text.size());
    }
    words.source = std::move(spaced.source), words.ranges = std::move(spaced.ranges);
  }
  if (gpt2_split_) gpt2_split_->apply(words);
  const auto& characters = byte_characters();
  LabelledText mapped;
  mapped.text.reserve(words.source.text.size() * 3 / 2);
  bool labelled = words.source.labelled();
  for (auto& [begin, end] : words.ranges) {
    size_t first = mapped.text.size();
    for (size_t i = begin; i < end; ++i) {
      const auto& character = characters[static_cast<unsigned char>(words.source.text[i])];
      mapped.append(character, words.source.label_at(i), labelled);
    }
    begin = first, end = mapped.text.size();
  }
  words.source = std::move(mapped);
}

void MetaspacePreTokenizer::apply(Words& words) const {
  LabelledText out;
  std::vector<Words::Range> ranges;
  bool labelled = words.source.labelled();
  for (size_t index = 0; index < words.ranges.size(); ++index) {
    auto [begin, end] = words.ranges[index];
    size_t first = out.text.size();
    std::string_view word(words.source.text.data() + begin, end - begin);
    bool wants_prefix = scheme_ == PrependScheme::kAlways ||
                        (scheme_ == PrependScheme::kFirst && words.at_start && index == 0 && begin == 0);
    bool has_prefix = word.starts_with(' ') || word.starts_with(replacement_);
    if (wants_prefix && !has_prefix) out.append(replacement_, words.source.label_at(begin) & kAnswerByte, labelled);
    size_t cut = first;
    for (size_t i = begin; i < end; ++i) {
      bool is_space = words.source.text[i] == ' ';
      bool is_mark = is_space || std::string_view(words.source.text).substr(i, end - i).starts_with(replacement_);
      if (split_ && is_mark && out.text.size() > cut) {
        ranges.emplace_back(cut, out.text.size());
        cut = out.text.size();
      }
      out.append(is_space ? std::string_view(replacement_) : std::string_view(&words.source.text[i], 1),
                 words.source.label_at(i), labelled);
    }
    ranges.emplace_back(cut, out.text.size());
  }
  words.source = std::move(out), words.ranges = std::move(ranges);
}

}  // namespace vlmtune
