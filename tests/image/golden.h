// The goldens of the image room (tests/golden/image).
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "lib/base/files.h"
#include "lib/image/image.h"

namespace vlmtune::test {

inline const std::filesystem::path kImageGoldens = std::filesystem::path(VLMTUNE_TEST_DATA) / "golden/image";

inline nlohmann::json read_json(const std::filesystem::path& path) { return nlohmann::json::parse(read_file(path)); }

inline Image decode_file(const std::filesystem::path& path) {
  const std::string data = read_file(path);
  return decode_image(std::as_bytes(std::span(data)), path.filename().string());
}

}  // namespace vlmtune::test
