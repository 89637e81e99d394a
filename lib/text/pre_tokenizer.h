// The "pre_tokenizer" of tokenizer.json: cuts the text into words that the model then cuts further.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/text/labelled_text.h"
#include "lib/text/regex.h"

namespace vlmtune {

/// A text and the words in it, in order; what lies in no word is gone.
struct Words {
  using Range = std::pair<size_t, size_t>;  // [begin, end) in bytes, never empty
  LabelledText source;
  std::vector<Range> ranges;
  bool at_start = false;  ///< the text is the beginning of what the user gave, not what follows an added token
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Words& words) const = 0;
};

class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}
  void apply(Words& words) const override;

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

/// What becomes of the delimiter when a word is cut at it.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// Base of those that cut words at delimiters.
class SplittingPreTokenizer : public PreTokenizer {
 public:
  SplittingPreTokenizer(SplitBehavior behavior, bool invert) : behavior_(behavior), invert_(invert) {}
  void apply(Words& words) const override;

 protected:
  /// The next delimiter in `word` at or behind `start`.
  virtual bool find(std::string_view word, size_t start, size_t& begin, size_t& end) const = 0;

 private:
  SplitBehavior behavior_;
  bool invert_;  // what does not match is the delimiter
};

/// "Split" by pattern or string.
class SplitPreTokenizer : public SplittingPreTokenizer {
 public:
  SplitPreTokenizer(Regex pattern, SplitBehavior behavior, bool invert)
      : SplittingPreTokenizer(behavior, invert), pattern_(std::move(pattern)) {}
  SplitPreTokenizer(std::string literal, SplitBehavior behavior, bool invert)
      : SplittingPreTokenizer(behavior, invert), literal_(std::move(literal)) {}

 protected:
  bool find(std::string_view word, size_t start, size_t& begin, size_t& end) const override;

 private:
  std::optional<Regex> pattern_;
  std::string literal_;
};

/// Cuts at single characters of a class: "Digits", "Punctuation", "WhitespaceSplit".
class CharacterPreTokenizer : public SplittingPreTokenizer {
 public:
  CharacterPreTokenizer(bool (*is_delimiter)(char32_t), SplitBehavior behavior)
      : SplittingPreTokenizer(behavior, false), is_delimiter_(is_delimiter) {}

 protected:
  bool find(std::string_view word, size_t start, size_t& begin, size_t& end) const override;

 private:
  bool (*is_delimiter_)(char32_t);
};

/// "ByteLevel" (GPT-2): each byte becomes a printable character.
class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(bool add_prefix_space, bool use_regex);
  void apply(Words& words) const override;

 private:
  bool add_prefix_space_;
  std::unique_ptr<PreTokenizer> gpt2_split_;
};

/// "Metaspace" (sentencepiece): spaces become U+2581, and one is put in front.
class MetaspacePreTokenizer : public PreTokenizer {
 public:
  enum class PrependScheme { kFirst, kAlways, kNever };
  MetaspacePreTokenizer(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}
  void apply(Words& words) const override;

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

/// GPT-2's printable stand-in for each byte, as UTF-8.
const std::string& byte_level_character(unsigned char byte);
/// The byte a character stands for, or -1.
int byte_level_byte(char32_t character);

}  // namespace vlmtune
