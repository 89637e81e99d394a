// Finding the texts of a picture, and the picture of a text, among all.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lib/evaluate/metrics.h"

namespace vlmtune {

/// image_to_text_r1, _r5, _r10: the share of pictures that have a text of theirs among the k most similar ones;
/// text_to_image_r1, _r5, _r10: of texts that have their picture there. similarity: the mean of matching pairs.
/// `similarities`: [pictures, texts], row by row; `picture_of` [texts]: which picture a text describes. As Flickr30K and COCO
/// are scored (Karpathy and Fei-Fei 2015, arXiv 1412.2306).
Scores retrieval_scores(std::span<const float> similarities, const std::vector<int64_t>& picture_of);

}  // namespace vlmtune
