// Answers against what rows say they should be.
#pragma once
#include "lib/evaluate/metrics.h"
#include "lib/pipeline/answering.h"

namespace vlmtune {

/// A row's references, or its own last answer; none for a row that ends with a question.
std::vector<std::string> right_answers(const Row& row);

/// Scores (`names`: see compute_metrics) of the model's answers to the rows of a data set, each against the right ones. Rows that give
/// no training sample or have none are left out; empty when that leaves none. Errors: input_error naming a row.
Scores score_answers(const Recipe& recipe, const InputParts& inputs, const VlmModel& model, const Dataset& dataset,
                     const ExampleBuilder& builder, const std::vector<std::string>& names);

/// All of train.eval_metrics: of the answers, and of retrieval.
Scores evaluation_scores(const Recipe& recipe, const InputParts& inputs, const VlmModel& model, const Dataset& dataset,
                         const ExampleBuilder& builder);

}  // namespace vlmtune
