#include "lib/image/source.h"

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

std::string image_source_name(const std::string& uri) {
  if (!is_data_uri(uri)) return uri;
  const size_t comma = uri.find(',');
  return fmt::format("{},...", uri.substr(0, std::min<size_t>(comma == std::string::npos ? uri.size() : comma, 40)));
}

std::string read_image_source(const std::string& uri, const fs::path& base) {
  return is_data_uri(uri) ? decode_data_uri(uri) : read_file(file_path(uri, base));
}

ImageSize probe_image_source(const std::string& uri, const fs::path& base) {
  if (is_data_uri(uri)) return probe_image(as_bytes(decode_data_uri(uri)), image_source_name(uri));
  const fs::path path = file_path(uri, base);
  return probe_image(MappedFile::open(path)->bytes(), path.string());
}

Image load_image(const std::string& uri, const fs::path& base) {
  const std::string name = is_data_uri(uri) ? image_source_name(uri) : file_path(uri, base).string();
  return decode_image(as_bytes(read_image_source(uri, base)), name);
}

}  // namespace vlmtune
