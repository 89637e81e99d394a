#include "lib/text/tokenizer_json.h"

#include <algorithm>
#include <stdexcept>

#include "lib/text/bpe_model.h"
#include "lib/text/charsmap.h"
#include "lib/text/unicode.h"
#include "lib/text/unigram_model.h"

namespace vlmtune {
namespace {

constexpr int kMaxParts = 100;  // in one sequence

/// "pattern": {"Regex": "..."} or {"String": "..."}.
template <typename OnRegex, typename OnString>
auto with_pattern(const JsonView& value, const OnRegex& on_regex, const OnString& on_string) {
  auto pattern = value.at("pattern");
  if (auto regex = pattern.find("Regex")) {
    try {
      return on_regex(Regex(regex->as_string()));
    } catch (const std::invalid_argument& error) {
      throw regex->error(error.what());
    }
  }
  return on_string(pattern.at("String").as_string());
}

JsonView parts_of(const JsonView& value, const char* key) {
  auto parts = value.at(key);
  if (!parts.is_array() || parts.size() > kMaxParts)
    throw parts.error(fmt::format("expected an array of at most {} parts", kMaxParts));
  return parts;
}

SplitBehavior read_behavior(const JsonView& value) {
  auto name = value.string_or("behavior", "Isolated");
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  throw value.at("behavior")
      .error(fmt::format("found \"{}\", expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
                         name));
}

MetaspacePreTokenizer::PrependScheme read_prepend_scheme(const JsonView& value) {
  using Scheme = MetaspacePreTokenizer::PrependScheme;
  auto scheme = value.find("prepend_scheme");
  if (!scheme) return value.bool_or("add_prefix_space", true) ? Scheme::kAlways : Scheme::kNever;
  auto name = scheme->as_string();
  if (name == "first") return Scheme::kFirst;
  if (name == "always") return Scheme::kAlways;
  if (name == "never") return Scheme::kNever;
  throw scheme->error(fmt::format("found \"{}\", expected first, always or never", name));
}

/// Does the template of a post-processor begin (end) with a special token?
void read_post_processor(const JsonView& value, TokenizerPipeline& pipeline, int depth = 0) {
  auto type = value.type();
  if (type == "Sequence" && depth < 4) {
    parts_of(value, "processors").each_item([&](const JsonView& part) {
      read_post_processor(part, pipeline, depth + 1);
    });
  } else if (type == "TemplateProcessing") {
    auto single = parts_of(value, "single");
    bool before = true;
    single.each_item([&](const JsonView& piece) {
      if (piece.find("Sequence")) {
        before = false;
        return;
      }
      (before ? pipeline.adds_bos : pipeline.adds_eos) = true;
      if (before && !pipeline.template_bos) pipeline.template_bos = piece.at("SpecialToken").at("id").as_string();
    });
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    pipeline.adds_bos = pipeline.adds_eos = true;
  } else if (type != "ByteLevel") {
    throw value.error(fmt::format("unknown post-processor \"{}\"", type));
  }
}

std::vector<BpeModel::Merge> read_merges(const JsonView& merges) {
  std::vector<BpeModel::Merge> result;
  merges.each_item([&](const JsonView& merge) {
    if (!merge.is_string()) {
      if (!merge.is_array() || merge.size() != 2) throw merge.error("expected \"left right\" or [\"left\", \"right\"]");
      result.push_back({merge.item(0).as_string(), merge.item(1).as_string()});
      return;
    }
    auto text = merge.as_string();
    auto space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      throw merge.error("expected two strings and one space");
    result.push_back({text.substr(0, space), text.substr(space + 1)});
  });
  return result;
}

Vocabulary read_vocabulary(const JsonView& vocab) {
  Vocabulary vocabulary;
  vocab.each_integer([&](const std::string& token, int64_t id) {
    if (!vocabulary.add(token, id))
      throw vocab.error(fmt::format("\"{}\" has the id {}, expected 0 to {}", token, id, kMaxTokenId));
  });
  return vocabulary;
}

std::unique_ptr<TokenModel> read_bpe(const JsonView& value) {
  if (auto dropout = value.find("dropout"); dropout && dropout->as_number() != 0)
    throw dropout->error("BPE dropout is random; expected null or 0");
  BpeOptions options;
  if (auto unk = value.find("unk_token")) options.unk_token = unk->as_string();
  options.continuing_subword_prefix = value.string_or("continuing_subword_prefix", "");
  options.end_of_word_suffix = value.string_or("end_of_word_suffix", "");
  options.fuse_unk = value.bool_or("fuse_unk", false);
  options.byte_fallback = value.bool_or("byte_fallback", false);
  options.ignore_merges = value.bool_or("ignore_merges", false);
  auto merges = value.at("merges");
  try {
    return std::make_unique<BpeModel>(read_vocabulary(value.at("vocab")), read_merges(merges), options);
  } catch (const std::invalid_argument& error) {
    throw merges.error(error.what());
  }
}

std::unique_ptr<TokenModel> read_unigram(const JsonView& value) {
  std::vector<UnigramModel::Piece> pieces;
  auto vocab = value.at("vocab");
  vocab.each_item([&](const JsonView& piece) {
    pieces.push_back({piece.item(0).as_string(), piece.item(1).as_number()});
  });
  std::optional<int32_t> unk;
  if (auto id = value.find("unk_id")) {
    if (id->as_integer() < 0 || static_cast<size_t>(id->as_integer()) >= pieces.size())
      throw id->error("expected an index into the vocabulary");
    unk = static_cast<int32_t>(id->as_integer());
  }
  if (pieces.empty()) throw vocab.error("the vocabulary is empty");
  return std::make_unique<UnigramModel>(pieces, unk, value.bool_or("byte_fallback", false));
}

}  // namespace

std::unique_ptr<TokenModel> read_model(const JsonView& value) {
  auto type = value.string_or("type", value.find("merges") ? "BPE" : "Unigram");
  if (type == "BPE") return read_bpe(value);
  if (type == "Unigram") return read_unigram(value);
  if (type == "WordLevel") {
    auto vocabulary = read_vocabulary(value.at("vocab"));
    auto unk = vocabulary.id_of(value.string_or("unk_token", "<unk>"));
    return std::make_unique<WordLevelModel>(std::move(vocabulary), unk);
  }
  throw value.error(fmt::format("unknown model \"{}\", expected BPE, Unigram or WordLevel", type));
}

std::unique_ptr<Normalizer> read_normalizer(const JsonView& value) {
  using Form = UnicodeNormalizer::Form;
  auto type = value.type();
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> parts;
    parts_of(value, "normalizers").each_item([&](const JsonView& part) { parts.push_back(read_normalizer(part)); });
    return std::make_unique<NormalizerSequence>(std::move(parts));
  }
  if (type == "NFC") return std::make_unique<UnicodeNormalizer>(Form::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeNormalizer>(Form::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeNormalizer>(Form::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeNormalizer>(Form::kNfkd);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "Prepend") return std::make_unique<PrependNormalizer>(value.at("prepend").as_string());
  if (type == "Strip")
    return std::make_unique<StripNormalizer>(value.bool_or("strip_left", true), value.bool_or("strip_right", true));
  if (type == "Precompiled")
    return std::make_unique<CharsmapNormalizer>(CharsmapNormalizer::from_base64(value.at("precompiled_charsmap")));
  if (type == "Replace") {
    auto content = value.at("content").as_string();
    auto make = [&](auto pattern) { return std::make_unique<ReplaceNormalizer>(std::move(pattern), content); };
    return with_pattern(value, make, make);
  }
  throw value.error(fmt::format("unknown normalizer \"{}\"", type));
}

std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonView& value) {
  auto type = value.type();
  if (type == "Sequence") {
    std::vector<std::unique_ptr<PreTokenizer>> parts;
    parts_of(value, "pretokenizers").each_item([&](const JsonView& part) {
      parts.push_back(read_pre_tokenizer(part));
    });
    return std::make_unique<PreTokenizerSequence>(std::move(parts));
  }
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevelPreTokenizer>(value.bool_or("add_prefix_space", true),
                                                   value.bool_or("use_regex", true));
  }
  if (type == "Split") {
    auto behavior = read_behavior(value);
    bool invert = value.bool_or("invert", false);
    auto make = [&](auto pattern) { return std::make_unique<SplitPreTokenizer>(std::move(pattern), behavior, invert); };
    return with_pattern(value, make, make);
  }
  if (type == "Digits") {
    auto behavior = value.bool_or("individual_digits", false) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    return std::make_unique<CharacterPreTokenizer>(is_numeric, behavior);
  }
  if (type == "Punctuation") return std::make_unique<CharacterPreTokenizer>(is_punctuation, read_behavior(value));
  if (type == "WhitespaceSplit")
    return std::make_unique<CharacterPreTokenizer>(is_white_space, SplitBehavior::kRemoved);
  if (type == "Whitespace") {
    constexpr const char* kWords = R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}]+|[^\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\s]+)";
    return std::make_unique<SplitPreTokenizer>(Regex(kWords), SplitBehavior::kRemoved, true);
  }
  if (type == "Metaspace") {
    return std::make_unique<MetaspacePreTokenizer>(value.string_or("replacement", "\u2581"), read_prepend_scheme(value),
                                                   value.bool_or("split", true));
  }
  throw value.error(fmt::format("unknown pre-tokenizer \"{}\"", type));
}

void read_decoder(const JsonView& value, std::vector<std::unique_ptr<DecoderPart>>& parts) {
  auto type = value.type();
  if (parts.size() > kMaxParts) throw value.error(fmt::format("expected at most {} decoders", kMaxParts));
  if (type == "Sequence") {
    parts_of(value, "decoders").each_item([&](const JsonView& part) { read_decoder(part, parts); });
  } else if (type == "ByteLevel") {
    parts.push_back(make_byte_level_decoder());
  } else if (type == "ByteFallback") {
    parts.push_back(make_byte_fallback_decoder());
  } else if (type == "Fuse") {
    parts.push_back(make_fuse_decoder());
  } else if (type == "Metaspace") {
    bool strip_first = read_prepend_scheme(value) != MetaspacePreTokenizer::PrependScheme::kNever;
    parts.push_back(make_metaspace_decoder(value.string_or("replacement", "\u2581"), strip_first));
  } else if (type == "Strip") {
    auto count = [&](const char* key) { return static_cast<size_t>(std::max<int64_t>(0, value.at(key).as_integer())); };
    auto content = value.at("content");
    auto character = content.as_string();
    if (character.empty()) throw content.error("expected one character");
    parts.push_back(make_strip_decoder(character, count("start"), count("stop")));
  } else if (type == "Replace") {
    auto pattern = value.at("pattern").at("String").as_string();
    parts.push_back(make_replace_decoder(pattern, value.at("content").as_string()));
  } else {
    throw value.error(fmt::format("unknown decoder \"{}\"", type));
  }
}

AddedToken read_added_token(const JsonView& value, int64_t id) {
  AddedToken token;
  if (id < 0 || id > kMaxTokenId) throw value.error(fmt::format("the id is {}, expected 0 to {}", id, kMaxTokenId));
  token.id = static_cast<int32_t>(id);
  token.content = value.at("content").as_string();
  token.special = value.bool_or("special", false);
  token.normalized = value.bool_or("normalized", !token.special);
  token.single_word = value.bool_or("single_word", false);
  token.lstrip = value.bool_or("lstrip", false);
  token.rstrip = value.bool_or("rstrip", false);
  return token;
}

void read_tokenizer_json(const JsonView& root, TokenizerPipeline& pipeline) {
  pipeline.model = read_model(root.at("model"));
  if (auto normalizer = root.find("normalizer")) pipeline.normalizer = read_normalizer(*normalizer);
  if (auto pre_tokenizer = root.find("pre_tokenizer")) pipeline.pre_tokenizer = read_pre_tokenizer(*pre_tokenizer);
  if (auto decoder = root.find("decoder"))
    read_decoder(*decoder, pipeline.decoder);
  else
    pipeline.decoder.push_back(make_joining_decoder());
  if (auto post_processor = root.find("post_processor")) read_post_processor(*post_processor, pipeline);
  if (auto added = root.find("added_tokens")) {
    added->each_item(
        [&](const JsonView& token) { pipeline.add_token(read_added_token(token, token.at("id").as_integer())); });
  }
}

}  // namespace vlmtune
