#include "lib/text/tokenizer_files.h"

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/text/bpe_model.h"
#include "lib/text/charsmap.h"
#include "lib/text/sentencepiece_model.h"
#include "lib/text/tiktoken.h"
#include "lib/text/tokenizer_json.h"
#include "lib/text/unicode.h"
#include "lib/text/unigram_model.h"

namespace vlmtune {
namespace {

namespace fs = std::filesystem;
using Scheme = MetaspacePreTokenizer::PrependScheme;

constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::optional<JsonView> parse_if_there(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  return JsonView::parse_file(path);
}

struct Settings {
  std::optional<JsonView> config;  // tokenizer_config.json
  std::optional<JsonView> map;     // special_tokens_map.json; not read when the config lists added tokens itself
  std::optional<JsonView> added;   // added_tokens.json

  bool flag(const char* key, bool fallback) const { return config ? config->bool_or(key, fallback) : fallback; }
};

void add_token(TokenizerPipeline& pipeline, const JsonView& place, AddedToken token) {
  auto id = token.id;
  if (!pipeline.add_token(std::move(token)))
    throw place.error(fmt::format("the id is {}, expected 0 to {}", id, kMaxTokenId));
}

/// "<s>", or {"content": "<s>", ...} as an added token.
AddedToken read_special(const JsonView& value) {
  if (!value.is_object()) return {.content = value.as_string(), .normalized = false, .special = true};
  auto token = read_added_token(value, 0);
  token.normalized = value.bool_or("normalized", false);
  token.special = true;
  return token;
}

/// A named token: config first, then the map overrides; `fallback` when neither speaks of it.
void set_named(TokenizerPipeline& pipeline, const Settings& settings, const char* key, std::optional<std::string>& slot,
               std::optional<std::string> fallback) {
  std::optional<AddedToken> token;
  bool mentioned = false;
  if (settings.config) {
    settings.config->each_member([&](const std::string& name, const JsonView& value) {
      if (name != key) return;
      mentioned = true;
      if (!value.is_null()) token = read_special(value);
    });
  }
  if (settings.map) {
    if (auto value = settings.map->find(key)) token = read_special(*value);
  }
  if (!token && !mentioned && fallback) token = AddedToken{.content = *fallback, .normalized = false, .special = true};
  if (!token) return;
  slot = token->content;
  auto id = pipeline.id_of(token->content);
  if (id && pipeline.is_added(token->content)) return;
  pipeline.add_token_without_id(std::move(*token));
}

void add_listed_specials(TokenizerPipeline& pipeline, const JsonView& source, const char* key) {
  auto list = source.find(key);
  if (!list) return;
  auto add = [&](const JsonView& value) {
    auto token = read_special(value);
    if (!pipeline.is_added(token.content)) pipeline.add_token_without_id(std::move(token));
  };
  if (list->is_array())
    list->each_item(add);
  else
    list->each_member([&](const std::string&, const JsonView& value) { add(value); });
}

void apply_settings(TokenizerPipeline& pipeline, const Settings& settings, const SentencepieceModel& names,
                    bool has_names, const std::optional<std::string>& pad_fallback) {
  auto decoder = settings.config ? settings.config->find("added_tokens_decoder") : std::nullopt;
  if (decoder) {
    std::vector<std::pair<int64_t, JsonView>> entries;
    decoder->each_member([&](const std::string& key, const JsonView& value) {
      if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != std::string::npos)
        throw value.error("expected a token id as the key");
      entries.emplace_back(std::stoll(key), value);
    });
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [id, value] : entries) add_token(pipeline, value, read_added_token(value, id));
  } else if (settings.added) {
    settings.added->each_member([&](const std::string& token, const JsonView& id) {
      if (pipeline.is_added(token)) return;
      add_token(
          pipeline, id,
          {.content = token, .id = static_cast<int32_t>(std::clamp<int64_t>(id.as_integer(), -1, kMaxTokenId + 1))});
    });
  }
  auto fallback = [&](const std::string& name) {
    return has_names && !name.empty() ? std::optional(name) : std::nullopt;
  };
  set_named(pipeline, settings, "bos_token", pipeline.bos_token, fallback(names.bos_piece));
  set_named(pipeline, settings, "eos_token", pipeline.eos_token, fallback(names.eos_piece));
  set_named(pipeline, settings, "unk_token", pipeline.unk_token, fallback(names.unk_piece));
  set_named(pipeline, settings, "pad_token", pipeline.pad_token, pad_fallback);
  for (const auto* source : {&settings.config, &settings.map}) {
    if (!*source) continue;
    add_listed_specials(pipeline, **source, "additional_special_tokens");
    add_listed_specials(pipeline, **source, "extra_special_tokens");
  }
}

void make_llama(TokenizerPipeline& pipeline, const Settings& settings) {
  bool prefix = settings.flag("add_prefix_space", true);
  auto scheme = !prefix ? Scheme::kNever : settings.flag("legacy", false) ? Scheme::kAlways : Scheme::kFirst;
  pipeline.normalizer.reset();
  pipeline.pre_tokenizer = std::make_unique<MetaspacePreTokenizer>("\u2581", scheme, false);
  pipeline.decoder.clear();
  pipeline.decoder.push_back(make_replace_decoder("\u2581", " "));
  pipeline.decoder.push_back(make_byte_fallback_decoder());
  pipeline.decoder.push_back(make_fuse_decoder());
  if (prefix) pipeline.decoder.push_back(make_strip_decoder(" ", 1, 0));
}

void make_byte_level(TokenizerPipeline& pipeline, const Settings& settings, bool qwen2) {
  bool prefix = settings.flag("add_prefix_space", false);
  pipeline.normalizer.reset();
  pipeline.pre_tokenizer = std::make_unique<ByteLevelPreTokenizer>(prefix, !qwen2);
  if (qwen2) {
    pipeline.normalizer = std::make_unique<UnicodeNormalizer>(UnicodeNormalizer::Form::kNfc);
    std::vector<std::unique_ptr<PreTokenizer>> parts;
    parts.push_back(std::make_unique<SplitPreTokenizer>(Regex(kQwen2Pattern), SplitBehavior::kIsolated, false));
    parts.push_back(std::move(pipeline.pre_tokenizer));
    pipeline.pre_tokenizer = std::make_unique<PreTokenizerSequence>(std::move(parts));
  }
  pipeline.decoder.clear();
  pipeline.decoder.push_back(make_byte_level_decoder());
}

/// The merges of a sentencepiece BPE vocabulary: every way to put a piece together, in the order of the pieces.
std::vector<BpeModel::Merge> derive_merges(const SentencepieceModel& model, const Vocabulary& vocabulary) {
  struct Candidate {
    size_t left_length, right_length;  // in characters
    std::string left, right;
  };
  std::vector<BpeModel::Merge> merges;
  for (const auto& piece : model.pieces) {
    std::vector<Candidate> ways;
    size_t characters = 0, total = 0;
    for (size_t at = 0; at < piece.text.size(); at += utf8_width(piece.text, at)) ++total;
    for (size_t cut = 0; cut < piece.text.size();) {
      cut += utf8_width(piece.text, cut), ++characters;
      if (cut >= piece.text.size() || total > 256) break;  // a piece that long is damage; its cuts are quadratic work
      auto left = piece.text.substr(0, cut), right = piece.text.substr(cut);
      if (vocabulary.id_of(left) && vocabulary.id_of(right))
        ways.push_back({characters, total - characters, left, right});
    }
    std::stable_sort(ways.begin(), ways.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(a.left_length, a.right_length) < std::tie(b.left_length, b.right_length);
    });
    for (auto& way : ways) merges.push_back({std::move(way.left), std::move(way.right)});
  }
  return merges;
}

void read_sentencepiece(const SentencepieceModel& model, const Settings& settings, TokenizerPipeline& pipeline) {
  if (model.type == SentencepieceModel::ModelType::kBpe) {
    Vocabulary vocabulary;
    for (size_t id = 0; id < model.pieces.size(); ++id) vocabulary.add(model.pieces[id].text, static_cast<int64_t>(id));
    BpeOptions options;
    options.unk_token = model.unk_piece;
    options.fuse_unk = options.byte_fallback = true;
    auto merges = derive_merges(model, vocabulary);
    pipeline.model = std::make_unique<BpeModel>(std::move(vocabulary), merges, std::move(options));
    make_llama(pipeline, settings);
  } else if (model.type == SentencepieceModel::ModelType::kUnigram) {
    std::vector<UnigramModel::Piece> pieces;
    for (const auto& piece : model.pieces) pieces.push_back({piece.text, piece.score});
    std::optional<int32_t> unk;
    if (model.unk_id >= 0 && static_cast<size_t>(model.unk_id) < pieces.size()) unk = model.unk_id;
    pipeline.model = std::make_unique<UnigramModel>(pieces, unk, model.byte_fallback);
    make_llama(pipeline, settings);
    if (!model.charsmap.empty()) {
      try {
        pipeline.normalizer = std::make_unique<CharsmapNormalizer>(model.charsmap);
      } catch (const std::invalid_argument& error) {
        throw input_error("{}: {}", pipeline.origin, error.what());
      }
    }
  } else {
    throw input_error("{}: sentencepiece model type {} (word or character), expected BPE or unigram", pipeline.origin,
                      static_cast<int>(model.type));
  }
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    auto type = model.pieces[id].type;
    bool control = type == SentencepieceModel::PieceType::kControl;
    if (!control && type != SentencepieceModel::PieceType::kUserDefined) continue;
    pipeline.add_token(
        {.content = model.pieces[id].text, .id = static_cast<int32_t>(id), .normalized = false, .special = control});
  }
}

/// The tokenizer of the first Qwen and Qwen-VL (tokenization_qwen.py of their repositories): special tokens stand behind the ranks.
void read_qwen_tiktoken(const fs::path& path, TokenizerPipeline& pipeline, const Settings& settings) {
  auto model = read_tiktoken(path);
  auto next = static_cast<int32_t>(model->vocabulary().size());
  pipeline.model = std::move(model);
  make_byte_level(pipeline, settings, true);
  const auto add = [&](const std::string& content) {
    pipeline.add_token({.content = content, .id = next++, .normalized = false, .special = true});
  };
  for (const char* token : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) add(token);
  constexpr int kExtras = 205;
  for (int i = 0; i < kExtras; ++i) add(fmt::format("<|extra_{}|>", i));
  for (const char* token : {"<ref>", "</ref>", "<box>", "</box>", "<quad>", "</quad>", "<img>", "</img>", "<imgpad>"})
    add(token);
  pipeline.eos_token = pipeline.pad_token = "<|endoftext|>";
}

std::string model_type_of(const fs::path& dir) {
  auto config = parse_if_there(dir / "config.json");
  return config ? config->string_or("model_type", "") : "";
}

}  // namespace

std::unique_ptr<TokenizerPipeline> load_tokenizer_files(const fs::path& dir) {
  Settings settings{parse_if_there(dir / "tokenizer_config.json"), std::nullopt,
                    parse_if_there(dir / "added_tokens.json")};
  bool lists_added = settings.config && settings.config->find("added_tokens_decoder");
  if (!lists_added) settings.map = parse_if_there(dir / "special_tokens_map.json");

  auto pipeline = std::make_unique<TokenizerPipeline>();
  SentencepieceModel names;  // with the default names of the named tokens
  bool has_names = false;
  std::optional<std::string> pad_fallback;
  std::error_code ignored;
  if (auto path = dir / "tokenizer.json"; fs::is_regular_file(path, ignored)) {
    pipeline->origin = path.string();
    read_tokenizer_json(JsonView::parse_file(path), *pipeline);
    auto written_class = settings.config ? settings.config->string_or("tokenizer_class", "") : "";
    auto reference = reference_class(written_class, model_type_of(dir));
    if (reference == ReferenceClass::kLlama) make_llama(*pipeline, settings);
    if (reference == ReferenceClass::kGpt2) make_byte_level(*pipeline, settings, false);
    if (reference == ReferenceClass::kQwen2) make_byte_level(*pipeline, settings, true);
    has_names = reference != ReferenceClass::kAsWritten;
    if (reference == ReferenceClass::kGpt2) names.bos_piece = names.eos_piece = names.unk_piece = "<|endoftext|>";
    if (reference == ReferenceClass::kQwen2) pad_fallback = "<|endoftext|>";
    if (reference == ReferenceClass::kQwen2) names.bos_piece = "", names.eos_piece = names.unk_piece = "<|endoftext|>";
  } else if (path = dir / "tokenizer.model"; fs::is_regular_file(path, ignored)) {
    pipeline->origin = path.string();
    names = parse_sentencepiece_model(read_file(path), path.string());
    has_names = true;
    read_sentencepiece(names, settings, *pipeline);
    pipeline->adds_bos = settings.flag("add_bos_token", false);
    pipeline->adds_eos = settings.flag("add_eos_token", false);
  } else if (path = dir / "qwen.tiktoken"; fs::is_regular_file(path, ignored)) {
    pipeline->origin = path.string();
    read_qwen_tiktoken(path, *pipeline, settings);
  } else {
    throw input_error("{}: no tokenizer.json, tokenizer.model or qwen.tiktoken in this folder", dir.string());
  }
  apply_settings(*pipeline, settings, names, has_names, pad_fallback);
  if (!pipeline->bos_token) pipeline->bos_token = pipeline->template_bos;
  pipeline->finish();
  return pipeline;
}

}  // namespace vlmtune
