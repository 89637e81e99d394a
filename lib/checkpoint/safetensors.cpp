#include "lib/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/base/errors.h"

namespace vlmtune {
namespace fs = std::filesystem;
using Json = nlohmann::json;
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference reader's limit

/// Refuses JSON that names a key twice or nests deeper than a header may; both hide tensors or exhaust the stack.
Json parse_header(std::string_view text, const std::string& file) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > 8) throw input_error("{}: the header nests deeper than a safetensors header may", file);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      throw input_error("{}: the header names \"{}\" twice", file, value.get<std::string>());
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& error) {
    throw input_error("{}: the header is not valid JSON ({})", file, error.what());
  }
}

TensorEntry parse_entry(const std::string& file, const std::string& name, const Json& json, size_t data_begin,
                        size_t file_size) {
  const auto fail = [&](const std::string& what) { return input_error("{}: tensor \"{}\": {}", file, name, what); };
  if (!json.is_object()) throw fail("its description is not an object");
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!json.contains(key)) throw fail(fmt::format("\"{}\" is missing", key));
  TensorEntry entry;
  if (!json["dtype"].is_string()) throw fail("its dtype is not a string");
  entry.dtype = json["dtype"].get<std::string>();
  const size_t element = dtype_size(entry.dtype);
  if (element == 0) throw fail(fmt::format("its dtype {} is unknown", entry.dtype));
  const auto& shape = json["shape"];
  const auto& offsets = json["data_offsets"];
  if (!shape.is_array()) throw fail("its shape is not an array");
  uint64_t count = 1;
  for (const auto& size : shape) {
    if (!size.is_number_unsigned()) throw fail("its shape holds something that is not a size");
    const auto n = size.get<uint64_t>();
    if (n > INT64_MAX || __builtin_mul_overflow(count, n, &count)) throw fail("its shape overflows");
    entry.shape.push_back(static_cast<int64_t>(n));
  }
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    throw fail("its data_offsets are not two positions");
  const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, static_cast<uint64_t>(element), &bytes)) throw fail("its shape overflows");
  if (end < begin || end - begin != bytes)
    throw fail(fmt::format("its data_offsets [{}, {}] do not hold the {} bytes of {} with this shape", begin, end,
                           bytes, entry.dtype));
  if (end > file_size - data_begin)
    throw fail(
        fmt::format("its data ends at byte {}, the file at {}: the file is truncated", data_begin + end, file_size));
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  return entry;
}

/// The tensors must follow each other without gap or overlap and end with the file.
void check_cover(const std::string& file, const std::map<std::string, TensorEntry>& entries, size_t data_begin,
                 size_t file_size) {
  std::vector<std::pair<std::pair<size_t, size_t>, const std::string*>> ranges;
  for (const auto& [name, entry] : entries) ranges.push_back({{entry.begin, entry.end}, &name});
  std::sort(ranges.begin(), ranges.end());
  size_t at = data_begin;
  for (const auto& [range, name] : ranges) {
    if (range.first != at)
      throw input_error("{}: tensor \"{}\" begins at byte {}, expected {}: gap or overlap", file, *name, range.first,
                        at);
    at = range.second;
  }
  if (at != file_size)
    throw input_error("{}: the tensors end at byte {}, the file at {}: extra bytes", file, at, file_size);
}

}  // namespace

TensorTable read_safetensors_table(const MappedFile& map) {
  TensorTable result;
  const auto bytes = map.bytes();
  const auto file = map.path().string();
  if (bytes.size() < 8)
    throw input_error("{}: header too small: {} bytes, a safetensors file has at least 8", file, bytes.size());
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const char* text = reinterpret_cast<const char*>(bytes.data());
  if (std::string_view(text, 8) == "version ")
    throw input_error("{}: is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`", file);
  if (header > kMaxHeaderBytes)
    throw input_error("{}: header too large: {} bytes, at most {} are allowed", file, header, kMaxHeaderBytes);
  if (header > bytes.size() - 8)
    throw input_error("{}: the header of {} bytes ends behind the file: truncated", file, header);
  const auto json = parse_header({text + 8, header}, file);
  if (!json.is_object()) throw input_error("{}: the header is not a JSON object", file);
  const size_t data_begin = 8 + header;
  for (const auto& [name, value] : json.items()) {
    if (name != "__metadata__") {
      result.entries.emplace(name, parse_entry(file, name, value, data_begin, bytes.size()));
      continue;
    }
    if (!value.is_object()) throw input_error("{}: __metadata__ is not an object", file);
    for (const auto& [key, text_value] : value.items())
      if (text_value.is_string()) result.metadata[key] = text_value.get<std::string>();
  }
  check_cover(file, result.entries, data_begin, bytes.size());
  return result;
}

void write_safetensors(const fs::path& path, const std::vector<TensorToWrite>& unordered,
                       const std::map<std::string, std::string>& metadata) {
  auto tensors = unordered;
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return torch::elementSize(a.dtype) > torch::elementSize(b.dtype);
  });
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  size_t at = 0;
  for (const auto& tensor : tensors) {
    VLMTUNE_CHECK(!header.contains(tensor.name), "tensor {} is written twice", tensor.name);
    const size_t bytes = static_cast<size_t>(c10::multiply_integers(tensor.shape)) * torch::elementSize(tensor.dtype);
    header[tensor.name] = {
        {"dtype", dtype_to_safetensors(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // data starts on a multiple of 8
  const uint64_t length = text.size();
  AtomicFile file(path);
  file.write(&length, 8);
  file.write(text);
  for (const auto& tensor : tensors) {
    const auto values = tensor.values().to(torch::kCPU, tensor.dtype).contiguous();
    VLMTUNE_CHECK(values.sizes() == c10::IntArrayRef(tensor.shape), "tensor {} changed its shape", tensor.name);
    file.write(values.data_ptr(), values.nbytes());
  }
  file.commit();
}

void write_safetensors(const fs::path& path, const std::map<std::string, torch::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorToWrite> list;
  for (const auto& [name, tensor] : tensors)
    list.push_back({name, tensor.scalar_type(), tensor.sizes().vec(), [tensor = tensor] { return tensor.detach(); }});
  write_safetensors(path, list, metadata);
}

}  // namespace vlmtune
