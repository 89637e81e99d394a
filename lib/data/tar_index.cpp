// The format: POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar's manual, "Basic Tar Format".
#include "lib/data/tar_index.h"

#include <algorithm>
#include <array>
#include <limits>

#include "lib/base/errors.h"
#include "lib/image/source.h"

namespace vlmtune {
namespace fs = std::filesystem;
namespace {

using Header = std::array<char, TarIndex::kBlock>;

std::string_view field(std::string_view header, size_t at, size_t length) {
  const auto text = header.substr(at, length);
  return text.substr(0, text.find('\0'));
}

/// An octal number, or GNU's big-endian one behind a byte of 0x80; nothing when it is neither.
std::optional<uint64_t> number(std::string_view digits) {
  uint64_t value = 0;
  if (static_cast<unsigned char>(digits[0]) == 0x80) {
    for (const char c : digits.substr(digits.size() - 8)) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }
  digits = digits.substr(0, digits.find('\0'));
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  for (const char c : digits) {
    if (c < '0' || c > '7') return std::nullopt;
    value = value << 3 | static_cast<uint64_t>(c - '0');
  }
  return value;
}

/// The sum of a header's bytes, its own field taken as blanks.
bool has_right_checksum(std::string_view header) {
  constexpr size_t kSum = 148, kSumLength = 8;
  uint64_t sum = 0;
  for (size_t i = 0; i < header.size(); ++i)
    sum += i >= kSum && i < kSum + kSumLength ? ' ' : static_cast<unsigned char>(header[i]);
  return number(header.substr(kSum, kSumLength)) == sum;
}

/// The path among pax records: "LENGTH path=NAME\n".
std::optional<std::string> pax_path(std::string_view records) {
  std::optional<std::string> path;
  while (!records.empty()) {
    const size_t blank = records.find(' '), line = std::min(records.find('\n'), records.size() - 1) + 1;
    const auto length = std::min<size_t>(
        blank == std::string_view::npos ? line
                                        : static_cast<size_t>(std::atol(std::string(records.substr(0, blank)).c_str())),
        records.size());
    if (length == 0 || blank >= length) break;
    const auto record = records.substr(blank + 1, length - blank - 2);
    if (record.starts_with("path=")) path = record.substr(5);
    records.remove_prefix(length);
  }
  return path;
}

/// Up to the first dot of the last part of the path.
std::string_view key_of(std::string_view name) {
  const size_t slash = name.rfind('/'), base = slash == std::string_view::npos ? 0 : slash + 1;
  return name.substr(0, name.find('.', base));
}

/// Behind the last dot, in lower case; none for a hidden file, which is no part of a sample.
std::string extension_of(std::string_view name) {
  const auto key = key_of(name);
  if (key.empty() || key.ends_with('/')) return {};
  std::string extension(name.substr(key.size()));
  extension.erase(0, extension.rfind('.') + 1);
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

bool is_picture(const std::string& extension) {
  static constexpr std::string_view kPictures[] = {"jpg", "jpeg", "png", "webp", "bmp", "gif", "ppm"};
  return std::find(std::begin(kPictures), std::end(kPictures), extension) != std::end(kPictures);
}

bool is_text(const std::string& extension) { return extension == "json" || extension == "txt"; }

}  // namespace

bool TarIndex::is_tar(std::string_view head) {
  return head.size() == kBlock && head[0] != '\0' && has_right_checksum(head);
}

TarIndex::TarIndex(fs::path path) : path_(std::move(path)), file_(path_) {
  uint64_t at = 0;
  std::string key;
  while (const auto member = next_member(at)) {
    const auto extension = extension_of(member->name);
    at = member->end;
    if (!is_picture(extension) && !is_text(extension)) continue;
    if (samples_.empty() || key != key_of(member->name)) {
      key = key_of(member->name);
      samples_.push_back({member->begin, 0, false});
    }
    auto& sample = samples_.back();
    sample.has_image |= is_picture(extension);
    if (is_text(extension))
      sample.text_bytes += static_cast<uint32_t>(std::min<uint64_t>(member->size, std::numeric_limits<int32_t>::max()));
  }
  samples_.shrink_to_fit();
  if (samples_.empty()) throw input_error("{}: the shard holds no pictures, JSON or texts", path_.string());
}

std::optional<TarIndex::Member> TarIndex::next_member(uint64_t at) const {
  constexpr uint64_t kLongestName = 1 << 20;
  Member member;
  member.begin = at;
  std::string name;  // from an extension of the header behind it
  for (;;) {
    Header header;
    const size_t got = file_.read(at, header.data(), header.size());
    const std::string_view bytes(header.data(), got);
    if (got == 0 || (got == kBlock && std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == '\0'; })))
      return std::nullopt;
    const auto size = got == kBlock && has_right_checksum(bytes) ? number(bytes.substr(124, 12)) : std::nullopt;
    if (!size)
      throw input_error("{}: byte {} is no header of a tar member; is the file damaged or cut short?", path_.string(),
                        at);
    member.offset = at + kBlock;
    member.size = *size;
    member.end = member.offset + (*size + kBlock - 1) / kBlock * kBlock;
    const auto prefix = bytes.substr(257).starts_with(std::string_view("ustar\0", 6)) ? field(bytes, 345, 155) : "";
    member.name = !name.empty()    ? name
                  : prefix.empty() ? std::string(field(bytes, 0, 100))
                                   : fmt::format("{}/{}", prefix, field(bytes, 0, 100));
    if (const uint64_t there = file_.size() - member.offset; *size > there)
      throw input_error("{}/{}: the member is cut short: {} of its {} bytes are there", path_.string(), member.name,
                        there, *size);
    const char type = bytes[156];
    at = member.end;
    if (type == '0' || type == '\0' || type == '7') return member;
    if (type != 'x' && type != 'L') {  // a folder, a link, settings of the archive
      member.begin = at;
      name.clear();
      continue;
    }
    if (*size > kLongestName) throw input_error("{}: byte {}: a name of {} bytes", path_.string(), at, *size);
    const auto text = content(member);
    name = type == 'L' ? text.substr(0, text.find('\0')) : pax_path(text).value_or(name);
  }
}

std::string TarIndex::content(const Member& member) const {
  std::string text(member.size, '\0');
  if (file_.read(member.offset, text.data(), text.size()) != text.size())
    throw input_error("{}/{}: the file changed while it was in use", path_.string(), member.name);
  return text;
}

void TarIndex::each_member(uint64_t at, const std::function<void(const Member&)>& visit) const {
  std::string key;
  while (const auto member = next_member(at)) {
    const auto extension = extension_of(member->name);
    at = member->end;
    if (!is_picture(extension) && !is_text(extension)) continue;
    if (key.empty()) key = key_of(member->name);
    if (key != key_of(member->name)) return;
    visit(*member);
  }
}

RowText TarIndex::read(int64_t i) const {
  RowText row;
  row.json = "{}";
  each_member(sample(i).offset, [&](const Member& member) {
    const auto extension = extension_of(member.name);
    if (is_picture(extension)) {
      row.pictures.push_back({member.name, slice_source(path_, member.offset, member.size, member.name)});
    } else if (extension == "txt") {
      row.caption = content(member);
    } else {
      row.json = content(member);
      row.offset = member.offset;
    }
  });
  return row;
}

std::string TarIndex::place(int64_t i) const {
  const auto member = next_member(sample(i).offset);
  return fmt::format("{}/{}", path_.string(), member ? key_of(member->name) : "");
}

}  // namespace vlmtune
