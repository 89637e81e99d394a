// The device that the meta device stands for, and Meta kernels of LibTorch operators that have none in C++ (Python registers its own): they allocate what the traced
// device's kernel allocates, work space too, and compute nothing.
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "kernels/device.h"
#include "kernels/tensors.h"

namespace vlmtune::kernels {
namespace {

using c10::SymInt;
using torch::Tensor;

torch::DeviceType g_traced = torch::kCPU;

bool traces_cpu() { return g_traced == torch::kCPU; }

Tensor empty(const Tensor& like, torch::IntArrayRef shape, torch::ScalarType type) {
  return torch::empty(shape, like.options().dtype(type));
}

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

Tensor where_self(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const auto shape = at::infer_size(at::infer_size(condition.sizes(), a.sizes()), b.sizes());
  return empty(condition, shape, at::result_type(a, b));
}

Tensor& abs_out(const Tensor& x, Tensor& y) {
  if (y.sizes() != x.sizes()) y.resize_(x.sizes());
  return y;
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  auto shape = x.sizes().vec();
  shape.at(static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))) = index.numel();
  return torch::empty(shape, x.options());
}

Tensor flip(const Tensor& x, torch::IntArrayRef) { return torch::empty(x.sizes(), x.options()); }

/// No value: a number that stops nothing, finite and not zero.
at::Scalar local_scalar_dense(const Tensor&) { return 1.0; }

Tensor embedding_dense_backward(const Tensor& gradient, const Tensor&, SymInt num_weights, SymInt, bool) {
  return torch::empty({num_weights.expect_int(), gradient.size(-1)}, gradient.options());
}

/// aten/src/ATen/native/layer_norm.cpp: on the CPU the statistics have the input's type when the weight has it too.
std::tuple<Tensor, Tensor, Tensor> native_layer_norm(const Tensor& x, at::SymIntArrayRef normalized,
                                                     const std::optional<Tensor>& weight, const std::optional<Tensor>&,
                                                     double) {
  auto shape = x.sizes().vec();
  for (size_t i = 0; i < normalized.size(); ++i) shape[shape.size() - 1 - i] = 1;
  const bool own = traces_cpu() && weight && weight->defined() && weight->scalar_type() == x.scalar_type();
  const auto type = own || x.scalar_type() == torch::kDouble ? x.scalar_type() : torch::kFloat;
  return {torch::empty(x.sizes(), x.options()), empty(x, shape, type), empty(x, shape, type)};
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm_backward(const Tensor&, const Tensor& x,
                                                              at::SymIntArrayRef normalized, const Tensor&,
                                                              const Tensor&, const std::optional<Tensor>& weight,
                                                              const std::optional<Tensor>& bias,
                                                              std::array<bool, 3> wanted) {
  std::tuple<Tensor, Tensor, Tensor> result{wanted[0] ? torch::empty(x.sizes(), x.options()) : Tensor(),
                                            wanted[1] ? torch::empty_like(*weight) : Tensor(),
                                            wanted[2] ? torch::empty_like(*bias) : Tensor()};
  if (traces_cpu() && (wanted[1] || wanted[2])) {
    int64_t size = 1;
    for (const auto& n : normalized) size *= n.expect_int();
    empty(x, {2, at::get_num_threads(), size}, x.scalar_type());
  }
  return result;
}

std::tuple<Tensor, Tensor> native_dropout(const Tensor& x, double, std::optional<bool>) {
  return {torch::empty(x.sizes(), x.options()), empty(x, x.sizes(), torch::kBool)};
}

Tensor native_dropout_backward(const Tensor& gradient, const Tensor&, double) {
  return torch::empty(gradient.sizes(), gradient.options());
}

void fused_adamw(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList, double,
                 double, double, double, double, bool, bool, const std::optional<Tensor>&,
                 const std::optional<Tensor>&) {}

using Flash = std::tuple<Tensor, Tensor, Tensor, Tensor, SymInt, SymInt, Tensor, Tensor, Tensor>;

Flash cuda_flash(const Tensor& q, const Tensor& k, const Tensor&, double, bool, bool, std::optional<double>) {
  auto y = empty_transposed(q);
  auto log_sum = empty(q, {q.size(0), q.size(1), q.size(2)}, torch::kFloat);
  return {y,
          log_sum,
          Tensor(),
          Tensor(),
          q.size(2),
          k.size(2),
          empty(q, {2}, torch::kUInt64),
          empty(q, {}, torch::kUInt64),
          Tensor()};
}

/// mha_bwd of flash-attention 2: dq accumulates in fp32, dk and dv of grouped heads are made for every query head first.
std::tuple<Tensor, Tensor, Tensor> cuda_flash_backward(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v,
                                                       const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                                       SymInt, SymInt, double, bool, const Tensor&, const Tensor&,
                                                       std::optional<double>) {
  std::tuple<Tensor, Tensor, Tensor> result{empty_transposed(q), empty_transposed(k), empty_transposed(v)};
  const int64_t batch = q.size(0), heads = q.size(1), rows = round_up(q.size(2), 128), width = round_up(q.size(3), 32);
  const auto softmax_d = empty(q, {batch, heads, rows}, torch::kFloat);
  const auto dq_accumulated = empty(q, {batch, heads, rows, width}, torch::kFloat);
  if (heads != k.size(1)) {
    const auto dk = torch::empty({batch, k.size(2), heads, q.size(3)}, q.options()), dv = torch::empty_like(dk);
    // Both are alive together, as in the kernel.
  }
  return result;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> cuda_efficient(const Tensor& q, const Tensor&, const Tensor&,
                                                          const std::optional<Tensor>&, bool with_log_sum, double, bool,
                                                          std::optional<double>) {
  return {empty_transposed(q),
          empty(q, {q.size(0), q.size(1), with_log_sum ? round_up(q.size(2), 32) : 0}, torch::kFloat),
          empty(q, {}, torch::kLong), empty(q, {}, torch::kLong)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> cuda_efficient_backward(const Tensor&, const Tensor& q, const Tensor& k,
                                                                   const Tensor& v, const Tensor&, const Tensor&,
                                                                   const Tensor&, const Tensor&, const Tensor&, double,
                                                                   std::array<bool, 4>, bool, std::optional<double>) {
  std::tuple<Tensor, Tensor, Tensor, Tensor> result{empty_transposed(q), empty_transposed(k), empty_transposed(v),
                                                    Tensor()};
  const auto delta = empty(q, {q.size(0), q.size(1), q.size(2)}, torch::kFloat);
  if (q.scalar_type() != torch::kFloat) empty(q, q.sizes(), torch::kFloat);  // dq accumulates in fp32
  return result;
}

}  // namespace

void set_traced_device(torch::DeviceType type) { g_traced = type; }

torch::DeviceType kernel_device(torch::Device device) { return device.is_meta() ? g_traced : device.type(); }
torch::DeviceType kernel_device(const Tensor& x) { return kernel_device(x.device()); }

at::Generator generator_of(torch::Device device) {
  return at::globalContext().defaultGenerator(device.is_meta() ? torch::Device(torch::kCPU) : device);
}

void seed_generators(uint64_t seed, torch::Device device) {
  torch::manual_seed(seed);
  generator_of(device).set_current_seed(seed);
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("where.self", where_self);
  library.impl("abs.out", abs_out);
  library.impl("index_select", index_select);
  library.impl("flip", flip);
  library.impl("_local_scalar_dense", local_scalar_dense);
  library.impl("embedding_dense_backward", embedding_dense_backward);
  library.impl("native_layer_norm", native_layer_norm);
  library.impl("native_layer_norm_backward", native_layer_norm_backward);
  library.impl("native_dropout", native_dropout);
  library.impl("native_dropout_backward", native_dropout_backward);
  library.impl("_fused_adamw_", fused_adamw);
  library.impl("_scaled_dot_product_flash_attention", cuda_flash);
  library.impl("_scaled_dot_product_flash_attention_backward", cuda_flash_backward);
  library.impl("_scaled_dot_product_efficient_attention", cuda_efficient);
  library.impl("_scaled_dot_product_efficient_attention_backward", cuda_efficient_backward);
}

}  // namespace vlmtune::kernels
