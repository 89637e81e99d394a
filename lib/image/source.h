// Where pictures come from: a path, file://, a part of another file, or data:image/...;base64. The network is never used.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "lib/image/image.h"

namespace vlmtune {

/// A picture inside another file, such as a member of a tar archive, as a `uri` for the functions below. `name` is for
/// messages.
std::string slice_source(const std::filesystem::path& file, uint64_t offset, uint64_t length, std::string_view name);

/// The encoded bytes behind `uri`; a relative path is taken from `base`.
/// Errors: input_error for http(s) and other schemes, a missing file, or base64 that is none.
std::string read_image_source(const std::string& uri, const std::filesystem::path& base);

/// A short name for messages: the path itself, or the head of a data URI.
std::string image_source_name(const std::string& uri);

/// probe_image of `uri`, touching only the pages of a file that hold its header.
ImageSize probe_image_source(const std::string& uri, const std::filesystem::path& base);

/// decode_image of `uri`.
Image load_image(const std::string& uri, const std::filesystem::path& base);

}  // namespace vlmtune
