#include "lib/data/row_index.h"

#include <algorithm>

#include "lib/base/errors.h"
#include "lib/base/files.h"

namespace vlmtune {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

/// The first byte at or after `at` that is no white space; the content's size when there is none.
size_t skip_space(std::string_view content, size_t at) {
  const size_t found = content.find_first_not_of(kSpace, at);
  return found == std::string_view::npos ? content.size() : found;
}

/// The position after the string whose opening quote is at `at`; npos when it never ends.
size_t end_of_string(std::string_view content, size_t at) {
  for (;;) {
    at = content.find('"', at + 1);
    if (at == std::string_view::npos) return at;
    size_t backslashes = 0;
    while (content[at - 1 - backslashes] == '\\') ++backslashes;
    if (backslashes % 2 == 0) return at + 1;
  }
}

/// The position after the JSON value at `at`, by brackets alone; npos when it never ends.
size_t end_of_value(std::string_view content, size_t at) {
  int64_t depth = 0;
  while (at < content.size()) {
    const char c = content[at];
    if (c == '"') {
      at = end_of_string(content, at);
      if (at == std::string_view::npos) return at;
    } else if (c == '{' || c == '[') {
      ++depth;
      ++at;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return at;
      --depth;
      ++at;
    } else if (depth == 0 && c == ',') {
      return at;
    } else {
      ++at;
    }
    if (depth == 0 && (c == '"' || c == '}' || c == ']')) return at;
  }
  return std::string_view::npos;
}

/// Whether a row's JSON has one of these keys, which begin with `stem`, with something in it, or a part of that type.
bool mentions_key(std::string_view row, std::string_view stem, std::initializer_list<std::string_view> keys) {
  for (size_t at = row.find(stem); at != std::string_view::npos; at = row.find(stem, at + 1)) {
    if (at > 0 && row[at - 1] == '\\') continue;  // text that quotes the word
    const size_t close = row.find('"', at + 1);
    if (close == std::string_view::npos) return false;
    const std::string_view key = row.substr(at + 1, close - at - 1);
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) continue;
    size_t value = skip_space(row, close + 1);
    if (value == row.size() || row[value] != ':') return true;  // {"type": "image"}
    value = skip_space(row, value + 1);
    const std::string_view rest = row.substr(value);
    if (rest.starts_with("null") || rest.starts_with("\"\"")) continue;
    if (rest.starts_with("[") && row[std::min(skip_space(row, value + 1), row.size() - 1)] == ']') continue;
    return true;
  }
  return false;
}

/// Whether a row's JSON seems to have a picture: a key or a part of pictures or videos, a Qwen-VL tag.
bool mentions_image(std::string_view row) {
  return mentions_key(row, "\"image", {"image", "images", "image_url"}) ||
         mentions_key(row, "\"video", {"video", "videos"}) || row.find("<img>") != std::string_view::npos;
}

}  // namespace

RowIndex::RowIndex(std::filesystem::path path) : path_(std::move(path)), file_(path_) {
  const auto map = MappedFile::open(path_);
  scan(*map);
  starts_.shrink_to_fit();
}

void RowIndex::scan(const MappedFile& map) {
  const std::string_view content(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
  map_ = &map;
  const size_t start = skip_space(content, content.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  if (start == content.size()) throw input_error("{}: the data file is empty", path_.string());
  if (content[start] == '[') {
    scan_array(content, start + 1);
  } else if (content[start] == '{') {
    lines_ = true;
    scan_lines(content, start);
  } else {
    throw input_error("{}: byte {} is neither '[' of a JSON array nor '{{' of a line of JSON", path_.string(), start);
  }
  map_ = nullptr;
  if (starts_.empty()) throw input_error("{}: holds no rows", path_.string());
}

/// Keeps the resident memory of a scan small whatever the file's size.
void RowIndex::forget_scanned(size_t end) {
  constexpr size_t kChunk = size_t{32} << 20;
  if (end - forgotten_ < kChunk) return;
  map_->drop(forgotten_, end - forgotten_);
  forgotten_ = end;
}

void RowIndex::add(std::string_view content, size_t begin, size_t end) {
  starts_.push_back(begin | (mentions_image(content.substr(begin, end - begin)) ? kImageBit : 0));
  end_ = end;
  forget_scanned(end);
}

void RowIndex::scan_lines(std::string_view content, size_t at) {
  for (size_t i = 0; i < at; ++i)
    if (content[i] == '\n') blanks_before_.push_back(0);
  bool any_whole = false;
  while (at < content.size()) {
    const size_t end = std::min(content.find('\n', at), content.size());
    const size_t begin = skip_space(content.substr(0, end), at);
    if (begin < end) {
      add(content, begin, end);
      any_whole = any_whole || content[content.find_last_not_of(kSpace, end - 1)] == '}';
    } else if (end < content.size()) {
      blanks_before_.push_back(size());
    }
    at = end + 1;
  }
  if (!any_whole)
    throw input_error("{}: no line is a whole JSON object; expected a JSON array of rows or one row a line",
                      path_.string());
}

void RowIndex::scan_array(std::string_view content, size_t at) {
  at = skip_space(content, at);
  bool closed = at < content.size() && content[at] == ']';
  while (!closed) {
    const size_t end = end_of_value(content, at);
    if (end == std::string_view::npos)
      throw input_error("{}#{}: the row that starts at byte {} never ends; is the file cut short?", path_.string(),
                        size(), at);
    if (end == at) throw input_error("{}#{}: byte {} is '{}', expected a row", path_.string(), size(), at, content[at]);
    add(content, at, end);
    at = skip_space(content, end);
    if (at == content.size())
      throw input_error("{}: the JSON array is not closed after its {} rows; is the file cut short?", path_.string(),
                        size());
    closed = content[at] == ']';
    if (!closed && content[at] != ',')
      throw input_error("{}: byte {} after row {} is '{}', expected ',' or ']'", path_.string(), at, size() - 1,
                        content[at]);
    if (!closed) at = skip_space(content, at + 1);
  }
  at = skip_space(content, at + 1);
  if (at < content.size())
    throw input_error("{}: byte {} after the JSON array is '{}', expected the end of the file", path_.string(), at,
                      content[at]);
}

int64_t RowIndex::row_bytes(int64_t i) const {
  return static_cast<int64_t>((i + 1 < size() ? offset(i + 1) : end_) - offset(i));
}

RowText RowIndex::read(int64_t i) const {
  std::string text(static_cast<size_t>(row_bytes(i)), '\0');
  if (file_.read(offset(i), text.data(), text.size()) != text.size())
    throw input_error("{}: the file changed while it was in use", place(i));
  const auto trim = [&] { text.resize(text.find_last_not_of(kSpace) + 1); };
  trim();
  if (!lines_ && i + 1 < size() && text.ends_with(',')) {
    text.pop_back();
    trim();
  }
  return {std::move(text), offset(i), {}, std::nullopt};
}

std::string RowIndex::place(int64_t i) const {
  if (!lines_) return fmt::format("{}#{}", path_.string(), i);
  const auto blanks = std::upper_bound(blanks_before_.begin(), blanks_before_.end(), i) - blanks_before_.begin();
  return fmt::format("{}:{}", path_.string(), i + 1 + blanks);
}

}  // namespace vlmtune
