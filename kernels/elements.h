// The arithmetic of single elements, one text for the CPU's loops and CUDA's kernels, so that tests of the one exercise the other.
#pragma once
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define VLMTUNE_SHARED __host__ __device__ __forceinline__
#else
#define VLMTUNE_SHARED inline __attribute__((always_inline))
#endif

namespace vlmtune::kernels {

/// d of RMSNorm's input: `mean` is that of dy weight x over the row, times scale squared; `scale` the row's 1 / rms.
VLMTUNE_SHARED float rms_norm_gradient(float dy, float weight, float x, float mean, float scale) {
  return (dy * weight - x * mean) * scale;
}

/// d of gate and up for y = gate sigmoid(gate) up, with s = sigmoid(gate).
VLMTUNE_SHARED float swiglu_gate_gradient(float dy, float gate, float up, float s) {
  return dy * up * s * (1.0f + gate * (1.0f - s));
}
VLMTUNE_SHARED float swiglu_up_gradient(float dy, float gate, float s) { return dy * gate * s; }

/// A random number for a place in the sequence of a seed: two rounds of a 64-bit mixer (splitmix64's).
VLMTUNE_SHARED uint32_t random_bits(uint64_t seed, uint64_t place) {
  uint64_t x = seed + place * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return static_cast<uint32_t>(x >> 32);
}

/// The bits of a bf16 number, up or down with the probability that makes it right on average; `bits` are those of the fp32 one.
VLMTUNE_SHARED uint16_t stochastic_bf16(uint32_t bits, uint32_t noise) {
  const bool finite = (bits & 0x7F800000u) != 0x7F800000u;
  return static_cast<uint16_t>((bits + (finite ? noise & 0xFFFFu : 0u)) >> 16);
}

/// What an update of a parameter needs; decay is the factor that the parameter keeps.
struct UpdateRule {
  float rate, beta1, beta2, eps, decay;
};
inline UpdateRule rule_of(double rate, double beta1, double beta2, double eps, double weight_decay) {
  return {static_cast<float>(rate), static_cast<float>(beta1), static_cast<float>(beta2), static_cast<float>(eps),
          static_cast<float>(1 - rate * weight_decay)};
}

VLMTUNE_SHARED float lion_parameter(float parameter, float gradient, float momentum, const UpdateRule& r) {
  const float direction = r.beta1 * momentum + (1 - r.beta1) * gradient;
  return parameter * r.decay - r.rate * (direction > 0 ? 1.0f : direction < 0 ? -1.0f : 0.0f);
}
VLMTUNE_SHARED float lion_momentum(float gradient, float momentum, const UpdateRule& r) {
  return r.beta2 * momentum + (1 - r.beta2) * gradient;
}

VLMTUNE_SHARED float adamw_average(float average, float gradient, const UpdateRule& r) {
  return r.beta1 * average + (1 - r.beta1) * gradient;
}
VLMTUNE_SHARED float adamw_square(float square, float gradient, const UpdateRule& r) {
  return r.beta2 * square + (1 - r.beta2) * gradient * gradient;
}
/// `step` is the rate over 1 - beta1^n, `root` the square root of 1 - beta2^n.
VLMTUNE_SHARED float adamw_parameter(float parameter, float average, float square, float step, float root,
                                     const UpdateRule& r) {
  return parameter * r.decay - step * average / (std::sqrt(square) / root + r.eps);
}

/// The place of the number nearest to `value` in a sorted table of 256.
VLMTUNE_SHARED uint8_t nearest_of_256(const float* table, float value) {
  int at = 0;
  for (int half = 128; half > 0; half /= 2)
    if (table[at + half] <= value) at += half;
  if (at < 255 && std::fabs(table[at + 1] - value) < std::fabs(value - table[at])) ++at;
  return static_cast<uint8_t>(at);
}

}  // namespace vlmtune::kernels
