#include "lib/nn/recompute.h"

#include <optional>

#include "kernels/device.h"
#include "lib/memory/scope.h"
#include "lib/memory/transfer.h"

namespace vlmtune {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The input of a block while it waits in the host's memory.
struct StowedInput {
  void call_back() {
    if (coming) return;
    const MemoryScope scope(category);
    coming = fetch(values, device);
  }

  Tensor values;
  torch::Device device;
  std::weak_ptr<StowedInput> before;  ///< what backward needs next
  MemoryCategory category = MemoryScope::current();
  std::optional<Arriving> coming = {};
};

std::shared_ptr<StowedInput> put_away(const Tensor& x) {
  thread_local std::weak_ptr<StowedInput> last;
  const auto stowed = std::make_shared<StowedInput>(stow(x).for_later(), x.device(), last);
  last = stowed;
  return stowed;
}

/// What was put away, while that of the block before sets out.
Tensor take_back(StowedInput& stowed) {
  stowed.call_back();
  const auto x = stowed.coming->for_device();
  stowed.coming.reset();
  if (const auto before = stowed.before.lock()) before->call_back();
  return x;
}

struct BlockHolder : torch::CustomClassHolder {
  explicit BlockHolder(std::function<Tensor(const Tensor&)> f) : block(std::move(f)) {}
  std::function<Tensor(const Tensor&)> block;
  MemoryCategory category = MemoryScope::current();  ///< what the block's memory is for, in both runs
  std::shared_ptr<StowedInput> stowed = {};          ///< if that is where its input is kept
};

thread_local bool t_recomputing = false;

struct RecomputingScope {
  RecomputingScope() { t_recomputing = true; }
  ~RecomputingScope() { t_recomputing = false; }
};

/// Puts a generator back where it was when the first run began, and restores it afterwards.
class ReplayRandomness {
 public:
  ReplayRandomness(at::Generator generator, const Tensor& state)
      : generator_(std::move(generator)), now_(generator_.get_state()) {
    generator_.set_state(state);
  }
  ~ReplayRandomness() { generator_.set_state(now_); }
  ReplayRandomness(const ReplayRandomness&) = delete;
  ReplayRandomness& operator=(const ReplayRandomness&) = delete;

 private:
  at::Generator generator_;
  Tensor now_;
};

struct RecomputeFunction : torch::autograd::Function<RecomputeFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, c10::intrusive_ptr<BlockHolder> holder,
                        bool on_host) {
    context->saved_data["random"] = kernels::generator_of(x.device()).get_state();
    context->saved_data["block"] = c10::IValue::make_capsule(holder);
    if (on_host)
      holder->stowed = put_away(x);
    else
      context->save_for_backward({x});
    const torch::NoGradGuard no_grad;
    return holder->block(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<BlockHolder>(context->saved_data["block"].toCapsule());
    const auto kept = holder->stowed ? take_back(*holder->stowed) : context->get_saved_variables()[0].detach();
    const auto x = kept.requires_grad_(true);
    const ReplayRandomness replay(kernels::generator_of(x.device()), context->saved_data["random"].toTensor());
    const torch::AutoGradMode grad(true);
    const auto y = [&] {
      const MemoryScope scope(holder->category);
      const RecomputingScope recomputing;
      return holder->block(x);
    }();
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), Tensor(), Tensor()};
  }
};

}  // namespace

RecomputePolicy RecomputePolicy::parse(const std::string& text) {
  const auto colon = std::min(text.find(':'), text.size());
  const std::string kind = text.substr(0, colon), detail = text.substr(std::min(colon + 1, text.size()));
  RecomputePolicy policy(kind == "full" || kind == "every" || kind == "first");
  if (kind == "selective") policy.part = detail == "attention" ? Part::kAttention : Part::kMlp;
  if (kind == "every") policy.every = std::stoll(detail);
  if (kind == "first") policy.count = std::stoll(detail);
  return policy;
}

Tensor RecomputePolicy::run(Part which, int64_t block, const std::function<Tensor(const Tensor&)>& f,
                            const Tensor& x) const {
  return covers(which, block) ? recompute(f, x, inputs_on_host) : f(x);
}

bool recomputing() { return t_recomputing; }

Tensor require_input_grad(const Tensor& x) { return x.requires_grad() ? x : x.detach().requires_grad_(true); }

Tensor recompute(const std::function<Tensor(const Tensor&)>& block, const Tensor& x, bool input_on_host) {
  if (!torch::GradMode::is_enabled() || !x.requires_grad()) return block(x);
  return RecomputeFunction::apply(x, c10::make_intrusive<BlockHolder>(block), input_on_host);
}

}  // namespace vlmtune
