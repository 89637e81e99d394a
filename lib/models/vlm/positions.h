// Which position each token of a batch has, on the CPU.
#pragma once
#include <vector>

#include "lib/models/vision.h"

namespace vlmtune {

/// [B or 1, T] int64: tokens counted one by one from each row's left padding (which has position 0 itself) or, where
/// `first_keys` [B, T] is defined, from each sample's first token.
Tensor token_positions(int64_t tokens, const std::vector<int64_t>& left_padding, const Tensor& first_keys);

/// [3, B, T] int64 (time, row, column) of M-RoPE: a text token has the same position on every axis; the tokens of a picture
/// or video count times, rows and columns of its grid from the position it begins at; text goes on behind the longer side.
/// `is_slot` [B, T] says which tokens are theirs, `grids` are those of the pictures in the order of their slots; the rest as
/// above.
Tensor picture_positions(const Tensor& is_slot, const std::vector<TokenGrid>& grids,
                         const std::vector<int64_t>& left_padding, const Tensor& first_keys);

/// [B, 1]: of the token behind each row.
Tensor next_positions(const Tensor& positions);

}  // namespace vlmtune
