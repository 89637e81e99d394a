#include "lib/text/sentencepiece_model.h"

#include <cstring>

#include "lib/base/errors.h"
#include "lib/text/token_model.h"
#include "lib/text/unicode.h"

namespace vlmtune {
namespace {

/// Fields of one protobuf message, one after the other.
class FieldReader {
 public:
  FieldReader(std::string_view bytes, size_t base, const std::string& origin)
      : bytes_(bytes), base_(base), origin_(origin) {}

  /// Moves to the next field; false at the end.
  bool next() {
    if (at_ == bytes_.size()) return false;
    auto tag = varint();
    field_ = tag >> 3;
    wire_ = static_cast<int>(tag & 7);
    switch (wire_) {
      case 0:
        number_ = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        take(varint());
        break;
      case 5:
        take(4);
        break;
      default:
        fail(fmt::format("wire type {}", wire_));
    }
    return true;
  }

  uint64_t field() const { return field_; }
  uint64_t number() const { return expect(0), number_; }
  std::string_view bytes() const { return expect(2), payload_; }
  std::string text() const {
    expect(2);
    if (find_invalid_utf8(payload_)) fail("a string that is not UTF-8");
    return std::string(payload_);
  }
  float real() const {
    expect(5);
    float value;
    std::memcpy(&value, payload_.data(), 4);
    return value;
  }
  FieldReader message() const {
    return FieldReader(bytes(), base_ + static_cast<size_t>(payload_.data() - bytes_.data()), origin_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw input_error("{}: not a sentencepiece model: {} at byte {}", origin_, what, base_ + at_);
  }
  void expect(int wire) const {
    if (wire_ != wire) fail(fmt::format("field {} has wire type {}, expected {}", field_, wire_, wire));
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) fail("it ends inside a number");
      auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail("a number of more than 64 bits");
  }
  void take(uint64_t length) {
    if (length > bytes_.size() - at_) fail(fmt::format("a field of {} bytes reaches behind the end", length));
    payload_ = bytes_.substr(at_, length);
    at_ += length;
  }

  std::string_view bytes_, payload_;
  size_t base_, at_ = 0;
  const std::string& origin_;
  uint64_t field_ = 0, number_ = 0;
  int wire_ = 0;
};

SentencepieceModel::Piece read_piece(FieldReader fields) {
  SentencepieceModel::Piece piece;
  while (fields.next()) {
    if (fields.field() == 1) piece.text = fields.text();
    if (fields.field() == 2) piece.score = fields.real();
    if (fields.field() == 3) piece.type = static_cast<SentencepieceModel::PieceType>(fields.number());
  }
  return piece;
}

// Numbers from sentencepiece_model.proto.
void read_trainer_spec(FieldReader fields, SentencepieceModel& model) {
  while (fields.next()) {
    switch (fields.field()) {
      case 3:
        model.type = static_cast<SentencepieceModel::ModelType>(fields.number());
        break;
      case 35:
        model.byte_fallback = fields.number() != 0;
        break;
      case 40:
        model.unk_id = static_cast<int>(fields.number());
        break;
      case 41:
        model.bos_id = static_cast<int>(fields.number());
        break;
      case 42:
        model.eos_id = static_cast<int>(fields.number());
        break;
      case 45:
        model.unk_piece = fields.text();
        break;
      case 46:
        model.bos_piece = fields.text();
        break;
      case 47:
        model.eos_piece = fields.text();
        break;
    }
  }
}

void read_normalizer_spec(FieldReader fields, SentencepieceModel& model) {
  while (fields.next()) {
    if (fields.field() == 2) model.charsmap = fields.bytes();
    if (fields.field() == 3) model.add_dummy_prefix = fields.number() != 0;
  }
}

}  // namespace

SentencepieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& origin) {
  SentencepieceModel model;
  FieldReader fields(bytes, 0, origin);
  while (fields.next()) {
    if (fields.field() == 1) model.pieces.push_back(read_piece(fields.message()));
    if (fields.field() == 2) read_trainer_spec(fields.message(), model);
    if (fields.field() == 3) read_normalizer_spec(fields.message(), model);
    if (static_cast<int64_t>(model.pieces.size()) > kMaxTokenId)
      throw input_error("{}: more than {} pieces", origin, kMaxTokenId);
  }
  if (model.pieces.empty()) throw input_error("{}: not a sentencepiece model: it has no pieces", origin);
  return model;
}

}  // namespace vlmtune
