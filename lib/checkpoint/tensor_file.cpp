#include "lib/checkpoint/tensor_file.h"

#include <cstring>

#include "lib/base/errors.h"
#include "lib/checkpoint/pickled.h"
#include "lib/checkpoint/safetensors.h"

namespace vlmtune {
namespace {

struct DtypeName {
  const char* name;
  size_t bytes;
  std::optional<torch::ScalarType> type;
};
const DtypeName kDtypes[] = {
    {"F32", 4, torch::kFloat},
    {"F16", 2, torch::kHalf},
    {"BF16", 2, torch::kBFloat16},
    {"F64", 8, torch::kDouble},
    {"I64", 8, torch::kLong},
    {"I32", 4, torch::kInt},
    {"I16", 2, torch::kShort},
    {"I8", 1, torch::kChar},
    {"U8", 1, torch::kByte},
    {"BOOL", 1, torch::kBool},
    {"U64", 8, torch::kUInt64},
    {"U32", 4, torch::kUInt32},
    {"U16", 2, torch::kUInt16},
    {"F8_E4M3", 1, torch::kFloat8_e4m3fn},
    {"F8_E5M2", 1, torch::kFloat8_e5m2},
    {"F8_E8M0", 1, torch::kFloat8_e8m0fnu},
    {"C64", 8, torch::kComplexFloat},
};

const DtypeName* find_dtype(const std::string& name) {
  for (const auto& dtype : kDtypes)
    if (name == dtype.name) return &dtype;
  return nullptr;
}

}  // namespace

std::optional<torch::ScalarType> dtype_from_safetensors(const std::string& name) {
  const auto* dtype = find_dtype(name);
  return dtype == nullptr ? std::nullopt : dtype->type;
}

std::string dtype_to_safetensors(torch::ScalarType type) {
  for (const auto& dtype : kDtypes)
    if (dtype.type == type) return dtype.name;
  throw InternalError(fmt::format("no safetensors name for {}", torch::toString(type)));
}

size_t dtype_size(const std::string& name) {
  const auto* dtype = find_dtype(name);
  return dtype == nullptr ? 0 : dtype->bytes;
}

TensorFile TensorFile::open(const std::filesystem::path& path) {
  TensorFile file;
  file.map_ = MappedFile::open(path);
  file.table_ = is_pickled(*file.map_) ? read_pickled_table(*file.map_) : read_safetensors_table(*file.map_);
  return file;
}

torch::Tensor TensorFile::view(const std::string& name) const {
  const auto& entry = table_.entries.at(name);
  const auto type = dtype_from_safetensors(entry.dtype);
  VLMTUNE_CHECK(type.has_value(), "dtype {} was accepted without a type", entry.dtype);
  auto* data = const_cast<std::byte*>(map_->bytes().data()) + entry.begin;
  if (!entry.strides.empty())
    return torch::from_blob(
        data, entry.shape, entry.strides, [map = map_](void*) {}, torch::TensorOptions(*type));
  if (entry.begin != entry.end &&
      entry.begin % torch::elementSize(*type) != 0) {  // old writers did not pad their headers
    auto aligned = torch::empty(entry.shape, torch::TensorOptions(*type));
    std::memcpy(aligned.data_ptr(), data, entry.end - entry.begin);
    return aligned;
  }
  return torch::from_blob(
      data, entry.shape, [map = map_](void*) {}, torch::TensorOptions(*type));
}

void TensorFile::drop(const std::string& name) const {
  const auto& entry = table_.entries.at(name);
  map_->drop(entry.begin, entry.end - entry.begin);
}

}  // namespace vlmtune
