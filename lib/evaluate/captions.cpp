#include "lib/evaluate/captions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <unordered_map>
#include <utility>

#include "lib/evaluate/answers.h"

namespace vlmtune {
namespace {

constexpr size_t kLongest = 4;  // n-grams have 1 to 4 words

/// How often each n-gram occurs, by its words with blanks between them; [n - 1] for n words.
using NgramCounts = std::array<std::unordered_map<std::string, int64_t>, kLongest>;

NgramCounts count_ngrams(const Words& words) {
  NgramCounts counts;
  for (size_t begin = 0; begin < words.size(); ++begin) {
    std::string ngram;
    for (size_t n = 0; n < kLongest && begin + n < words.size(); ++n) {
      (ngram += n == 0 ? "" : " ") += words[begin + n];
      ++counts[n][ngram];
    }
  }
  return counts;
}

size_t longest_common_subsequence(const Words& a, const Words& b) {
  std::vector<size_t> row(b.size() + 1, 0);
  for (const auto& word : a) {
    size_t diagonal = 0;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t longer = word == b[j] ? diagonal + 1 : std::max(row[j], row[j + 1]);
      diagonal = std::exchange(row[j + 1], longer);
    }
  }
  return row.back();
}

/// The length nearest to `length`; of two, the shorter.
size_t nearest_length(const CaptionedRow& row) {
  const auto distance = [&](const Words& reference) {
    return std::pair(std::llabs(static_cast<long long>(reference.size()) - static_cast<long long>(row.answer.size())),
                     reference.size());
  };
  return std::min_element(row.references.begin(), row.references.end(),
                          [&](const Words& a, const Words& b) { return distance(a) < distance(b); })
      ->size();
}

/// A caption's n-grams, weighted by how telling they are.
struct WeightedNgrams {
  std::array<std::unordered_map<std::string, double>, kLongest> weights;
  std::array<double, kLongest> norms{};
  double length = 0;  // in bigrams, as the original has it
};

/// Weights by the rows of a corpus.
class NgramWeights {
 public:
  explicit NgramWeights(const std::vector<CaptionedRow>& rows) : log_rows_(std::log(static_cast<double>(rows.size()))) {
    for (const auto& row : rows) {
      std::set<std::string> seen;
      for (const auto& reference : row.references)
        for (const auto& ngrams : count_ngrams(reference))
          for (const auto& [ngram, count] : ngrams) seen.insert(ngram);
      for (const auto& ngram : seen) ++rows_with_[ngram];
    }
  }

  WeightedNgrams weigh(const Words& words) const {
    WeightedNgrams weighted;
    const auto counts = count_ngrams(words);
    for (size_t n = 0; n < kLongest; ++n) {
      for (const auto& [ngram, count] : counts[n]) {
        const auto found = rows_with_.find(ngram);
        const double weight =
            static_cast<double>(count) * (log_rows_ - (found == rows_with_.end() ? 0 : std::log(found->second)));
        weighted.weights[n][ngram] = weight;
        weighted.norms[n] += weight * weight;
      }
      weighted.norms[n] = std::sqrt(weighted.norms[n]);
    }
    weighted.length = words.empty() ? 0 : static_cast<double>(words.size() - 1);
    return weighted;
  }

 private:
  double log_rows_;
  std::unordered_map<std::string, double> rows_with_;
};

/// Mean over n of the clipped cosine similarity, less for other lengths.
double similarity(const WeightedNgrams& answer, const WeightedNgrams& reference) {
  constexpr double kSigma = 6;
  double sum = 0;
  for (size_t n = 0; n < kLongest; ++n) {
    double product = 0;
    for (const auto& [ngram, weight] : answer.weights[n])
      if (const auto found = reference.weights[n].find(ngram); found != reference.weights[n].end())
        product += std::min(weight, found->second) * found->second;
    if (answer.norms[n] != 0 && reference.norms[n] != 0) product /= answer.norms[n] * reference.norms[n];
    sum += product;
  }
  const double longer = answer.length - reference.length;
  return sum / kLongest * std::exp(-longer * longer / (2 * kSigma * kSigma));
}

}  // namespace

double bleu4(const std::vector<CaptionedRow>& rows) {
  constexpr double kTiny = 1e-15, kSmall = 1e-9;  // keep the original's fractions finite
  std::array<double, kLongest> found{}, possible{};
  double answer_length = 0, reference_length = 0;
  for (const auto& row : rows) {
    answer_length += static_cast<double>(row.answer.size());
    reference_length += static_cast<double>(nearest_length(row));
    const auto counts = count_ngrams(row.answer);
    std::vector<NgramCounts> references;
    for (const auto& reference : row.references) references.push_back(count_ngrams(reference));
    for (size_t n = 0; n < kLongest; ++n) {
      possible[n] += static_cast<double>(row.answer.size() - std::min(row.answer.size(), n));
      for (const auto& [ngram, count] : counts[n]) {
        int64_t most = 0;
        for (const auto& reference : references)
          if (const auto known = reference[n].find(ngram); known != reference[n].end())
            most = std::max(most, known->second);
        found[n] += static_cast<double>(std::min(count, most));
      }
    }
  }
  double product = 1;
  for (size_t n = 0; n < kLongest; ++n) product *= (found[n] + kTiny) / (possible[n] + kSmall);
  const double ratio = (answer_length + kTiny) / (reference_length + kSmall);
  return std::pow(product, 1.0 / kLongest) * (ratio < 1 ? std::exp(1 - 1 / ratio) : 1);
}

double rouge_l(const std::vector<CaptionedRow>& rows) {
  constexpr double kBeta2 = 1.2 * 1.2;
  return mean_over(rows, [](const CaptionedRow& row) {
    double precision = 0, recall = 0;
    for (const auto& reference : row.references) {
      // No words at all are one empty word in the original.
      if (row.answer.empty() && reference.empty()) precision = recall = 1;
      const auto common = static_cast<double>(longest_common_subsequence(row.answer, reference));
      precision = std::max(precision, common / static_cast<double>(std::max<size_t>(1, row.answer.size())));
      recall = std::max(recall, common / static_cast<double>(std::max<size_t>(1, reference.size())));
    }
    return precision > 0 && recall > 0 ? (1 + kBeta2) * precision * recall / (recall + kBeta2 * precision) : 0;
  });
}

double cider(const std::vector<CaptionedRow>& rows) {
  const NgramWeights weights(rows);
  return mean_over(rows, [&](const CaptionedRow& row) {
    const auto answer = weights.weigh(row.answer);
    return 10 * mean_over(row.references,
                          [&](const Words& reference) { return similarity(answer, weights.weigh(reference)); });
  });
}

}  // namespace vlmtune
