// Rotary position embedding (Su et al. 2021, arXiv 2104.09864) and its long-context variants.
#pragma once
#include <string>
#include <vector>

#include "lib/nn/types.h"

namespace vlmtune {

/// The `rope_parameters` of a config (formerly `rope_scaling` and `rope_theta`).
struct RopeOptions {
  std::string type = "default";  ///< default, linear, dynamic, llama3, yarn, longrope
  int64_t head_dim = 0;
  double theta = 10000;
  double factor = 1;
  int64_t max_position_embeddings = 0;
  int64_t original_max_position_embeddings = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  double mscale = 0, mscale_all_dim = 0;             // yarn
  bool truncate = true;                              // yarn
  double attention_factor = 0;                       // yarn, longrope; 0: computed
  std::vector<double> short_factor, long_factor;     // longrope
  /// M-RoPE: channels (of head_dim / 2) that follow each axis of a token's position (time, row, column); empty: one axis.
  std::vector<int64_t> mrope_section;
  bool mrope_interleaved = false;  ///< axes take turns, instead of one after the other
};

struct RopeTables {
  Tensor cos, sin;  // [B or 1, 1, T, d] in the type of the queries
};

/// Tables for `positions` [B or 1, T], or [3, B, T] with M-RoPE (int64, on the CPU). `sequence_length` is the longest position + 1 of the call: kinds
/// that depend on the length (dynamic, longrope) choose their frequencies by it.
RopeTables rope_tables(const RopeOptions& options, const Tensor& positions, int64_t sequence_length,
                       torch::TensorOptions like);

/// Tables [1, 1, P, d] of patches on a plane: half of the channels turn with the row, half with the column. `positions`
/// [2, P] (int64, on the CPU).
RopeTables axial_rope_tables(double theta, int64_t head_dim, const Tensor& positions, torch::TensorOptions like);

}  // namespace vlmtune
