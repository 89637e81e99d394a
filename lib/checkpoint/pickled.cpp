#include "lib/checkpoint/pickled.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/import_read.h>
#include <torch/csrc/jit/serialization/storage_context.h>

#include <string_view>

#include "lib/base/errors.h"

namespace vlmtune {
namespace {

std::string_view text_of(const MappedFile& map) {
  return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
}

/// The file's own bytes in place of copies of them.
std::shared_ptr<torch::jit::DeserializationStorageContext> mapped_storages(
    const MappedFile& map, caffe2::serialize::PyTorchStreamReader& zip) {
  constexpr std::string_view kFolder = "data/";
  auto storages = std::make_shared<torch::jit::DeserializationStorageContext>();
  for (const auto& record : zip.getAllRecords()) {
    if (!record.starts_with(kFolder)) continue;
    const size_t begin = zip.getRecordOffset(record), bytes = zip.getRecordSize(record);
    if (begin > map.bytes().size() || bytes > map.bytes().size() - begin)
      throw input_error("{}: record {} ends behind the file: truncated", map.path().string(), record);
    auto* data = const_cast<std::byte*>(map.bytes().data()) + begin;
    storages->addStorage(record.substr(kFolder.size()),
                         c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(data, torch::kCPU)));
  }
  return storages;
}

}  // namespace

bool is_pickled(const MappedFile& map) {
  const auto text = text_of(map);
  return text.starts_with("PK\x03\x04") || text.starts_with("\x80\x02");
}

TensorTable read_pickled_table(const MappedFile& map) {
  const auto file = map.path().string();
  if (!text_of(map).starts_with("PK"))
    throw input_error("{}: was saved by torch before 1.6, which is not read: save it again, as safetensors", file);
  TensorTable table;
  try {
    caffe2::serialize::PyTorchStreamReader zip(file);
    const auto storages = mapped_storages(map, zip);
    const auto value = torch::jit::readArchiveAndTensors("data", "", "data/", std::nullopt, std::nullopt, torch::kCPU,
                                                         zip, torch::jit::Unpickler::defaultTypeParser, storages);
    if (!value.isGenericDict()) throw input_error("{}: holds no dictionary of tensors", file);
    for (const auto& item : value.toGenericDict()) {
      if (!item.key().isString() || !item.value().isTensor())
        throw input_error("{}: holds something that is no named tensor", file);
      const auto name = item.key().toStringRef();
      const auto tensor = item.value().toTensor();
      const auto begin =
          tensor.numel() == 0 ? 0 : static_cast<const std::byte*>(tensor.data_ptr()) - map.bytes().data();
      if (!tensor.is_contiguous() || begin < 0 || static_cast<size_t>(begin) + tensor.nbytes() > map.bytes().size())
        throw input_error("{}: tensor \"{}\" does not lie in one piece: save it again, as safetensors", file, name);
      table.entries[name] = {dtype_to_safetensors(tensor.scalar_type()), tensor.sizes().vec(),
                             static_cast<size_t>(begin), static_cast<size_t>(begin) + tensor.nbytes()};
    }
  } catch (const c10::Error& error) {
    throw input_error("{}: is not what torch.save writes ({})", file, error.what_without_backtrace());
  }
  return table;
}

}  // namespace vlmtune
