#include "backends/cpu/head_rows.h"

#include "backends/cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/head_rows_vector.h"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include "backends/cpu/head_rows_vector.h"

#include <algorithm>
#include <cmath>

namespace snug::cpu {
namespace {

HWY_EXPORT(RowLoss);
HWY_EXPORT(RowLossGradient);
HWY_EXPORT(Dot);

}  // namespace

double row_loss(const float* logits, int64_t vocabulary, int32_t target) {
  return target == kIgnoredTarget ? 0.0 : HWY_DYNAMIC_DISPATCH(RowLoss)(logits, vocabulary, target);
}

double row_loss_gradient(float* logits, int64_t vocabulary, int32_t target, float factor, LogitGradient form) {
  if (target == kIgnoredTarget) {
    std::fill_n(logits, vocabulary, 0.0f);
    return 0.0;
  }
  return HWY_DYNAMIC_DISPATCH(RowLossGradient)(logits, vocabulary, target, factor, form);
}

float dot(const float* x, const std::byte* w, DType w_dtype, int64_t columns) {
  return HWY_DYNAMIC_DISPATCH(Dot)(x, w, w_dtype, columns);
}

}  // namespace snug::cpu
