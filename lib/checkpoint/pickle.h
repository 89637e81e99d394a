// The part of Python's pickle protocol 2 that torch.save needs for a dictionary of tensors. Nothing is ever called: a pickle is
// a program, and one that asks for anything else is refused. Opcodes: CPython's Lib/pickletools.py.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vlmtune {

/// A tensor as the pickle describes it: a view of a storage, which has a file of its own.
struct PickledTensor {
  std::string dtype = {};    ///< as safetensors spells it
  std::string storage = {};  ///< its name in the archive
  int64_t offset = 0;        ///< in elements
  std::vector<int64_t> shape = {}, strides = {};
};

/// The tensors of a dictionary, in its order; dictionaries of the whole state (OrderedDict) and parameters among them. Errors:
/// input_error that names `file` and what was found.
std::vector<std::pair<std::string, PickledTensor>> read_tensor_pickle(std::string_view bytes, const std::string& file);

}  // namespace vlmtune
