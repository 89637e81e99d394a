// A file of named tensors, looked at by mmap: safetensors, or what torch.save wrote.
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
  std::string dtype;  ///< as safetensors spells it: "F32", "BF16", "F8_E4M3" ...
  std::vector<int64_t> shape;
  size_t begin = 0, end = 0;          ///< byte range in the file
  std::vector<int64_t> strides = {};  ///< in elements, of a tensor that does not lie in one piece; empty: row by row
};

/// What a file says of itself.
struct TensorTable {
  std::map<std::string, TensorEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// "F32" -> kFloat; nothing for a name that LibTorch has no type for.
std::optional<torch::ScalarType> dtype_from_safetensors(const std::string& name);
/// kFloat -> "F32". Errors: InternalError for a type that the format lacks.
std::string dtype_to_safetensors(torch::ScalarType type);
/// Bytes of an element; 0 for a name that the format does not have.
size_t dtype_size(const std::string& name);

class TensorFile {
 public:
  /// Which of the two formats it is, its content says. Errors: input_error that names the file and the tensor.
  static TensorFile open(const std::filesystem::path& path);
  const std::map<std::string, TensorEntry>& entries() const { return table_.entries; }
  const std::map<std::string, std::string>& metadata() const { return table_.metadata; }
  /// A CPU tensor that looks straight into the mapped file and keeps it mapped; it must not be written to. Data that is not
  /// aligned to its type is copied.
  torch::Tensor view(const std::string& name) const;
  /// Lets go of the pages of a tensor that was copied out, so that loading does not hold a model twice.
  void drop(const std::string& name) const;
  const std::filesystem::path& path() const { return map_->path(); }

 private:
  std::shared_ptr<const MappedFile> map_;
  TensorTable table_;
};

}  // namespace vlmtune
