// Frequencies as in transformers' modeling_rope_utils; llama3 from the Llama 3.1 release, YaRN from arXiv 2309.00071,
// LongRoPE from arXiv 2402.13753.
#include "lib/nn/rope.h"

#include <cmath>
#include <numbers>

#include "lib/base/errors.h"
#include "lib/memory/transfer.h"

namespace vlmtune {
namespace {

struct Frequencies {
  std::vector<double> inverse;  // [d / 2]
  double scale = 1;             // cos and sin are multiplied by it
};

/// theta^(-i / d) rounded to fp32, as the reference has it: at long positions the rounding is visible.
std::vector<double> plain(double theta, int64_t dim) {
  const auto exponents = torch::arange(0, dim, 2, torch::kLong).to(torch::kFloat) / static_cast<double>(dim);
  const auto inverse = torch::pow(torch::Scalar(theta), exponents).reciprocal().to(torch::kDouble);
  return {inverse.data_ptr<double>(), inverse.data_ptr<double>() + inverse.numel()};
}

std::vector<double> llama3(const RopeOptions& o) {
  auto inverse = plain(o.theta, o.head_dim);
  const double original = static_cast<double>(o.original_max_position_embeddings);
  const double low = original / o.low_freq_factor, high = original / o.high_freq_factor;
  for (auto& f : inverse) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength < high) continue;
    if (wavelength > low) {
      f /= o.factor;
    } else {
      const double s = (original / wavelength - o.low_freq_factor) / (o.high_freq_factor - o.low_freq_factor);
      f = (1 - s) * f / o.factor + s * f;
    }
  }
  return inverse;
}

double yarn_scale(double factor, double m) { return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1; }

Frequencies yarn(const RopeOptions& o) {
  const double dim = static_cast<double>(o.head_dim),
               original = static_cast<double>(o.original_max_position_embeddings);
  const auto find_dim = [&](double rotations) {
    return dim * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(o.theta));
  };
  double low = find_dim(o.beta_fast), high = find_dim(o.beta_slow);
  if (o.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  Frequencies result{plain(o.theta, o.head_dim), o.attention_factor};
  for (size_t j = 0; j < result.inverse.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    result.inverse[j] = result.inverse[j] / o.factor * ramp + result.inverse[j] * (1 - ramp);
  }
  if (result.scale == 0)
    result.scale = o.mscale != 0 && o.mscale_all_dim != 0
                       ? yarn_scale(o.factor, o.mscale) / yarn_scale(o.factor, o.mscale_all_dim)
                       : yarn_scale(o.factor, 1);
  return result;
}

Frequencies longrope(const RopeOptions& o, int64_t length) {
  const auto& stretch = length > o.original_max_position_embeddings ? o.long_factor : o.short_factor;
  Frequencies result{plain(o.theta, o.head_dim), o.attention_factor};
  VLMTUNE_CHECK(stretch.size() == result.inverse.size(), "longrope factors: {} of {}", stretch.size(),
                result.inverse.size());
  for (size_t j = 0; j < stretch.size(); ++j) result.inverse[j] /= stretch[j];
  if (result.scale == 0)
    result.scale =
        o.factor <= 1
            ? 1
            : std::sqrt(1 + std::log(o.factor) / std::log(static_cast<double>(o.original_max_position_embeddings)));
  return result;
}

Frequencies frequencies(const RopeOptions& o, int64_t length) {
  if (o.type == "linear") {
    auto inverse = plain(o.theta, o.head_dim);
    for (auto& f : inverse) f /= o.factor;
    return {inverse};
  }
  if (o.type == "dynamic") {
    if (length <= o.max_position_embeddings) return {plain(o.theta, o.head_dim)};
    const double dim = static_cast<double>(o.head_dim);
    const double stretch =
        o.factor * static_cast<double>(length) / static_cast<double>(o.max_position_embeddings) - (o.factor - 1);
    return {plain(o.theta * std::pow(stretch, dim / (dim - 2)), o.head_dim)};
  }
  if (o.type == "doubling") {
    const double dim = static_cast<double>(o.head_dim);
    return {plain(o.theta * std::pow(doubling_factor(o, length), dim / (dim - 2)), o.head_dim)};
  }
  if (o.type == "llama3") return {llama3(o)};
  if (o.type == "yarn") return yarn(o);
  if (o.type == "longrope") return longrope(o, length);
  VLMTUNE_CHECK(o.type == "default", "rope type {}", o.type);
  return {plain(o.theta, o.head_dim)};
}

/// The axis of a token's position that each pair of channels follows.
std::vector<int64_t> channel_axes(const RopeOptions& o) {
  std::vector<int64_t> axes(static_cast<size_t>(o.head_dim / 2), 0);
  const auto& sections = o.mrope_section;
  if (o.mrope_interleaved) {
    for (const size_t axis : {1U, 2U})
      for (size_t j = axis; j < std::min(axes.size(), 3 * static_cast<size_t>(sections[axis])); j += 3)
        axes[j] = static_cast<int64_t>(axis);
    return axes;
  }
  size_t j = 0;
  for (size_t i = 0; i < sections.size(); ++i)
    for (int64_t n = 0; n < sections[i]; ++n) axes.at(j++) = static_cast<int64_t>(i % 3);
  return axes;
}

/// angles [B or 1, T, d / 2], each for a pair of channels.
RopeTables tables_of(const Tensor& angles, double scale, torch::TensorOptions like) {
  const auto both = torch::cat({angles, angles}, -1).unsqueeze(1);  // [B, 1, T, d]
  const auto table = [&](const Tensor& values) { return to_device((values * scale).to(like.dtype()), like.device()); };
  return {table(both.cos()), table(both.sin()), {}};
}

}  // namespace

RopeTables rope_tables(const RopeOptions& options, const Tensor& positions, int64_t sequence_length,
                       torch::TensorOptions like) {
  const auto f = frequencies(options, sequence_length);
  const auto inverse = torch::tensor(f.inverse, torch::kDouble).to(torch::kFloat);  // [d / 2]
  const auto of_channel =
      positions.dim() == 3
          ? positions.index_select(0, torch::tensor(channel_axes(options), torch::kLong)).permute({1, 2, 0})
          : positions.unsqueeze(-1);  // [B or 1, T, d / 2 or 1]
  return tables_of(of_channel.to(torch::kFloat) * inverse, f.scale, like);
}

double doubling_factor(const RopeOptions& o, int64_t length) {
  const double times = static_cast<double>(length) / static_cast<double>(o.original_max_position_embeddings);
  return std::max(std::exp2(std::ceil(std::log2(times) + 1)) - 1, 1.0);
}

bool same_frequencies(const RopeOptions& o, int64_t length, int64_t other) {
  return o.type != "doubling" || doubling_factor(o, length) == doubling_factor(o, other);
}

Tensor logarithmic_query_scale(int64_t trained_length, int64_t past, int64_t tokens, torch::TensorOptions like) {
  if (past + tokens <= trained_length) return {};
  const auto places = torch::arange(past + 1, past + tokens + 1, torch::kDouble);
  const auto scale = (places.log() / std::log(static_cast<double>(trained_length))).clamp_min(1);
  return to_device(scale.to(like.dtype()).view({1, 1, tokens, 1}), like.device());
}

RopeTables axial_rope_tables(double theta, int64_t head_dim, const Tensor& positions, torch::TensorOptions like) {
  const auto inverse = torch::tensor(plain(theta, head_dim / 2), torch::kDouble).to(torch::kFloat);  // [d / 4]
  const auto angles = positions.to(torch::kFloat).unsqueeze(-1) * inverse;                           // [2, P, d / 4]
  return tables_of(torch::cat({angles[0], angles[1]}, -1).unsqueeze(0), 1, like);
}

}  // namespace vlmtune
