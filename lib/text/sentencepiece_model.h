// tokenizer.model: a sentencepiece ModelProto, read from its wire format without the protobuf library.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace vlmtune {

struct SentencepieceModel {
  enum class PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  enum class ModelType { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::kNormal;
  };
  std::vector<Piece> pieces;
  ModelType type = ModelType::kUnigram;
  bool byte_fallback = false;
  bool add_dummy_prefix = true;
  std::string charsmap;  ///< normalizer_spec.precompiled_charsmap
  int unk_id = 0, bos_id = 1, eos_id = 2;
  std::string unk_piece = "<unk>", bos_piece = "<s>", eos_piece = "</s>";
};

/// Errors: input_error naming `origin` and the byte offset.
SentencepieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& origin);

}  // namespace vlmtune
