// The safetensors format: a JSON header, then raw little-endian tensors. Read by mmap, written one tensor at a time.
// Format: https://github.com/huggingface/safetensors ("Format"); the limits are those of its reference reader.
#pragma once
#include <functional>

#include "lib/checkpoint/tensor_file.h"

namespace vlmtune {

/// Validates the header's size and JSON, every dtype, shape and byte range, and that the ranges cover the file exactly.
/// Errors: input_error that names the file and the tensor.
TensorTable read_safetensors_table(const MappedFile& map);

/// A tensor to write: its name, type and shape now, its values when its turn comes.
struct TensorToWrite {
  std::string name;
  torch::ScalarType dtype;
  std::vector<int64_t> shape;
  std::function<torch::Tensor()> values;
};

/// Writes the tensors in the given order, but wide types before narrow ones so that each is aligned (readers insist on it),
/// holding one at a time. The file appears whole or not at all.
/// Errors: io_error.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

/// The same for tensors at hand.
void write_safetensors(const std::filesystem::path& path, const std::map<std::string, torch::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace vlmtune
