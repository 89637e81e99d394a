#include "lib/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace vlmtune {

int64_t Sampler::choose(std::span<const float> logits, int64_t vocab_limit, std::span<const int64_t> seen) {
  const auto limit = static_cast<size_t>(std::min<int64_t>(vocab_limit, static_cast<int64_t>(logits.size())));
  const auto greedy = [](std::span<const float> scores) {
    return static_cast<int64_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  };
  if (options_.temperature == 0 && options_.repetition_penalty == 1) return greedy(logits.first(limit));
  std::vector<float> scores(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(limit));
  if (options_.repetition_penalty != 1) {
    std::vector<int64_t> once(seen.begin(), seen.end());
    std::sort(once.begin(), once.end());
    once.erase(std::unique(once.begin(), once.end()), once.end());
    const float penalty = static_cast<float>(options_.repetition_penalty);
    for (const int64_t id : once) {
      if (id < 0 || id >= static_cast<int64_t>(limit)) continue;
      auto& score = scores[static_cast<size_t>(id)];
      score = score < 0 ? score * penalty : score / penalty;
    }
  }
  return options_.temperature == 0 ? greedy(scores) : draw(scores);
}

int64_t Sampler::draw(std::vector<float>& scores) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto better = [&](int64_t a, int64_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  };
  size_t kept = order.size();
  if (options_.top_k > 0) kept = std::min(kept, static_cast<size_t>(options_.top_k));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), better);
  std::vector<double> probability(kept);
  const double top = scores[static_cast<size_t>(order[0])];
  double total = 0;
  for (size_t i = 0; i < kept; ++i)
    total += probability[i] = std::exp((scores[static_cast<size_t>(order[i])] - top) / options_.temperature);
  if (options_.top_p < 1) {  // the smallest set of likeliest tokens that reaches top_p, at least one
    double sum = 0;
    size_t n = 0;
    while (n < kept && sum < options_.top_p * total) sum += probability[n++];
    kept = std::max<size_t>(n, 1);
    total = std::accumulate(probability.begin(), probability.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
  }
  // 53 random bits by hand: std::uniform_real_distribution differs between standard libraries.
  double point = static_cast<double>(random_() >> 11) * 0x1p-53 * total;
  for (size_t i = 0; i < kept; ++i)
    if ((point -= probability[i]) < 0) return order[i];
  return order[kept - 1];
}

}  // namespace vlmtune
