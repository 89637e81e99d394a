#include "lib/checkpoint/pickled.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <string_view>

#include "lib/base/errors.h"
#include "lib/base/files.h"
#include "lib/checkpoint/pickle.h"

namespace vlmtune {
namespace {

std::string_view text_of(const MappedFile& map) {
  return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
}

/// Elements from a tensor's first to its last, both included. Errors: input_error.
uint64_t extent(const PickledTensor& tensor, const std::string& place) {
  uint64_t last = 0;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 0) return 0;
    uint64_t reach = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(tensor.shape[i] - 1), static_cast<uint64_t>(tensor.strides[i]),
                               &reach) ||
        __builtin_add_overflow(last, reach, &last))
      throw input_error("{}: its shape overflows", place);
  }
  return last + 1;
}

bool is_row_by_row(const PickledTensor& tensor) {
  int64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

}  // namespace

bool is_pickled(const MappedFile& map) {
  const auto text = text_of(map);
  // A zip file, or torch's magic number before 1.6. Fewer of its bytes are the size of a safetensors header as well.
  return text.starts_with("PK\x03\x04") || text.starts_with("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46");
}

TensorTable read_pickled_table(const MappedFile& map) {
  const auto file = map.path().string();
  if (!text_of(map).starts_with("PK"))
    throw input_error("{}: was saved by torch before 1.6, which is not read: save it again, as safetensors", file);
  TensorTable table;
  try {
    caffe2::serialize::PyTorchStreamReader zip(file);
    const auto [pickle, size] = zip.getRecord("data.pkl");
    for (const auto& [name, tensor] : read_tensor_pickle({static_cast<const char*>(pickle.get()), size}, file)) {
      const auto place = fmt::format("{}: tensor \"{}\"", file, name);
      const auto record = "data/" + tensor.storage;
      const size_t element = dtype_size(tensor.dtype), of_storage = zip.getRecordSize(record);
      const uint64_t count = extent(tensor, place), offset = count == 0 ? 0 : static_cast<uint64_t>(tensor.offset);
      if (offset > of_storage / element || count > of_storage / element - offset)
        throw input_error("{}: ends behind its storage of {} bytes", place, of_storage);
      const size_t begin = zip.getRecordOffset(record) + offset * element, end = begin + count * element;
      if (end > map.bytes().size()) throw input_error("{}: ends behind the file: truncated", place);
      table.entries[name] = {tensor.dtype, tensor.shape, begin, end,
                             is_row_by_row(tensor) || count == 0 ? std::vector<int64_t>() : tensor.strides};
    }
  } catch (const c10::Error& error) {
    throw input_error("{}: is not what torch.save writes ({})", file, error.what_without_backtrace());
  }
  return table;
}

void write_torch_file(const std::filesystem::path& path, const std::map<std::string, torch::Tensor>& tensors) {
  c10::Dict<std::string, torch::Tensor> dictionary;
  int stored = 0;
  for (const auto& [name, tensor] : tensors) dictionary.insert(name, tensor.detach().cpu().contiguous());
  std::string pickle, bytes;
  const auto append_to = [](std::string& text) {
    return [&text](const void* data, size_t size) {
      text.append(static_cast<const char*>(data), size);
      return size;
    };
  };
  torch::jit::Pickler pickler(append_to(pickle), nullptr, nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dictionary);
  pickler.stop();
  caffe2::serialize::PyTorchStreamWriter zip(append_to(bytes));
  zip.writeRecord("data.pkl", pickle.data(), pickle.size());
  for (const auto& tensor : pickler.tensorData())
    zip.writeRecord(fmt::format("data/{}", stored++), tensor.data_ptr(), tensor.nbytes());
  zip.writeEndOfFile();
  write_file_atomic(path, bytes);
}

}  // namespace vlmtune
