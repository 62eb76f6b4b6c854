// backends/cpu/update_rules.h — what the reference and the fast update agree on to the bit
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "backends/cpu/bfloat16.h"
#include "base/attributes.h"

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

// The arrays of one AdamW step; all but the gradient are changed in place. The weight is f32 (`weight`, and its bf16
// `copy` or null), or split (`narrow` and `low`; `weight` is null then).
struct AdamwOperands {
  float* weight;
  BFloat16* copy;
  BFloat16* narrow;
  uint16_t* low;
  float *m, *v;
  const float* gradient;
};

}  // namespace snug::cpu
