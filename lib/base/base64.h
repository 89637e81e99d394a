#pragma once
#include <string>
#include <string_view>

namespace vlmtune {

/// Bytes of standard base64 (line breaks allowed, padding optional).
/// Errors: input_error naming the offset of the first byte that is none of the alphabet.
std::string decode_base64(std::string_view text, const std::string& name);

}  // namespace vlmtune
