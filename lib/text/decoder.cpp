#include "lib/text/decoder.h"

#include "lib/text/pre_tokenizer.h"
#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

template <typename Make>
class Part : public DecoderPart {
 public:
  explicit Part(Make make) : make_(std::move(make)) {}
  std::unique_ptr<DecodeStage> start(bool& fused) const override { return make_(fused); }

 private:
  Make make_;
};

template <typename Make>
std::unique_ptr<DecoderPart> part(Make make) {
  return std::make_unique<Part<Make>>(std::move(make));
}

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  size_t at = 0;
  for (size_t found; !pattern.empty() && (found = text.find(pattern, at)) != std::string_view::npos;
       at = found + pattern.size()) {
    out += text.substr(at, found - at);
    out += content;
  }
  out += text.substr(at);
  return out;
}

/// Replaces in each piece; in a fused stream only once all is there, as a match may lie across pieces.
class ReplaceStage : public DecodeStage {
 public:
  ReplaceStage(std::string pattern, std::string content, bool fused)
      : pattern_(std::move(pattern)), content_(std::move(content)), fused_(fused) {}
  void push(std::string_view piece, const Sink& sink) override {
    if (fused_)
      held_ += piece;
    else
      sink(replace_all(piece, pattern_, content_));
  }
  void finish(const Sink& sink) override {
    if (fused_) sink(replace_all(held_, pattern_, content_));
    held_.clear();
  }

 private:
  std::string pattern_, content_, held_;
  bool fused_;
};

class ByteFallbackStage : public DecodeStage {
 public:
  void push(std::string_view piece, const Sink& sink) override {
    int byte = byte_of(piece);
    if (byte >= 0) {
      run_ += static_cast<char>(byte);
      return;
    }
    finish(sink);
    sink(piece);
  }
  void finish(const Sink& sink) override {
    if (run_.empty()) return;
    if (!find_invalid_utf8(run_)) {
      sink(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) sink("\uFFFD");
    }
    run_.clear();
  }

 private:
  static int byte_of(std::string_view piece) {
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
    auto digit = [](char c) {
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'A' && c <= 'F') return c - 'A' + 10;
      return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    int high = digit(piece[3]), low = digit(piece[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }
  std::string run_;
};

class FuseStage : public DecodeStage {
 public:
  void push(std::string_view piece, const Sink& sink) override { sink(piece); }
};

class StripStage : public DecodeStage {
 public:
  StripStage(std::string character, size_t start, size_t stop, bool fused)
      : character_(std::move(character)), start_(start), stop_(stop), fused_(fused) {}

  void push(std::string_view piece, const Sink& sink) override {
    if (!fused_) dropped_ = 0, at_start_ = true;
    while (at_start_ && !piece.empty()) {
      at_start_ = dropped_ < start_ && piece.starts_with(character_);
      if (at_start_) piece.remove_prefix(character_.size()), ++dropped_;
    }
    std::string text = held_ + std::string(piece);
    held_.clear();
    size_t end = text.size(), trailing = 0;
    while (trailing < stop_ && std::string_view(text).substr(0, end).ends_with(character_))
      end -= character_.size(), ++trailing;
    if (fused_) held_ = text.substr(end);
    text.resize(end);
    if (!text.empty() || !fused_) sink(text);
  }
  void finish(const Sink&) override { held_.clear(), dropped_ = 0, at_start_ = true; }

 private:
  std::string character_, held_;
  size_t start_, stop_;
  bool fused_;
  size_t dropped_ = 0;
  bool at_start_ = true;
};

class ByteLevelStage : public DecodeStage {
 public:
  void push(std::string_view piece, const Sink& sink) override {
    size_t before = bytes_.size();
    for (size_t at = 0; at < piece.size();) {
      int byte = byte_level_byte(next_code_point(piece, at));
      if (byte < 0) {  // an added token is written as it is
        bytes_.resize(before);
        bytes_ += piece;
        break;
      }
      bytes_ += static_cast<char>(byte);
    }
    emit(true, sink);
  }
  void finish(const Sink& sink) override { emit(false, sink); }

 private:
  void emit(bool more_follows, const Sink& sink) {
    std::string text;
    bytes_.erase(0, append_utf8_lossy(text, bytes_, more_follows));
    if (!text.empty()) sink(text);
  }
  std::string bytes_;
};

class MetaspaceStage : public DecodeStage {
 public:
  MetaspaceStage(std::string replacement, bool strip_first)
      : replacement_(std::move(replacement)), strip_(strip_first), first_(strip_first) {}
  void push(std::string_view piece, const Sink& sink) override {
    sink(replace_all(piece, replacement_, first_ ? "" : " "));
    first_ = false;
  }
  void finish(const Sink&) override { first_ = strip_; }

 private:
  std::string replacement_;
  bool strip_, first_;
};

class JoiningStage : public DecodeStage {
 public:
  void push(std::string_view piece, const Sink& sink) override {
    if (!first_) sink(" ");
    first_ = false;
    sink(piece);
  }
  void finish(const Sink&) override { first_ = true; }

 private:
  bool first_ = true;
};

}  // namespace

std::unique_ptr<DecoderPart> make_replace_decoder(std::string pattern, std::string content) {
  return part([=](bool& fused) { return std::make_unique<ReplaceStage>(pattern, content, fused); });
}
std::unique_ptr<DecoderPart> make_byte_fallback_decoder() {
  return part([](bool&) { return std::make_unique<ByteFallbackStage>(); });
}
std::unique_ptr<DecoderPart> make_fuse_decoder() {
  return part([](bool& fused) {
    fused = true;
    return std::make_unique<FuseStage>();
  });
}
std::unique_ptr<DecoderPart> make_strip_decoder(std::string character, size_t start, size_t stop) {
  return part([=](bool& fused) { return std::make_unique<StripStage>(character, start, stop, fused); });
}
std::unique_ptr<DecoderPart> make_byte_level_decoder() {
  return part([](bool& fused) {
    fused = true;
    return std::make_unique<ByteLevelStage>();
  });
}
std::unique_ptr<DecoderPart> make_metaspace_decoder(std::string replacement, bool strip_first) {
  return part([=](bool&) { return std::make_unique<MetaspaceStage>(replacement, strip_first); });
}
std::unique_ptr<DecoderPart> make_joining_decoder() {
  return part([](bool& fused) {
    fused = true;
    return std::make_unique<JoiningStage>();
  });
}

DecodeStream::DecodeStream(const std::vector<std::unique_ptr<DecoderPart>>& parts) {
  bool fused = false;
  for (const auto& part : parts) stages_.push_back(part->start(fused));
}

void DecodeStream::feed(size_t stage, std::string_view piece, std::string& out) {
  if (stage == stages_.size()) {
    out += piece;
  } else {
    stages_[stage]->push(piece, [&](std::string_view next) { feed(stage + 1, next, out); });
  }
}

void DecodeStream::push(std::string_view token, std::string& out) { feed(0, token, out); }

void DecodeStream::finish(std::string& out) {
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    stages_[stage]->finish([&](std::string_view piece) { feed(stage + 1, piece, out); });
  }
}

}  // namespace vlmtune
