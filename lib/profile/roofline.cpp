#include "lib/profile/roofline.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <utility>

#include "lib/memory/scope.h"
#include "lib/nn/recompute.h"

namespace vlmtune {
namespace {

using torch::Tensor;

template <typename F>
void each_tensor(const c10::IValue& value, F f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) f(value.toTensor());
  } else if (value.isTensorList()) {
    for (const Tensor& t : value.toTensorVector())
      if (t.defined()) f(t);
  } else if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements()) each_tensor(element, f);
  }
}

double count(const Tensor& x) { return static_cast<double>(x.numel()); }

/// Multiplications and additions of an operator; 0 for those that only move data.
double operator_flops(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  const auto at = [&](size_t i) { return inputs[i].toTensor(); };
  if (name == "aten::mm" || name == "aten::bmm") return 2 * count(at(0)) * static_cast<double>(at(1).size(-1));
  if (name == "aten::addmm" || name == "aten::addmm_" || name == "aten::baddbmm")
    return 2 * count(at(1)) * static_cast<double>(at(2).size(-1));
  if (name == "vlmtune::quantized_product")
    return 2 * count(at(0)) * static_cast<double>((inputs[9].toBool() ? inputs[8] : inputs[7]).toInt());
  if (name == "vlmtune::depthwise_conv") return 2 * count(at(0)) * static_cast<double>(at(1).size(2) * at(1).size(3));
  if (name == "vlmtune::depthwise_conv_weight_backward")
    return 2 * count(at(0)) * static_cast<double>(inputs[2].toInt() * inputs[2].toInt());
  const bool attends = name.starts_with("aten::_scaled_dot_product") || name.starts_with("vlmtune::attention");
  if (attends) {
    const bool backward = name.ends_with("_backward");
    const auto q = at(backward ? 1 : 0), k = at(backward ? 2 : 1);
    const bool causal = q.size(2) == k.size(2);  // half of the scores are not computed
    return (backward ? 10.0 : 4.0) * count(q) * static_cast<double>(k.size(2)) * (causal ? 0.5 : 1.0);
  }
  return 0;
}

std::string precision_of(torch::ScalarType type) {
  return type == torch::kBFloat16 ? "bf16" : type == torch::kHalf ? "fp16" : type == torch::kChar ? "int8" : "fp32";
}

/// Making room for a result is no work, and no reason to look for the work inside.
bool only_allocates(std::string_view name) { return name.starts_with("aten::empty"); }

bool crosses_link(std::string_view name) { return name == "vlmtune::copy_across_"; }

/// An operator under way: its inputs can only be looked at when it begins.
struct Call : at::ObserverContext {
  double flops = 0, bytes = 0;
  bool on_meta = false, has_inner = false, on_host = HostScope::active();
  std::optional<torch::ScalarType> type;
  std::vector<const void*> storages;
  Call* outer = nullptr;
};

const void* storage_of(const Tensor& x) { return x.has_storage() ? x.storage().data_ptr().get_context() : nullptr; }

}  // namespace

struct RooflineRecorder::State {
  DeviceRates rates;
  StepTime time;
  double flops = 0;
  Call* innermost = nullptr;

  std::unique_ptr<Call> begin(const at::RecordFunction& function) {
    auto call = std::make_unique<Call>();
    if (innermost != nullptr && !only_allocates(function.name())) innermost->has_inner = true;
    call->outer = std::exchange(innermost, call.get());
    call->flops = operator_flops(function.name(), function.inputs());
    for (const auto& value : function.inputs())
      each_tensor(value, [&](const Tensor& x) {
        if (!x.is_meta()) return;
        call->on_meta = true;
        call->bytes += static_cast<double>(x.nbytes());
        call->storages.push_back(storage_of(x));
        if (!call->type && x.is_floating_point()) call->type = x.scalar_type();
      });
    return call;
  }

  void end(const at::RecordFunction& function, Call& call) {
    innermost = call.outer;
    if (call.has_inner) return;
    const std::string_view name = function.name();
    const bool in_place = name.ends_with('_');
    bool moves_data = in_place;
    for (const auto& value : function.outputs())
      each_tensor(value, [&](const Tensor& y) {
        if (!y.is_meta()) return;
        call.on_meta = true;
        call.bytes += static_cast<double>(y.nbytes());
        const bool view = std::find(call.storages.begin(), call.storages.end(), storage_of(y)) != call.storages.end();
        moves_data = moves_data || !view;
      });
    if (!call.on_meta || !moves_data || only_allocates(name)) return;
    if (crosses_link(name)) {
      time.transfer += rates.link > 0 ? call.bytes / 2 / rates.link : 0;  // once, not as read and written
      return;
    }
    if (call.on_host) {
      time.memory += rates.host_bytes > 0 ? call.bytes / rates.host_bytes : 0;
      return;
    }
    flops += call.flops;
    const auto rate = rates.flops.find(precision_of(call.type.value_or(torch::kFloat)));
    const double compute = rate != rates.flops.end() && rate->second > 0 ? call.flops / rate->second : 0;
    const double memory = rates.bytes > 0 ? call.bytes / rates.bytes : 0;
    (compute > memory ? time.compute : time.memory) += std::max(compute, memory);
    if (recomputing()) time.recompute += std::max(compute, memory);
  }
};

namespace {

thread_local RooflineRecorder::State* t_state = nullptr;

}  // namespace

RooflineRecorder::RooflineRecorder(const DeviceRates& rates) : state_(std::make_unique<State>()) {
  state_->rates = rates;
  t_state = state_.get();
  handle_ =
      at::addThreadLocalCallback(at::RecordFunctionCallback(
                                     [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
                                       return t_state->begin(function);
                                     },
                                     [](const at::RecordFunction& function, at::ObserverContext* call) {
                                       t_state->end(function, *static_cast<Call*>(call));
                                     })
                                     .needsInputs(true)
                                     .needsOutputs(true)
                                     .scopes({at::RecordScope::FUNCTION}));
}

RooflineRecorder::~RooflineRecorder() {
  at::removeCallback(handle_);
  t_state = nullptr;
}

const StepTime& RooflineRecorder::time() const { return state_->time; }
double RooflineRecorder::flops() const { return state_->flops; }
void RooflineRecorder::reset() {
  state_->time = {};
  state_->flops = 0;
}

}  // namespace vlmtune
