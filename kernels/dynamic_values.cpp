#include "kernels/dynamic_values.h"

#include <cmath>

namespace vlmtune::kernels {
namespace {

torch::Tensor make(bool has_sign) {
  std::vector<torch::Tensor> parts;
  for (int exponent = 0; exponent < 7; ++exponent) {
    const auto bounds = torch::linspace(0.1, 1, (has_sign ? 1 << exponent : 2 << exponent) + 1, torch::kFloat);
    const auto values = (bounds.slice(0, 0, -1) + bounds.slice(0, 1)) / 2.0 * std::pow(10.0, exponent - 6);
    parts.push_back(values);
    if (has_sign) parts.push_back(-values);
  }
  parts.push_back(torch::tensor({0.0f, 1.0f}));
  return std::get<0>(torch::cat(parts).sort());
}

std::vector<int32_t> make_cells(const float* values) {
  std::vector<int32_t> cells;
  for (const int32_t sign : {0, std::numeric_limits<int32_t>::min()})
    for (int32_t cell = 0; cell < cpu::kNumCells; ++cell) {
      const auto code_of = [&](int32_t last_bits) {
        const int32_t bits = sign | ((cell << cpu::kCellBits) + cpu::kFirstCell + last_bits);
        float value;
        std::memcpy(&value, &bits, 4);
        return nearest_of_256(values, value);
      };
      const auto code = code_of(0);
      int32_t last_of_code = 0;
      for (int32_t step = 1 << (cpu::kCellBits - 1); step > 0; step /= 2)
        if (code_of(last_of_code + step) == code) last_of_code += step;
      cells.push_back(code | last_of_code << 8);
    }
  return cells;
}

}  // namespace

const torch::Tensor& dynamic_values(bool has_sign) {
  static const torch::Tensor with_sign = make(true), without = make(false);
  return has_sign ? with_sign : without;
}

cpu::DynamicCodes dynamic_codes(bool has_sign) {
  const auto* values = dynamic_values(has_sign).data_ptr<float>();
  static const auto with_sign = make_cells(dynamic_values(true).data_ptr<float>()),
                    without = make_cells(dynamic_values(false).data_ptr<float>());
  return {values, (has_sign ? with_sign : without).data()};
}

}  // namespace vlmtune::kernels
