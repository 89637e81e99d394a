#include "lib/pipeline/evaluation.h"

#include "lib/base/log.h"
#include "lib/data/damage.h"
#include "lib/pipeline/retrieval.h"

namespace vlmtune {
namespace {

std::string text_of(const Message& message) {
  std::string text;
  for (const auto& part : message.parts) text += part.text;
  return text;
}

}  // namespace

std::vector<std::string> right_answers(const Row& row) {
  if (!row.references.empty()) return row.references;
  const auto& last = row.messages.back();
  return last.role == "assistant" ? std::vector{text_of(last)} : std::vector<std::string>();
}

Scores score_answers(const Recipe& recipe, const InputParts& inputs, const VlmModel& model, const Dataset& dataset,
                     const ExampleBuilder& builder, const std::vector<std::string>& names) {
  const Answerer answerer(recipe, inputs, model);
  std::vector<AnsweredRow> rows;
  std::vector<Example> prompts;
  ProgressBar progress("answering", "row", dataset.size());
  const auto answer = [&] {
    if (prompts.empty()) return;
    auto answered = rows.end() - static_cast<std::ptrdiff_t>(prompts.size());
    for (auto& answer : answerer.answer(prompts, nullptr)) (answered++)->answer = std::move(answer.text);
    prompts.clear();
  };
  for (int64_t i = 0; i < dataset.size(); ++i) {
    leaving_out_damage([&] {
      const auto row = dataset.row(i);
      Skip skip = Skip::kNone;
      builder.measure(row, &skip);
      auto references = right_answers(row);
      if (skip != Skip::kNone || references.empty()) return;
      prompts.push_back(builder.build_prompt(row));
      rows.push_back({"", std::move(references)});
    });
    if (static_cast<int64_t>(prompts.size()) == recipe.generation.batch_size) answer();
    progress.update(i + 1, "");
  }
  answer();
  return rows.empty() ? Scores() : compute_metrics(rows, names);
}

Scores evaluation_scores(const Recipe& recipe, const InputParts& inputs, const VlmModel& model, const Dataset& dataset,
                         const ExampleBuilder& builder) {
  auto of_answers = recipe.train.eval_metrics;
  const auto retrieval = std::erase(of_answers, "retrieval");
  Scores scores;
  if (!of_answers.empty()) scores = score_answers(recipe, inputs, model, dataset, builder, of_answers);
  if (retrieval > 0)
    for (auto& score : score_retrieval(recipe, model, dataset, builder)) scores.push_back(std::move(score));
  return scores;
}

}  // namespace vlmtune
