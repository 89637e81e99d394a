// Any bytes are either a safetensors file whose tensors can be read, or an input error.
#include <fstream>

#include "lib/base/errors.h"
#include "lib/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto path =
      std::filesystem::temp_directory_path() / fmt::format("vlmtune_fuzz_{}.safetensors", getpid());
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    const auto file = vlmtune::TensorFile::open(path);
    for (const auto& [name, entry] : file.entries()) {
      const auto tensor = file.view(name);
      if (tensor.numel() > 0 && tensor.is_floating_point()) tensor.flatten()[tensor.numel() - 1].item<double>();
    }
  } catch (const vlmtune::UserError&) {
  }
  return 0;
}
