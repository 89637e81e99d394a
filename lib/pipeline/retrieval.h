// How well the similarity head finds pictures and texts that belong together.
#pragma once
#include "lib/evaluate/metrics.h"
#include "lib/pipeline/assemble.h"

namespace vlmtune {

/// retrieval_scores of the rows with one picture, whose texts are their references or, without any, their own last answer. Rows
/// that give no training sample are left out; empty when no pair is left. Errors: input_error naming a row.
Scores score_retrieval(const Recipe& recipe, const VlmModel& model, const Dataset& dataset,
                       const ExampleBuilder& builder);

}  // namespace vlmtune
