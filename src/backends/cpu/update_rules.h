// backends/cpu/update_rules.h — what the reference and the fast update agree on to the bit
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "backends/cpu/bfloat16.h"
#include "backends/cpu/philox.h"
#include "base/attributes.h"
#include "base/dtype.h"

namespace snug::cpu {

// sum_squares: the tree over the logical index. A block of kSumBlock elements has kSumLanes partial sums,
// lane l adding the squares of elements l, l + kSumLanes, … in order; lanes are then added by halves (l with
// l + 8, with l + 4, …), and block sums in index order. A ragged last block is the same with its missing
// squares 0.
constexpr int64_t kSumBlock = 4096, kSumLanes = 16;

// Adds lanes by halves; destroys `lanes`.
inline double add_lanes(double* lanes) {
  for (int64_t half = kSumLanes / 2; half > 0; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

// Positions in hyperparameters, control and gate (docs/operations.md, Update).
enum HyperParameter { kLearningRate = 0, kCorrection1 = 1, kCorrection2 = 2, kLossIsFinite = 3 };
enum Control { kClip = 0, kApply = 1, kNorm = 2, kPassed = 2, kFirstNonFinite = 3 };

// Scalars of one AdamW step, formed in f64 and rounded to Real as PyTorch does with Python's numbers
// (torch/optim/adamw.py, _single_tensor_adamw).
template <typename Real>
struct AdamwScalars {
  Real clip, decay, beta2, one_minus_beta1, one_minus_beta2, step_size, correction2_root, eps;

  AdamwScalars(const Attributes& attributes, const Real* hyperparameters, const Real* control) {
    const double rate = hyperparameters[kLearningRate];
    const double b1 = attributes.real("beta1"), b2 = attributes.real("beta2");
    clip = control[kClip];
    decay = static_cast<Real>(1 - rate * attributes.real("weight_decay"));
    beta2 = static_cast<Real>(b2);
    one_minus_beta1 = static_cast<Real>(1 - b1);
    one_minus_beta2 = static_cast<Real>(1 - b2);
    step_size = static_cast<Real>(rate / double{hyperparameters[kCorrection1]});
    correction2_root = static_cast<Real>(std::sqrt(double{hyperparameters[kCorrection2]}));
    eps = static_cast<Real>(attributes.real("eps"));
  }
};

// The other half of a split master: its 16 low bits. narrow_weight(x) and low_half(x) together are every finite x and
// the infinities exactly; a NaN stays one.
inline uint16_t low_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0 : bits & 0xFFFFu);
}
// From 0x8000 on, the low bits had carried into the weight.
inline float join_halves(BFloat16 weight, uint16_t low) {
  const uint32_t bits = static_cast<uint32_t>(weight.bits) << 16 | low;
  return std::bit_cast<float>(bits - ((bits & 0x8000u) << 1));
}

// x rounded to bf16 up or down with the probabilities that keep its mean: `random` is 16 even bits. A number that is not finite
// is rounded as a weight is.
inline BFloat16 narrow_stochastic(float x, uint32_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7F800000u) == 0x7F800000u) return narrow_weight(x);
  return {static_cast<uint16_t>((bits + (random & 0xFFFFu)) >> 16)};
}

// The random words of one update of one parameter. Element e of the moments takes word e: its low half for m, its high half for
// v. The weight takes the low half of word e of the next sample's stream.
struct UpdateDraws {
  RandomStream moments, weight;

  UpdateDraws(const uint32_t* randomness, int64_t stream)
      : moments(randomness, stream), weight(randomness, stream) {
    ++weight.sample;
  }
};

// The arrays of one AdamW step; all but the gradient are changed in place.
struct AdamwOperands {
  // f32 with its `copy` in bf16 or f16, or without; else bf16 in `narrow`, with its 16 low bits in `low` or, without a master, alone.
  float* weight = nullptr;
  std::byte* copy = nullptr;
  DType copy_type = DType::kF32;  // kF32 without one
  BFloat16* narrow = nullptr;
  uint16_t* low = nullptr;
  bool stochastic_weight = false;  // how a bf16 weight without a master is rounded
  // f32, or bf16, or codes with a scale a block.
  float *m = nullptr, *v = nullptr;
  BFloat16 *m_half = nullptr, *v_half = nullptr;
  uint8_t *m_codes = nullptr, *v_codes = nullptr;
  float *m_scales = nullptr, *v_scales = nullptr;
  // f32, or bf16.
  const float* gradient = nullptr;
  const BFloat16* narrow_gradient = nullptr;
};

// Where the operands stand that not every adamw has (docs/operations.md).
struct AdamwPositions {
  size_t scales = 0;      // output of m's scales, v's behind it
  size_t randomness = 0;  // input

  AdamwPositions(const Attributes& attributes, DType moments) {
    const bool second = attributes.integer_or("narrow", 0) != 0 || attributes.integer_or("split", 0) != 0;
    scales = second ? 5 : 4;
    randomness = scales + 2 + (moments == DType::kU8 ? 2 : 0);
  }
};

}  // namespace snug::cpu
