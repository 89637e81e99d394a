#include "lib/recipe/nearest.h"

#include <algorithm>

namespace vlmtune {
namespace {

/// Optimal string alignment distance.
size_t slips_between(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  word = word.substr(0, 64);  // nobody misspells a key into more; keeps the table small
  std::string best;
  size_t fewest = std::max<size_t>(1, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const bool cut_short = word.size() >= 4 && candidate.starts_with(word);
    const size_t slips = cut_short ? 1 : slips_between(word, candidate);
    if (slips < fewest) {
      fewest = slips;
      best = candidate;
    }
  }
  return best;
}

}  // namespace vlmtune
