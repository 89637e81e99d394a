// The accuracy of visual question answering against ten people's answers (Antol et al. 2015, arXiv 1505.00468), with the
// normalisation of the challenge's evaluation code.
#pragma once
#include "lib/evaluate/answers.h"

namespace vlmtune {

/// Lower case without punctuation and articles; numbers as digits, contractions with their apostrophes.
std::string normalize_vqa_answer(std::string_view answer);

/// min(1, matches / 3) averaged over all choices of leaving one reference out. A single reference, which leaves nothing to
/// compare with, counts by itself.
double vqa_accuracy(const std::vector<AnsweredRow>& rows);

}  // namespace vlmtune
