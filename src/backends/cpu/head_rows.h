// backends/cpu/head_rows.h — the vector parts of the head: cross-entropy of one row of logits, and one logit
//
// Everything here runs on the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace snug::cpu {

// A target that is not supervised.
constexpr int32_t kIgnoredTarget = -100;

// lse(logits) − logits[target]; 0 for kIgnoredTarget, without reading the logits.
double row_loss(const float* logits, int64_t vocabulary, int32_t target);

// The same loss, and logits ← (softmax(logits) − onehot(target)) · factor; all zeros for kIgnoredTarget. kRounded: to the nearest bf16,
// ties to even, stored as f32. kBF16: the same stored as bf16, `vocabulary` elements from the row's beginning on.
enum class LogitGradient : uint8_t { kF32, kRounded, kBF16 };
double row_loss_gradient(float* logits, int64_t vocabulary, int32_t target, float factor, LogitGradient form);

// Σ_c x[c]·w[c] for f32 x and f32, bf16 or f16 w.
float dot(const float* x, const std::byte* w, DType w_dtype, int64_t columns);

}  // namespace snug::cpu
