// Tokens that stand beside the model's vocabulary ("</s>", "<image>") and are found in the text before anything else.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/text/labelled_text.h"

namespace vlmtune {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;  ///< only between characters that are no word characters
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< takes the white space behind it
  bool normalized = true;    ///< looked for in the normalized text
  bool special = false;      ///< left out by decode(skip_special)
  bool box_mark = false;     ///< of a place in a picture: rows and people write it too
  std::string written = {};  ///< what it decodes to: the content, normalized when that is what is looked for
};

/// Whether it is one of Qwen-VL's marks around names and places of objects: "<box>", "<|box_start|>".
bool is_box_mark(std::string_view content);

/// Where added tokens may be parsed.
enum class ParseRule {
  kEverywhere,   ///< as the reference does with one string
  kControlOnly,  ///< inside bytes labelled as control; marks of boxes everywhere
  kNowhere,
};

/// Finds tokens in text: leftmost, then longest.
class AddedTokenMatcher {
 public:
  struct Match {
    size_t begin, end;            // with the white space it takes
    size_t core_begin, core_end;  // the literal itself
    const AddedToken* token;
  };

  /// `pattern` is the token's content as it appears in the text searched; `token` must outlive the matcher.
  void add(std::string_view pattern, const AddedToken* token);
  /// All matches in order. Tokens of white space alone are parsed whatever the rule: they are no control tokens.
  std::vector<Match> find_all(const LabelledText& text, ParseRule rule) const;
  /// The longest token that stands at `position`, or nullptr.
  const AddedToken* longest_at(std::string_view text, size_t position, size_t& length) const;

 private:
  struct Node {
    std::unordered_map<char, uint32_t> children;
    const AddedToken* token = nullptr;
  };
  template <typename Accept>
  const AddedToken* search(std::string_view text, size_t position, size_t& length, const Accept& accept) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> starts_{};  // bytes that a pattern begins with
};

}  // namespace vlmtune
