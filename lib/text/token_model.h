// The vocabulary, and the step that cuts one pre-token into vocabulary entries.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace vlmtune {

/// Ids above this are taken for damage, not for a vocabulary.
inline constexpr int64_t kMaxTokenId = 10'000'000;

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

/// Token strings and ids.
class Vocabulary {
 public:
  /// False when the id is out of range. A repeated string takes the new id.
  bool add(std::string_view token, int64_t id);
  std::optional<int32_t> id_of(std::string_view token) const {
    auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional<int32_t>(found->second);
  }
  /// nullptr for an unknown id.
  const std::string* token_of(int64_t id) const;
  /// 1 + the largest id.
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  size_t num_tokens() const { return ids_.size(); }

 private:
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
  std::vector<const std::string*> tokens_;  // keys of ids_; null at gaps
};

struct TokenPiece {
  int32_t id;
  uint32_t length;  // bytes of the word it stands for
};

/// Cuts a pre-token. Immutable, shared between threads.
class TokenModel {
 public:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~TokenModel() = default;
  /// Appends the pieces of `word`, which is valid UTF-8 and not empty.
  virtual void tokenize(std::string_view word, std::vector<TokenPiece>& pieces) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Never makes this token from text: control tokens are parsed, not spelled.
  void forbid(int32_t id);

 protected:
  bool is_forbidden(int32_t id) const {
    return static_cast<size_t>(id) < forbidden_.size() && forbidden_[static_cast<size_t>(id)];
  }

 private:
  Vocabulary vocabulary_;
  std::vector<bool> forbidden_;
};

/// The whole word or nothing but the unknown token.
class WordLevelModel : public TokenModel {
 public:
  WordLevelModel(Vocabulary vocabulary, std::optional<int32_t> unk) : TokenModel(std::move(vocabulary)), unk_(unk) {}
  void tokenize(std::string_view word, std::vector<TokenPiece>& pieces) const override;

 private:
  std::optional<int32_t> unk_;
};

}  // namespace vlmtune
