// All scores of a set of answers, by name.
#pragma once
#include <utility>

#include "lib/evaluate/answers.h"

namespace vlmtune {

/// Scores in the order they are asked for.
using Scores = std::vector<std::pair<std::string, double>>;

/// exact_match, anls, vqa_accuracy, bleu4, rouge_l and cider of all rows; pope_accuracy, pope_precision, pope_recall, pope_f1
/// and pope_yes_ratio of those whose reference is yes or no, left out where there are none.
/// `names` chooses; empty: all. A name that is none of these is our own mistake.
Scores compute_metrics(const std::vector<AnsweredRow>& rows, const std::vector<std::string>& names = {});

}  // namespace vlmtune
