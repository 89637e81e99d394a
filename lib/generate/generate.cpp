#include "lib/generate/generate.h"

#include <algorithm>

#include "lib/memory/scope.h"
#include "lib/memory/transfer.h"
#include "lib/models/vlm/positions.h"

namespace vlmtune {
namespace {

TokenLogprob logprob_of(const Tensor& log_probabilities, int64_t id, int64_t num_top) {
  TokenLogprob result{id, log_probabilities[id].item<double>(), {}};
  if (num_top == 0) return result;
  const auto [values, ids] = log_probabilities.topk(std::min(num_top, log_probabilities.size(0)));
  for (int64_t i = 0; i < ids.size(0); ++i) result.top.emplace_back(ids[i].item<int64_t>(), values[i].item<double>());
  return result;
}

/// fp32 [B, V]; `all` makes those of every position first.
Tensor logits_of_last(const VlmModel& model, const Tensor& hidden, bool all) {
  const MemoryScope scope(MemoryCategory::kLogits);
  if (all) return model.logits(hidden).to(torch::kFloat).select(1, hidden.size(1) - 1).contiguous();
  return model.logits(hidden.select(1, hidden.size(1) - 1)).to(torch::kFloat).contiguous();
}

}  // namespace

std::vector<Generated> generate(const VlmModel& model, const PromptBatch& prompt, KvCache& cache,
                                const GenerationOptions& options, const TokenCallback& on_token) {
  const torch::NoGradGuard no_grad;
  const auto rows = static_cast<size_t>(prompt.ids.size(0));
  std::vector<Generated> results(rows);
  std::vector<bool> done(rows, false);
  std::vector<Sampler> samplers;
  std::vector<std::vector<int64_t>> seen(rows);
  for (size_t row = 0; row < rows; ++row) {
    samplers.emplace_back(options.sampling, row);
    const int64_t* ids = prompt.ids.data_ptr<int64_t>() + static_cast<int64_t>(row) * prompt.ids.size(1);
    seen[row].assign(ids + (prompt.left_padding.empty() ? 0 : prompt.left_padding[row]), ids + prompt.ids.size(1));
  }
  cache.reserve(std::max(cache.reserved(), cache.length() + prompt.ids.size(1) + options.max_new_tokens));
  auto positions = prompt.positions.defined()
                       ? prompt.positions
                       : model.positions(prompt.ids, prompt.images.shapes, prompt.left_padding) + cache.length();
  auto in = [&] {
    const PhaseScope phase("embed");
    return model.embed(prompt.ids, prompt.images, options.compute_type, {});
  }();
  for (int64_t made = 0; made < options.max_new_tokens; ++made) {
    const PhaseScope phase(made == 0 ? "prefill" : "decode");
    const auto hidden = model.language_model().forward(
        in.tokens,
        {.positions = positions, .left_padding = prompt.left_padding, .deepstack = in.deepstack, .cache = &cache});
    const auto logits = to_host(logits_of_last(model, hidden, options.all_logits));  // [B, V]
    auto next = torch::zeros({static_cast<int64_t>(rows), 1}, torch::kLong);
    for (size_t row = 0; row < rows; ++row) {
      if (done[row]) continue;
      const auto scores = logits[static_cast<int64_t>(row)];
      const int64_t id = samplers[row].choose({scores.data_ptr<float>(), static_cast<size_t>(scores.size(0))},
                                              options.vocab_limit, seen[row]);
      if (std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end()) {
        done[row] = results[row].stopped = true;
        continue;
      }
      if (options.top_logprobs >= 0)
        results[row].logprobs.push_back(logprob_of(scores.log_softmax(0), id, options.top_logprobs));
      results[row].tokens.push_back(id);
      seen[row].push_back(id);
      next[static_cast<int64_t>(row)][0] = id;
      if (on_token && !on_token(row, id)) done[row] = results[row].stopped = true;
    }
    if (std::all_of(done.begin(), done.end(), [](bool d) { return d; })) break;
    if (made + 1 == options.max_new_tokens) break;
    in = {model.language_model().embed(next, options.compute_type)};
    positions = next_positions(positions);
  }
  return results;
}

}  // namespace vlmtune
