// Questions to be answered by yes or no, as POPE asks them about objects (Li et al. 2023, arXiv 2305.10355).
#pragma once
#include "lib/evaluate/answers.h"

namespace vlmtune {

/// Yes is what is looked for. Ratios without a denominator are 0.
struct YesNoScores {
  double accuracy = 0, precision = 0, recall = 0, f1 = 0;
  double yes_ratio = 0;  ///< of the answers
};

/// Whether the row's first reference is yes or no.
bool is_yes_no(const AnsweredRow& row);

/// What POPE's evaluation reads in an answer: no when its first sentence has the word no or not, else yes.
bool says_yes(std::string_view answer);

/// All rows are yes or no.
YesNoScores yes_no(const std::vector<AnsweredRow>& rows);

}  // namespace vlmtune
