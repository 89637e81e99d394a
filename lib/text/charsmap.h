// The precompiled character map of sentencepiece (its nmt_nfkc and the like): a double-array trie from strings to
// strings.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lib/text/json_view.h"
#include "lib/text/normalizer.h"

namespace vlmtune {

/// The "Precompiled" normalizer: each grapheme, else each character, becomes what the map says.
class CharsmapNormalizer : public Normalizer {
 public:
  /// `blob`: size of the trie (u32, little endian), the trie, the strings ended by zero bytes.
  /// Throws std::invalid_argument when the sizes do not fit.
  explicit CharsmapNormalizer(const std::string& blob);
  static CharsmapNormalizer from_base64(const JsonView& value);
  void apply(LabelledText& text) const override;

 private:
  /// The replacement of the shortest entry that begins `key`, as the reference takes it; nullptr for none.
  const char* lookup(std::string_view key) const;

  std::vector<uint32_t> trie_;
  std::string strings_;
};

}  // namespace vlmtune
