#include "kernels/quantized.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "kernels/composed.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/quantize.h"
#include "kernels/cpu/quantized_product.h"
#include "kernels/dynamic_values.h"
#include "kernels/linear.h"
#include "kernels/tensors.h"

namespace vlmtune::kernels {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kPartElements = 1 << 20;  // of a weight that exist at a time

/// The scales of the blocks that hold elements [first, last), in fp32.
std::vector<float> scales_of(const Tensor& scales, const Tensor& nested, const Tensor& offset, int64_t block,
                             int64_t first, int64_t last) {
  const int64_t begin = first / block, end = (last + block - 1) / block;
  std::vector<float> result(static_cast<size_t>(end - begin));
  if (!nested.defined()) {
    std::copy_n(scales.data_ptr<float>() + begin, end - begin, result.begin());
    return result;
  }
  const auto* codes = scales.data_ptr<uint8_t>();
  const auto* values = dynamic_values(true).data_ptr<float>();
  const auto* largest = nested.data_ptr<float>();
  const float mean = *offset.data_ptr<float>();
  for (int64_t i = begin; i < end; ++i)
    result[static_cast<size_t>(i - begin)] = values[codes[i]] * largest[i / kScaleBlock] + mean;
  return result;
}

Tensor dequantize_part(const Tensor& codes, const Tensor& scales, const std::optional<Tensor>& nested,
                       const std::optional<Tensor>& offset, int64_t quant_type, int64_t block, int64_t row_size,
                       at::IntArrayRef part, torch::ScalarType type) {
  const int64_t first_row = part[0], rows = part[1], first_column = part[2], columns = part[3];
  auto y = torch::empty({rows, columns}, codes.options().dtype(type));
  if (codes.is_meta()) return y;
  const auto kind = static_cast<QuantType>(quant_type);
  const float* values = kind == QuantType::kNf4 ? cpu::nf4_values() : cpu::int4_values();
  cpu::dispatch_type(y, [&](auto value) {
    using T = decltype(value);
    at::parallel_for(0, rows, std::max<int64_t>(1, 32768 / columns), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t first = (first_row + row) * row_size + first_column;
        const auto own =
            scales_of(scales, nested.value_or(Tensor()), offset.value_or(Tensor()), block, first, first + columns);
        const float* of_blocks = own.data() - first / block;
        T* out = y.data_ptr<T>() + row * columns;
        if (kind == QuantType::kInt8)
          cpu::dequantize_int8<T>(codes.data_ptr<int8_t>(), of_blocks, block, first, columns, out);
        else
          cpu::dequantize_4bit<T>(codes.data_ptr<uint8_t>(), of_blocks, block, values, first, columns, out);
      }
    });
  });
  return y;
}

/// Every scale in fp32.
Tensor whole_scales(const Tensor& scales, const Tensor& nested, const Tensor& offset) {
  if (!nested.defined()) return scales;
  auto whole = torch::empty(scales.sizes(), nested.options());
  if (whole.is_meta()) return whole;
  at::parallel_for(0, scales.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    const auto values = scales_of(scales, nested, offset, 1, begin, end);
    std::copy(values.begin(), values.end(), whole.data_ptr<float>() + begin);
  });
  return whole;
}

bool is_tiled(const Tensor& x) {
  return kernel_device(x) == torch::kCPU && x.scalar_type() == torch::kBFloat16 && !is_composed(x) && x.numel() > 0 &&
         cpu::multiplies_quantized(x.numel() / x.size(-1), x.size(-1));
}

/// x weightᵀ + bias, or x weight if `transposed`, a tile of the weight at a time.
Tensor tiled_product(const Tensor& any_x, const Tensor& codes, const Tensor& scales,
                     const std::optional<Tensor>& nested, const std::optional<Tensor>& offset, int64_t quant_type,
                     int64_t block, int64_t out, int64_t in, bool transposed, const std::optional<Tensor>& bias) {
  const auto x = any_x.contiguous();
  auto shape = x.sizes().vec();
  shape.back() = transposed ? in : out;
  auto y = torch::empty(shape, x.options());
  const auto whole = whole_scales(scales, nested.value_or(Tensor()), offset.value_or(Tensor()));
  const int64_t rows = x.numel() / x.size(-1);
  const auto scratch =
      torch::empty({at::get_num_threads(), cpu::quantized_product_scratch(rows)}, x.options().dtype(torch::kByte));
  if (x.is_meta()) return y;
  const cpu::QuantizedMatrix weight{static_cast<QuantType>(quant_type), out, in, block, codes.const_data_ptr(),
                                    whole.const_data_ptr<float>()};
  const auto* added = bias ? bias->const_data_ptr<c10::BFloat16>() : nullptr;
  const int64_t stripes = (shape.back() + cpu::kProductColumns - 1) / cpu::kProductColumns;
  at::parallel_for(0, stripes, 1, [&](int64_t begin, int64_t end) {
    auto* own = reinterpret_cast<std::byte*>(scratch[at::get_thread_num()].data_ptr<uint8_t>());
    for (int64_t stripe = begin; stripe < end; ++stripe)
      cpu::quantized_product(x.const_data_ptr<c10::BFloat16>(), rows, weight, transposed, added,
                             stripe * cpu::kProductColumns, y.data_ptr<c10::BFloat16>(), own);
  });
  return y;
}

Tensor call_tiled_product(const Tensor& x, const QuantizedWeight& weight, bool transposed, const Tensor& bias) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("vlmtune::quantized_product", "").typed<decltype(tiled_product)>();
  return op.call(x, weight.codes, weight.scales, optional_tensor(weight.nested_scales), optional_tensor(weight.offset),
                 static_cast<int64_t>(weight.type), weight.block, weight.out, weight.in, transposed,
                 optional_tensor(bias));
}

/// Fills in 8-bit codes of the scales.
void quantize_scales(const Tensor& scales, QuantizedWeight& weight) {
  weight.offset = scales.mean();
  const auto centred = scales - weight.offset;
  if (centred.is_meta()) return;
  cpu::quantize_dynamic(centred.data_ptr<float>(), weight.blocks(), kScaleBlock, dynamic_codes(true).cells,
                        weight.scales.data_ptr<uint8_t>(), weight.nested_scales.data_ptr<float>(), 0,
                        weight.nested_scales.numel());
}

/// Elements of a side whose parts hold about kPartElements, in whole blocks; bitsandbytes takes the whole.
int64_t part_length(const Tensor& x, int64_t side, int64_t other_side) {
  if (is_composed(x)) return side;
  return std::max<int64_t>(kQuantBlock, kPartElements / other_side / kQuantBlock * kQuantBlock);
}

/// [..., size] put together from parts along the last dimension, which `part(first, length)` makes.
template <typename F>
Tensor in_parts(const Tensor& x, int64_t size, int64_t length, F part) {
  if (length >= size) return part(0, size);
  auto shape = x.sizes().vec();
  shape.back() = size;
  auto y = torch::empty(shape, x.options());
  for (int64_t first = 0; first < size; first += length) {
    const int64_t count = std::min(length, size - first);
    y.narrow(-1, first, count).copy_(part(first, count));
  }
  return y;
}

struct QuantizedLinearFunction : torch::autograd::Function<QuantizedLinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const QuantizedPtr& weight,
                        const std::optional<Tensor>& bias) {
    context->saved_data["weight"] = capsule_of(weight);
    return quantized_product(x, *weight, bias.value_or(Tensor()));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {quantized_input_gradient(gradients[0], *quantized_in(context->saved_data["weight"])), Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(vlmtune, library) {
  library.def(
      "dequantize(Tensor codes, Tensor scales, Tensor? nested, Tensor? offset, int quant_type, int block, int "
      "row_size, "
      "int[] part, ScalarType type) -> Tensor");
  library.def(
      "quantized_product(Tensor x, Tensor codes, Tensor scales, Tensor? nested, Tensor? offset, int quant_type, int "
      "block, int out, int row_size, bool transposed, Tensor? bias) -> Tensor");
}
TORCH_LIBRARY_IMPL(vlmtune, CPU, library) {
  library.impl("dequantize", dequantize_part);
  library.impl("quantized_product", tiled_product);
}
TORCH_LIBRARY_IMPL(vlmtune, Meta, library) {
  library.impl("dequantize", dequantize_part);
  library.impl("quantized_product", tiled_product);
}

QuantizedPtr empty_quantized(int64_t out, int64_t in, QuantType type, bool double_quant, int64_t block,
                             torch::Device device) {
  auto result = c10::make_intrusive<QuantizedWeight>();
  result->type = type;
  result->out = out;
  result->in = in;
  result->block = block;
  const int64_t count = result->numel();
  const torch::TensorOptions options(device);
  result->codes = type == QuantType::kInt8 ? torch::empty({count}, options.dtype(torch::kChar))
                                           : torch::empty({(count + 1) / 2}, options.dtype(torch::kByte));
  result->scales = torch::empty({result->blocks()}, options.dtype(double_quant ? torch::kByte : torch::kFloat));
  if (!double_quant) return result;
  result->nested_scales =
      torch::empty({(result->blocks() + kScaleBlock - 1) / kScaleBlock}, options.dtype(torch::kFloat));
  result->offset = torch::empty({}, options.dtype(torch::kFloat));
  return result;
}

QuantizedPtr quantize(const Tensor& weight, QuantType type, bool double_quant) {
  const auto result = empty_quantized(weight.size(0), weight.size(1), type, double_quant, kQuantBlock, weight.device());
  const auto largest =
      double_quant ? torch::empty({result->blocks()}, weight.options().dtype(torch::kFloat)) : result->scales;
  if (!weight.is_meta()) {
    const int64_t count = weight.numel();
    const auto x = (weight.scalar_type() == torch::kDouble ? weight.to(torch::kFloat) : weight).contiguous();
    cpu::dispatch_type(x, [&](auto value) {
      using T = decltype(value);
      const T* data = x.data_ptr<T>();
      auto* scales = largest.data_ptr<float>();
      at::parallel_for(0, result->blocks(), 512, [&](int64_t begin, int64_t end) {
        if (type == QuantType::kInt8)
          cpu::quantize_int8<T>(data, count, result->codes.data_ptr<int8_t>(), scales, begin, end);
        else if (type == QuantType::kNf4)
          cpu::quantize_nf4<T>(data, count, result->codes.data_ptr<uint8_t>(), scales, begin, end);
        else
          cpu::quantize_int4<T>(data, count, result->codes.data_ptr<uint8_t>(), scales, begin, end);
      });
    });
  }
  if (double_quant) quantize_scales(largest, *result);
  return result;
}

Tensor values_of_codes(QuantType type) {
  const float* values = type == QuantType::kNf4 ? cpu::nf4_values() : cpu::int4_values();
  return torch::from_blob(const_cast<float*>(values), {16}).clone();
}

Tensor dequantize(const QuantizedWeight& weight, const WeightPart& part, torch::ScalarType type) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("vlmtune::dequantize", "").typed<decltype(dequantize_part)>();
  return op.call(weight.codes, weight.scales, optional_tensor(weight.nested_scales), optional_tensor(weight.offset),
                 static_cast<int64_t>(weight.type), weight.block, weight.in,
                 {part.first_row, part.rows, part.first_column, part.columns}, type);
}

Tensor dequantize(const QuantizedWeight& weight, torch::ScalarType type) {
  return dequantize(weight, {0, weight.out, 0, weight.in}, type);
}

Tensor quantized_product(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias) {
  if (is_tiled(x)) return call_tiled_product(x, weight, false, bias);
  return in_parts(x, weight.out, part_length(x, weight.out, weight.in), [&](int64_t first, int64_t count) {
    const auto rows = dequantize(weight, {first, count, 0, weight.in}, x.scalar_type());
    return linear_product(x, rows, bias.defined() ? bias.narrow(0, first, count) : bias);
  });
}

Tensor quantized_input_gradient(const Tensor& dy, const QuantizedWeight& weight) {
  if (is_tiled(dy)) return call_tiled_product(dy, weight, true, {});
  return in_parts(dy, weight.in, part_length(dy, weight.in, weight.out), [&](int64_t first, int64_t count) {
    return linear_product(dy, dequantize(weight, {0, weight.out, first, count}, dy.scalar_type()).t());
  });
}

c10::IValue capsule_of(const QuantizedPtr& weight) {
  return weight ? c10::IValue::make_capsule(weight) : c10::IValue();
}

QuantizedPtr quantized_in(const c10::IValue& saved) {
  return saved.isNone() ? QuantizedPtr() : c10::static_intrusive_pointer_cast<QuantizedWeight>(saved.toCapsule());
}

Tensor quantized_linear(const Tensor& x, const QuantizedPtr& weight, const Tensor& bias) {
  return QuantizedLinearFunction::apply(x, weight, optional_tensor(bias));
}

}  // namespace vlmtune::kernels
