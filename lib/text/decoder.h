// The "decoder" of tokenizer.json as stages that tokens flow through one by one, so that decoding at once and decoding
// as a stream are the same code.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace vlmtune {

/// One stage at work. `fused`: the pieces are parts of one string, not strings of their own.
class DecodeStage {
 public:
  using Sink = std::function<void(std::string_view piece)>;
  virtual ~DecodeStage() = default;
  virtual void push(std::string_view piece, const Sink& sink) = 0;
  virtual void finish(const Sink& sink) { (void)sink; }
};

/// A kind of stage; makes fresh ones.
class DecoderPart {
 public:
  virtual ~DecoderPart() = default;
  /// `fused`: whether the pieces that come in are parts of one string; set to what goes out.
  virtual std::unique_ptr<DecodeStage> start(bool& fused) const = 0;
};

/// Each occurrence of a string becomes another.
std::unique_ptr<DecoderPart> make_replace_decoder(std::string pattern, std::string content);
/// <0x..> tokens become bytes; a run that is not UTF-8 becomes one U+FFFD a byte.
std::unique_ptr<DecoderPart> make_byte_fallback_decoder();
std::unique_ptr<DecoderPart> make_fuse_decoder();
/// Drops up to `start` and `stop` of the character at the ends.
std::unique_ptr<DecoderPart> make_strip_decoder(std::string character, size_t start, size_t stop);
/// GPT-2's printable characters become bytes again; invalid UTF-8 becomes U+FFFD.
std::unique_ptr<DecoderPart> make_byte_level_decoder();
/// U+2581 becomes a space; `strip_first`: dropped in the first token.
std::unique_ptr<DecoderPart> make_metaspace_decoder(std::string replacement, bool strip_first);
/// A tokenizer without a decoder: tokens joined by a space.
std::unique_ptr<DecoderPart> make_joining_decoder();

/// A token stream being decoded. What comes out is whole UTF-8 characters.
class DecodeStream {
 public:
  explicit DecodeStream(const std::vector<std::unique_ptr<DecoderPart>>& parts);
  void push(std::string_view token, std::string& out);
  void finish(std::string& out);

 private:
  void feed(size_t stage, std::string_view piece, std::string& out);
  std::vector<std::unique_ptr<DecodeStage>> stages_;
};

}  // namespace vlmtune
