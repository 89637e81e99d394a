// Sizes as people write them: kB/MB/GB are powers of 1000, KiB/MiB/GiB powers of 1024.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace vlmtune {

/// "8GB" -> 8'000'000'000, "512MiB" -> 536'870'912, "100" -> 100 bytes; nothing when the text is no size.
std::optional<int64_t> parse_bytes(std::string_view text);

/// 1'830'000'000 -> "1.83 GB".
std::string format_bytes(int64_t bytes);

}  // namespace vlmtune
