// What torch.save writes (pytorch_model.bin, mm_projector.bin, non_lora_trainables.bin): a zip file with a pickled dictionary
// and the tensors' bytes, which are stored as they are. LibTorch reads the zip file.
#pragma once
#include "lib/checkpoint/tensor_file.h"

namespace vlmtune {

/// Whether the file begins as a zip file does, or as a pickle of before torch 1.6.
bool is_pickled(const MappedFile& map);

/// Errors: input_error that names the file and the tensor: no dictionary of tensors, a format of before torch 1.6.
TensorTable read_pickled_table(const MappedFile& map);

/// A dictionary of tensors as torch.save writes it, made in memory: for small files. Errors: io_error.
void write_torch_file(const std::filesystem::path& path, const std::map<std::string, torch::Tensor>& tensors);

}  // namespace vlmtune
