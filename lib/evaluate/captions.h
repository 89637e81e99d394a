// Scores of captions, with the values of COCO's evaluation (pycocoevalcap 1.2).
#pragma once
#include "lib/evaluate/caption_words.h"

namespace vlmtune {

/// One picture. At least one reference.
struct CaptionedRow {
  Words answer;
  std::vector<Words> references;
};

/// BLEU-4 of the whole corpus, brevity by the reference nearest in length (Papineni et al. 2002).
double bleu4(const std::vector<CaptionedRow>& rows);

/// Mean ROUGE-L with beta 1.2, precision and recall each of the best reference (Lin 2004).
double rouge_l(const std::vector<CaptionedRow>& rows);

/// Mean CIDEr-D, 0 to 10; n-grams are weighted by the rows that they occur in, so a single row has 0 (Vedantam et al. 2015,
/// arXiv 1411.5726).
double cider(const std::vector<CaptionedRow>& rows);

}  // namespace vlmtune
