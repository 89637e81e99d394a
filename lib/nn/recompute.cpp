#include "lib/nn/recompute.h"

#include <ATen/CPUGeneratorImpl.h>

#include "lib/memory/scope.h"

namespace vlmtune {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Generator default_generator() { return at::detail::getDefaultCPUGenerator(); }

struct BlockHolder : torch::CustomClassHolder {
  explicit BlockHolder(std::function<Tensor(const Tensor&)> f) : block(std::move(f)) {}
  std::function<Tensor(const Tensor&)> block;
  MemoryCategory category = MemoryScope::current();  ///< what the block's memory is for, in both runs
};

thread_local bool t_recomputing = false;

struct RecomputingScope {
  RecomputingScope() { t_recomputing = true; }
  ~RecomputingScope() { t_recomputing = false; }
};

/// Puts the default generator of the CPU back where it was when the first run began, and restores it afterwards.
class ReplayRandomness {
 public:
  explicit ReplayRandomness(const Tensor& state) : now_(default_generator().get_state()) {
    default_generator().set_state(state);
  }
  ~ReplayRandomness() { default_generator().set_state(now_); }
  ReplayRandomness(const ReplayRandomness&) = delete;
  ReplayRandomness& operator=(const ReplayRandomness&) = delete;

 private:
  Tensor now_;
};

struct RecomputeFunction : torch::autograd::Function<RecomputeFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, c10::intrusive_ptr<BlockHolder> holder) {
    context->saved_data["random"] = default_generator().get_state();
    context->saved_data["block"] = c10::IValue::make_capsule(holder);
    context->save_for_backward({x});
    const torch::NoGradGuard no_grad;
    return holder->block(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<BlockHolder>(context->saved_data["block"].toCapsule());
    const auto x = context->get_saved_variables()[0].detach().requires_grad_(true);
    const ReplayRandomness replay(context->saved_data["random"].toTensor());
    const torch::AutoGradMode grad(true);
    const auto y = [&] {
      const MemoryScope scope(holder->category);
      const RecomputingScope recomputing;
      return holder->block(x);
    }();
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), Tensor()};
  }
};

}  // namespace

RecomputePolicy RecomputePolicy::parse(const std::string& text) {
  constexpr std::string_view kEvery = "every:";
  RecomputePolicy policy(text == "full");
  if (text == "selective") policy.part = Part::kMlp;
  if (text.starts_with(kEvery)) {
    policy.part = Part::kBlock;
    policy.every = std::stoll(text.substr(kEvery.size()));
  }
  return policy;
}

bool recomputing() { return t_recomputing; }

Tensor require_input_grad(const Tensor& x) { return x.requires_grad() ? x : x.detach().requires_grad_(true); }

Tensor recompute(const std::function<Tensor(const Tensor&)>& block, const Tensor& x) {
  if (!torch::GradMode::is_enabled() || !x.requires_grad()) return block(x);
  return RecomputeFunction::apply(x, c10::make_intrusive<BlockHolder>(block));
}

}  // namespace vlmtune
