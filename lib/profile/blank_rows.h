// The rows of a dry run: as long as the recipe allows, with as many pictures and frames of videos as a row of the data has.
#pragma once
#include <optional>
#include <vector>

#include "lib/pipeline/assemble.h"

namespace vlmtune {

/// What a row shows.
struct RowContents {
  int64_t images = 0;
  std::vector<int64_t> videos = {};  ///< frames of each
};

/// The picture that takes the most tokens; where pictures keep their own size, at most `limit`, if it is given.
PictureShape largest_picture(const InputParts& inputs, std::optional<int64_t> limit = std::nullopt);

/// What stands for a picture in a run: its pixels, or with a type the features that a mapped cache holds in that type.
ProcessedImage blank_picture(const InputParts& inputs, const PictureShape& shape,
                             std::optional<torch::ScalarType> features_type = std::nullopt);

/// A row of `length` tokens with as much of `contents` as fits, all as large as fits; all its text is trained.
Example longest_row(const InputParts& inputs, int64_t length, const RowContents& contents,
                    std::optional<torch::ScalarType> features_type = std::nullopt);

/// Of the row that shows the most, among the first rows of the data; one picture without data.
RowContents fullest_row(const Recipe& recipe, const InputParts& inputs);

/// Of the fullest row among those that the first samples of the data are packed into. Where there is no data to look at, as
/// many pictures as fit, if a `sample` shows any.
RowContents fullest_packed_row(const Recipe& recipe, Command command, const InputParts& inputs, int64_t row_tokens,
                               const RowContents& sample);

}  // namespace vlmtune
