#include "lib/image/source.h"

#include <array>
#include <charconv>
#include <optional>

#include "lib/base/base64.h"
#include "lib/base/errors.h"
#include "lib/base/files.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

std::span<const std::byte> as_bytes(const std::string& data) { return std::as_bytes(std::span(data)); }

bool is_data_uri(const std::string& uri) { return uri.starts_with("data:"); }

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// %20 and the like; a stray % stays.
std::string unescape_percent(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_value(text[i + 2]) : -1;
    if (low < 0) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return out;
}

fs::path file_path(const std::string& uri, const fs::path& base) {
  if (uri.empty()) throw input_error("the picture's path is empty");
  if (uri.find('\0') != std::string::npos) throw input_error("the picture's path holds a zero byte");
  if (uri.starts_with("file://")) {
    std::string_view rest = std::string_view(uri).substr(7);
    if (rest.starts_with("localhost/")) rest.remove_prefix(9);
    if (!rest.starts_with("/")) throw input_error("{}: a file URI names an absolute path (file:///...)", uri);
    return unescape_percent(rest);
  }
  const size_t scheme = uri.find("://");
  if (scheme != std::string::npos && uri.find('/') > scheme)
    throw input_error("{}: pictures are not fetched over the network; download it and give its path", uri);
  return base / uri;
}

constexpr std::string_view kSlice = "slice:";

/// What slice_source has put together: "slice:OFFSET:LENGTH:LENGTH OF NAME:NAME FILE".
struct Slice {
  uint64_t offset = 0, length = 0;
  std::string name;
  fs::path file;

  static std::optional<Slice> parse(const std::string& uri) {
    if (!uri.starts_with(kSlice)) return std::nullopt;
    std::array<uint64_t, 3> numbers{};
    const char *at = uri.data() + kSlice.size(), *end = uri.data() + uri.size();
    for (uint64_t& number : numbers) {
      const auto [next, failure] = std::from_chars(at, end, number);
      if (failure != std::errc() || next == end || *next != ':') return std::nullopt;
      at = next + 1;
    }
    const std::string rest(at, end);
    if (numbers[2] > rest.size()) return std::nullopt;
    return Slice{numbers[0], numbers[1], rest.substr(0, numbers[2]), rest.substr(numbers[2])};
  }

  /// Calls use(bytes) while they are mapped.
  template <typename Use>
  auto with_bytes(const Use& use) const {
    const auto map = MappedFile::open(file);
    if (offset > map->bytes().size() || length > map->bytes().size() - offset)
      throw input_error("{}/{}: the file changed while it was in use", file.string(), name);
    return use(map->bytes().subspan(offset, length));
  }
};

std::string decode_data_uri(const std::string& uri) {
  const std::string name = image_source_name(uri);
  const size_t comma = uri.find(',');
  if (comma == std::string::npos) throw input_error("{}: the data URI has no comma", name);
  const std::string_view head = std::string_view(uri).substr(0, comma);
  const std::string_view body = std::string_view(uri).substr(comma + 1);
  if (!head.ends_with(";base64")) throw input_error("{}: the data URI is not base64", name);
  return decode_base64(body, name);
}

}  // namespace

std::string slice_source(const fs::path& file, uint64_t offset, uint64_t length, std::string_view name) {
  return fmt::format("{}{}:{}:{}:{}{}", kSlice, offset, length, name.size(), name, file.string());
}

std::string image_source_name(const std::string& uri) {
  if (const auto slice = Slice::parse(uri)) return fmt::format("{}/{}", slice->file.string(), slice->name);
  if (!is_data_uri(uri)) return uri;
  const size_t comma = uri.find(',');
  return fmt::format("{},...", uri.substr(0, std::min<size_t>(comma == std::string::npos ? uri.size() : comma, 40)));
}

std::string read_image_source(const std::string& uri, const fs::path& base) {
  if (const auto slice = Slice::parse(uri))
    return slice->with_bytes([](std::span<const std::byte> bytes) {
      return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
  return is_data_uri(uri) ? decode_data_uri(uri) : read_file(file_path(uri, base));
}

ImageSize probe_image_source(const std::string& uri, const fs::path& base) {
  if (const auto slice = Slice::parse(uri))
    return slice->with_bytes([&](auto bytes) { return probe_image(bytes, image_source_name(uri)); });
  if (is_data_uri(uri)) return probe_image(as_bytes(decode_data_uri(uri)), image_source_name(uri));
  const fs::path path = file_path(uri, base);
  return probe_image(MappedFile::open(path)->bytes(), path.string());
}

Image load_image(const std::string& uri, const fs::path& base) {
  const bool is_path = !is_data_uri(uri) && !Slice::parse(uri);
  const std::string name = is_path ? file_path(uri, base).string() : image_source_name(uri);
  return decode_image(as_bytes(read_image_source(uri, base)), name);
}

}  // namespace vlmtune
