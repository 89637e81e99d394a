#include "lib/text/token_model.h"

namespace vlmtune {

bool Vocabulary::add(std::string_view token, int64_t id) {
  if (id < 0 || id > kMaxTokenId) return false;
  auto [entry, is_new] = ids_.try_emplace(std::string(token), static_cast<int32_t>(id));
  if (!is_new) entry->second = static_cast<int32_t>(id);
  if (tokens_.size() <= static_cast<size_t>(id)) tokens_.resize(static_cast<size_t>(id) + 1);
  tokens_[static_cast<size_t>(id)] = &entry->first;  // map nodes stay where they are, also when the map is moved
  return true;
}

const std::string* Vocabulary::token_of(int64_t id) const {
  return id >= 0 && id < size() ? tokens_[static_cast<size_t>(id)] : nullptr;
}

void TokenModel::forbid(int32_t id) {
  if (id < 0 || id >= vocabulary_.size()) return;
  forbidden_.resize(static_cast<size_t>(vocabulary_.size()));
  forbidden_[static_cast<size_t>(id)] = true;
}

void WordLevelModel::tokenize(std::string_view word, std::vector<TokenPiece>& pieces) const {
  auto id = vocabulary().id_of(word);
  if (!id || is_forbidden(*id)) id = unk_;
  if (id) pieces.push_back({*id, static_cast<uint32_t>(word.size())});
}

}  // namespace vlmtune
