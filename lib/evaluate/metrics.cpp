#include "lib/evaluate/metrics.h"

#include <algorithm>
#include <optional>

#include "lib/base/errors.h"
#include "lib/evaluate/captions.h"
#include "lib/evaluate/vqa.h"
#include "lib/evaluate/yes_no.h"

namespace vlmtune {
namespace {

/// The rows in the forms that metrics want, made when the first one asks.
class EvaluatedRows {
 public:
  explicit EvaluatedRows(const std::vector<AnsweredRow>& rows) : rows_(rows) {}

  const std::vector<AnsweredRow>& answers() const { return rows_; }

  const std::vector<CaptionedRow>& captions() {
    if (captions_.empty())
      for (const auto& row : rows_) {
        auto& caption = captions_.emplace_back(CaptionedRow{caption_words(row.answer), {}});
        for (const auto& reference : row.references) caption.references.push_back(caption_words(reference));
      }
    return captions_;
  }

  const std::optional<YesNoScores>& yes_no_scores() {
    if (yes_no_) return yes_no_;
    std::vector<AnsweredRow> rows;
    std::copy_if(rows_.begin(), rows_.end(), std::back_inserter(rows), is_yes_no);
    if (!rows.empty()) yes_no_ = yes_no(rows);
    return yes_no_;
  }

 private:
  const std::vector<AnsweredRow>& rows_;
  std::vector<CaptionedRow> captions_;
  std::optional<YesNoScores> yes_no_;
};

struct Metric {
  std::string_view name;
  std::optional<double> (*compute)(EvaluatedRows&);
};

template <double YesNoScores::*kScore>
std::optional<double> yes_no_score(EvaluatedRows& rows) {
  const auto& scores = rows.yes_no_scores();
  return scores ? std::optional((*scores).*kScore) : std::nullopt;
}

constexpr Metric kMetrics[] = {
    {"exact_match", [](EvaluatedRows& rows) { return std::optional(exact_match(rows.answers())); }},
    {"anls", [](EvaluatedRows& rows) { return std::optional(anls(rows.answers())); }},
    {"vqa_accuracy", [](EvaluatedRows& rows) { return std::optional(vqa_accuracy(rows.answers())); }},
    {"bleu4", [](EvaluatedRows& rows) { return std::optional(bleu4(rows.captions())); }},
    {"rouge_l", [](EvaluatedRows& rows) { return std::optional(rouge_l(rows.captions())); }},
    {"cider", [](EvaluatedRows& rows) { return std::optional(cider(rows.captions())); }},
    {"pope_accuracy", yes_no_score<&YesNoScores::accuracy>},
    {"pope_precision", yes_no_score<&YesNoScores::precision>},
    {"pope_recall", yes_no_score<&YesNoScores::recall>},
    {"pope_f1", yes_no_score<&YesNoScores::f1>},
    {"pope_yes_ratio", yes_no_score<&YesNoScores::yes_ratio>}};

}  // namespace

Scores compute_metrics(const std::vector<AnsweredRow>& rows, const std::vector<std::string>& names) {
  VLMTUNE_CHECK(!rows.empty(), "no rows to evaluate");
  EvaluatedRows evaluated(rows);
  Scores scores;
  const auto add = [&](const Metric& metric) {
    if (const auto score = metric.compute(evaluated)) scores.emplace_back(metric.name, *score);
  };
  if (names.empty()) std::for_each(std::begin(kMetrics), std::end(kMetrics), add);
  for (const auto& name : names) {
    const auto* metric =
        std::find_if(std::begin(kMetrics), std::end(kMetrics), [&](auto& m) { return m.name == name; });
    VLMTUNE_CHECK(metric != std::end(kMetrics), "there is no metric {}", name);
    add(*metric);
  }
  return scores;
}

}  // namespace vlmtune
