#include "kernels/cuda/check.h"
#include "kernels/cuda/convert.cuh"

namespace vlmtune::kernels::cuda {
namespace {

constexpr int kThreads = 256;  // also the block of neighbours that share a scale in 8-bit moments

__global__ void lion_kernel(float* parameter, const float* gradient, float* momentum, int64_t count, UpdateRule rule) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  parameter[i] = lion_parameter(parameter[i], gradient[i], momentum[i], rule);
  momentum[i] = lion_momentum(gradient[i], momentum[i], rule);
}

/// Largest magnitude over the block, the same in every thread.
__device__ float block_largest(float value) {
  __shared__ float partial[kThreads / 32];
  float largest = fabsf(value);
  for (int offset = 16; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, offset));
  __syncthreads();  // an earlier one may still be read
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int w = 0; w < kThreads / 32; ++w) largest = fmaxf(largest, partial[w]);
  return largest;
}

/// One block of neighbours a thread block; both tables of values are in shared memory.
__global__ void adamw_8bit_kernel(float* parameter, const float* gradient, Moments8bit m, int64_t count,
                                  UpdateRule rule, float step, float root) {
  __shared__ float with_sign[256], without[256];
  with_sign[threadIdx.x] = m.average_table[threadIdx.x];
  without[threadIdx.x] = m.square_table[threadIdx.x];
  __syncthreads();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  float average = 0, square = 0;
  if (i < count) {
    average = adamw_average(with_sign[m.average_codes[i]] * m.average_scales[blockIdx.x], gradient[i], rule);
    square = adamw_square(without[m.square_codes[i]] * m.square_scales[blockIdx.x], gradient[i], rule);
    parameter[i] = adamw_parameter(parameter[i], average, square, step, root, rule);
  }
  const float largest_average = block_largest(average), largest_square = block_largest(square);
  if (threadIdx.x == 0) {
    m.average_scales[blockIdx.x] = largest_average;
    m.square_scales[blockIdx.x] = largest_square;
  }
  if (i >= count) return;
  m.average_codes[i] = nearest_of_256(with_sign, largest_average > 0 ? average * (1 / largest_average) : 0);
  m.square_codes[i] = nearest_of_256(without, largest_square > 0 ? square * (1 / largest_square) : 0);
}

__global__ void round_kernel(const float* values, uint16_t* rounded, int64_t count, uint64_t seed) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) rounded[i] = stochastic_bf16(__float_as_uint(values[i]), random_bits(seed, static_cast<uint64_t>(i)));
}

}  // namespace

void lion(float* parameter, const float* gradient, float* momentum, int64_t count, const UpdateRule& rule,
          cudaStream_t stream) {
  if (count == 0) return;
  lion_kernel<<<num_blocks(count, kThreads), kThreads, 0, stream>>>(parameter, gradient, momentum, count, rule);
  VLMTUNE_CUDA_CHECK(cudaGetLastError());
}

void adamw_8bit(float* parameter, const float* gradient, const Moments8bit& moments, int64_t count,
                const UpdateRule& rule, float step, float root, cudaStream_t stream) {
  if (count == 0) return;
  adamw_8bit_kernel<<<num_blocks(count, kThreads), kThreads, 0, stream>>>(parameter, gradient, moments, count, rule,
                                                                          step, root);
  VLMTUNE_CUDA_CHECK(cudaGetLastError());
}

void round_stochastically(const float* values, void* rounded, int64_t count, uint64_t seed, cudaStream_t stream) {
  if (count == 0) return;
  round_kernel<<<num_blocks(count, kThreads), kThreads, 0, stream>>>(values, static_cast<uint16_t*>(rounded), count,
                                                                     seed);
  VLMTUNE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace vlmtune::kernels::cuda
