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

// Positions in hyperparameters and control (docs/operations.md, Update).
enum HyperParameter { kLearningRate = 0, kCorrection1 = 1, kCorrection2 = 2, kLossIsFinite = 3 };
enum Control { kClip = 0, kApply = 1, kNorm = 2, kFirstNonFinite = 3 };

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

// The arrays of one AdamW step in f32; all but the gradient are changed in place.
struct AdamwOperands {
  float *weight, *m, *v;
  const float* gradient;
  BFloat16* copy;  // null without `narrow`
};

}  // namespace snug::cpu
