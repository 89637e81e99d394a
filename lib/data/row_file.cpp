#include "lib/data/row_file.h"

#include <algorithm>

#include "lib/base/errors.h"
#include "lib/base/random_access_file.h"
#include "lib/data/row_index.h"
#include "lib/data/tar_index.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 9 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// "000..012" as its numbers, as wide as they are written; nothing for another text.
std::vector<std::string> number_range(const std::string& text) {
  const size_t dots = text.find("..");
  if (dots == std::string::npos) return {};
  const std::string first = text.substr(0, dots), last = text.substr(dots + 2);
  if (!is_number(first) || !is_number(last) || std::stol(last) < std::stol(first)) return {};
  std::vector<std::string> numbers;
  for (long n = std::stol(first); n <= std::stol(last); ++n) numbers.push_back(fmt::format("{:0{}}", n, first.size()));
  return numbers;
}

std::vector<std::string> alternatives(const std::string& text) {
  if (auto numbers = number_range(text); !numbers.empty()) return numbers;
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

}  // namespace

std::unique_ptr<RowFile> open_row_file(const fs::path& path) {
  const RandomAccessFile file(path);
  std::string head(TarIndex::kBlock, '\0');
  head.resize(file.read(0, head.data(), head.size()));
  if (head.starts_with("\x1f\x8b") || head.starts_with("\x28\xb5\x2f\xfd"))
    throw input_error("{}: is compressed; rows are read at any place of a file, so unpack it first", path.string());
  if (TarIndex::is_tar(head)) return std::make_unique<TarIndex>(path);
  return std::make_unique<RowIndex>(path);
}

std::vector<fs::path> expand_braces(const std::string& pattern) {
  const size_t open = pattern.find('{');
  if (std::error_code ignored; open == std::string::npos || fs::exists(pattern, ignored)) return {pattern};
  const size_t close = pattern.find('}', open);
  if (close == std::string::npos) throw usage_error("{}: the brace is not closed", pattern);
  std::vector<fs::path> names;
  for (const auto& choice : alternatives(pattern.substr(open + 1, close - open - 1)))
    for (auto& name : expand_braces(pattern.substr(0, open) + choice + pattern.substr(close + 1)))
      names.push_back(std::move(name));
  return names;
}

}  // namespace vlmtune
