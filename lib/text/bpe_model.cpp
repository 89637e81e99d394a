#include "lib/text/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

constexpr size_t kMaxCachedWord = 64;     // bytes; longer words are rarely met twice
constexpr size_t kMaxCachedWords = 4096;  // in each shard

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

/// Pair of ids -> rank and merged id: open addressing, as this is the innermost lookup.
class BpeModel::MergeTable {
 public:
  struct Entry {
    uint64_t key = kEmpty;
    int32_t rank = 0;
    int32_t merged = 0;
  };

  explicit MergeTable(size_t num_merges) {
    size_t capacity = 16;
    while (capacity < 2 * num_merges) capacity *= 2;
    entries_.resize(capacity);
  }

  void insert(int32_t left, int32_t right, int32_t rank, int32_t merged) {
    auto& entry = slot(pair_key(left, right));
    entry = {pair_key(left, right), rank, merged};  // a repeated pair takes the later rank, as in the reference
  }

  const Entry* find(int32_t left, int32_t right) const {
    const auto& entry = const_cast<MergeTable*>(this)->slot(pair_key(left, right));
    return entry.key == kEmpty ? nullptr : &entry;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  Entry& slot(uint64_t key) {
    size_t mask = entries_.size() - 1;
    size_t index = (key * 0x9E3779B97F4A7C15ull) >> 32 & mask;
    while (entries_[index].key != kEmpty && entries_[index].key != key) index = (index + 1) & mask;
    return entries_[index];
  }

  std::vector<Entry> entries_;
};

/// Words already cut, in shards so that data workers seldom meet at a lock.
class BpeModel::WordCache {
 public:
  bool find(std::string_view word, std::vector<TokenPiece>& pieces) {
    auto& shard = shard_of(word);
    std::lock_guard lock(shard.mutex);
    auto found = shard.words.find(word);
    if (found == shard.words.end()) return false;
    pieces.insert(pieces.end(), found->second.begin(), found->second.end());
    return true;
  }

  void insert(std::string_view word, std::span<const TokenPiece> pieces) {
    auto& shard = shard_of(word);
    std::lock_guard lock(shard.mutex);
    if (shard.words.size() >= kMaxCachedWords) shard.words.clear();
    shard.words.try_emplace(std::string(word), pieces.begin(), pieces.end());
  }

 private:
  struct Shard {
    std::mutex mutex;
    std::unordered_map<std::string, std::vector<TokenPiece>, StringHash, std::equal_to<>> words;
  };
  Shard& shard_of(std::string_view word) { return shards_[StringHash{}(word) >> 57 & 15]; }
  std::array<Shard, 16> shards_;
};

BpeModel::BpeModel(Vocabulary vocabulary_in, const std::vector<Merge>& merges, BpeOptions options)
    : TokenModel(std::move(vocabulary_in)),
      options_(std::move(options)),
      merges_(std::make_unique<MergeTable>(merges.size())),
      cache_(std::make_unique<WordCache>()) {
  const auto& vocabulary = this->vocabulary();
  if (options_.unk_token) unk_ = vocabulary.id_of(*options_.unk_token);
  for (int byte = 0; byte < 256; ++byte)
    byte_ids_[byte] = vocabulary.id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  for (char32_t c = 0; c < character_ids_.size(); ++c) {
    std::string text;
    append_utf8(text, c);
    character_ids_[c] = vocabulary.id_of(text).value_or(-1);
  }
  auto id = [&](const std::string& token, size_t rank) {
    auto found = vocabulary.id_of(token);
    if (!found) throw std::invalid_argument(fmt::format("merge {}: \"{}\" is not in the vocabulary", rank, token));
    return *found;
  };
  const auto& prefix = options_.continuing_subword_prefix;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    auto tail = right.starts_with(prefix) ? right.substr(prefix.size()) : right;
    auto left_id = id(left, rank), right_id = id(right, rank), merged = id(left + tail, rank);
    merges_->insert(left_id, right_id, options_.rank_by_token ? merged : static_cast<int32_t>(rank), merged);
  }
}

BpeModel::~BpeModel() = default;

void BpeModel::tokenize(std::string_view word, std::vector<TokenPiece>& pieces) const {
  if (options_.ignore_merges) {
    if (auto whole = vocabulary().id_of(word); whole && !is_forbidden(*whole)) {
      pieces.push_back({*whole, static_cast<uint32_t>(word.size())});
      return;
    }
  }
  bool cached = word.size() <= kMaxCachedWord;
  if (cached && cache_->find(word, pieces)) return;
  thread_local std::vector<TokenPiece> symbols;
  symbols.clear();
  split_into_characters(word, symbols);
  apply_merges(symbols);
  pieces.insert(pieces.end(), symbols.begin(), symbols.end());
  if (cached) cache_->insert(word, symbols);
}

int32_t BpeModel::character_id(std::string_view character) const {
  size_t position = 0;
  auto code = next_code_point(character, position);
  if (code < character_ids_.size() && position == character.size()) return character_ids_[code];
  return vocabulary().id_of(character).value_or(-1);
}

void BpeModel::split_into_characters(std::string_view word, std::vector<TokenPiece>& pieces) const {
  bool decorated = !options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty();
  bool last_was_unknown = false;
  for (size_t at = 0; at < word.size();) {
    auto character = word.substr(at, utf8_width(word, at));
    int32_t id;
    if (decorated) {
      std::string name = (at > 0 ? options_.continuing_subword_prefix : "") + std::string(character);
      if (at + character.size() == word.size()) name += options_.end_of_word_suffix;
      id = vocabulary().id_of(name).value_or(-1);
    } else {
      id = character_id(character);
    }
    at += character.size();
    if (id >= 0) {
      pieces.push_back({id, static_cast<uint32_t>(character.size())});
      last_was_unknown = false;
    } else {
      append_unknown(character, last_was_unknown, pieces);
    }
  }
}

void BpeModel::append_unknown(std::string_view character, bool& last_was_unknown,
                              std::vector<TokenPiece>& pieces) const {
  auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (options_.byte_fallback &&
      std::all_of(character.begin(), character.end(), [&](char c) { return byte_id(c) >= 0; })) {
    for (char c : character) pieces.push_back({byte_id(c), 1});
    last_was_unknown = false;
    return;
  }
  auto length = static_cast<uint32_t>(character.size());
  // Without an unknown token the character vanishes and its neighbours may merge; its bytes go to the token before.
  bool joins_previous = !pieces.empty() && (!unk_ || (last_was_unknown && options_.fuse_unk));
  if (joins_previous) {
    pieces.back().length += length;
  } else if (unk_) {
    pieces.push_back({*unk_, length});
    last_was_unknown = true;
  }
}

/// Repeatedly joins the neighbours of lowest rank, leftmost first: a queue over a linked list, O(n log n).
void BpeModel::apply_merges(std::vector<TokenPiece>& pieces) const {
  struct Candidate {
    int32_t rank;
    uint32_t position;
    int32_t left, right, merged;
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;  // the queue's top is the largest
    }
  };
  thread_local std::vector<Candidate> queue;
  thread_local std::vector<int32_t> previous, next;
  auto n = static_cast<int32_t>(pieces.size());
  queue.clear(), previous.resize(pieces.size()), next.resize(pieces.size());
  auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right >= n) return;
    if (const auto* merge = merges_->find(pieces[left].id, pieces[right].id); merge && !is_forbidden(merge->merged)) {
      queue.push_back({merge->rank, static_cast<uint32_t>(left), pieces[left].id, pieces[right].id, merge->merged});
      std::push_heap(queue.begin(), queue.end());
    }
  };
  for (int32_t i = 0; i < n; ++i) previous[i] = i - 1, next[i] = i + 1;
  for (int32_t i = 0; i + 1 < n; ++i) consider(i, i + 1);
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end());
    auto merge = queue.back();
    queue.pop_back();
    auto left = static_cast<int32_t>(merge.position);
    auto right = next[left];
    bool stale =
        pieces[left].length == 0 || right >= n || pieces[left].id != merge.left || pieces[right].id != merge.right;
    if (stale) continue;
    pieces[left] = {merge.merged, pieces[left].length + pieces[right].length};
    pieces[right].length = 0;
    next[left] = next[right];
    if (next[left] < n) previous[next[left]] = left;
    consider(previous[left], left);
    consider(left, next[left]);
  }
  std::erase_if(pieces, [](const TokenPiece& piece) { return piece.length == 0; });
}

}  // namespace vlmtune
