// The safetensors format: a JSON header, then raw little-endian tensors. Read by mmap, written one tensor at a time.
// Format: https://github.com/huggingface/safetensors ("Format"); the limits are those of its reference reader.
#pragma once
#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/files.h"

namespace vlmtune {

/// Where one tensor lies in its file.
struct TensorEntry {
  std::string dtype;  ///< as spelt in the header: "F32", "BF16", "F8_E4M3" ...
  std::vector<int64_t> shape;
  size_t begin = 0, end = 0;  ///< byte range in the file
};

/// "F32" -> kFloat; nothing for a name that LibTorch has no type for.
std::optional<torch::ScalarType> dtype_from_safetensors(const std::string& name);
/// kFloat -> "F32". Errors: InternalError for a type that the format lacks.
std::string dtype_to_safetensors(torch::ScalarType type);

/// One file, validated when opened: the header's size and JSON, every dtype, shape and byte range, and that the ranges
/// cover the file exactly. Errors: input_error that names the file and the tensor.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path);
  const std::map<std::string, TensorEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// A CPU tensor that looks straight into the mapped file and keeps it mapped; it must not be written to. Data that is not
  /// aligned to its type is copied.
  torch::Tensor view(const std::string& name) const;
  /// Lets go of the pages of a tensor that was copied out, so that loading does not hold a model twice.
  void drop(const std::string& name) const;
  const std::filesystem::path& path() const { return map_->path(); }

 private:
  std::shared_ptr<const MappedFile> map_;
  std::map<std::string, TensorEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

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
