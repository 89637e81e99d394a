// Answers against what rows say they should be.
#pragma once
#include "lib/evaluate/metrics.h"
#include "lib/pipeline/answering.h"

namespace vlmtune {

/// Scores (train.eval_metrics) of the model's answers to the rows of a data set, each against its references or, where it has
/// none, against its own last answer. Rows that give no training sample or have neither are left out; empty when that leaves
/// none. Errors: input_error naming a row.
Scores score_answers(const Recipe& recipe, const InputParts& inputs, const VlmModel& model, const Dataset& dataset,
                     const ExampleBuilder& builder);

}  // namespace vlmtune
