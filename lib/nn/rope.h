// Rotary position embedding (Su et al. 2021, arXiv 2104.09864) and its long-context variants.
#pragma once
#include <string>
#include <vector>

#include "lib/nn/types.h"

namespace vlmtune {

/// The `rope_parameters` of a config (formerly `rope_scaling` and `rope_theta`).
struct RopeOptions {
  std::string type = "default";  ///< default, linear, dynamic, llama3, yarn, longrope, doubling
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
  Tensor cos, sin;          // [B or 1, 1, T, d] in the type of the queries
  Tensor query_scale = {};  // [1, 1, T, 1], a factor of the rotated queries; undefined: none
};

/// Tables for `positions` [B or 1, T], or [3, B, T] with M-RoPE (int64, on the CPU). `sequence_length` is the longest position + 1 of the call: kinds
/// that depend on the length (dynamic, longrope) choose their frequencies by it.
RopeTables rope_tables(const RopeOptions& options, const Tensor& positions, int64_t sequence_length,
                       torch::TensorOptions like);

/// The factor in front of the first Qwen's base, which grows when a sequence passes its trained length and each time that it
/// doubles: 1, 3, 7, 15...
double doubling_factor(const RopeOptions& options, int64_t sequence_length);

/// Whether keys that were rotated by the frequencies of one length go with those of another. Other kinds than the first
/// Qwen's are taken to: transformers keeps their keys, too.
bool same_frequencies(const RopeOptions& options, int64_t length, int64_t other_length);

/// log(place) / log(trained_length) of tokens behind `past` others, places from 1, where it is above 1 (Su 2021,
/// kexue.fm/archives/8823), as RopeTables::query_scale; undefined when it is 1 for all of them.
Tensor logarithmic_query_scale(int64_t trained_length, int64_t past, int64_t tokens, torch::TensorOptions like);

/// Tables [1, 1, P, d] of patches on a plane: half of the channels turn with the row, half with the column. `positions`
/// [2, P] (int64, on the CPU).
RopeTables axial_rope_tables(double theta, int64_t head_dim, const Tensor& positions, torch::TensorOptions like);

}  // namespace vlmtune
