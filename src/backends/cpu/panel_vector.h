// backends/cpu/panel_vector.h — the vector forms of widening and finishing rows; included once per Highway target by panel.cc
#if defined(SNUG_BACKENDS_CPU_PANEL_VECTOR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_BACKENDS_CPU_PANEL_VECTOR_H_
#undef SNUG_BACKENDS_CPU_PANEL_VECTOR_H_
#else
#define SNUG_BACKENDS_CPU_PANEL_VECTOR_H_
#endif

#include "backends/cpu/vector_io.h"
#include "base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {
namespace {

void WidenRow(const BFloat16* from, int64_t columns, float* to) {
  for_lanes(0, columns, [&](auto lanes) HWY_ATTR { lanes.store(lanes.load(from), to); });
}

template <typename A, typename Bias>
HWY_INLINE void finish_row(const float* product, const Bias* bias, const A* residual, int64_t columns, A* y) {
  for_lanes(0, columns, [&](auto lanes) HWY_ATTR {
    FloatVector x = lanes.load(product);
    if (bias != nullptr) x = hn::Add(x, lanes.load(bias));
    if (residual != nullptr) x = hn::Add(lanes.load(residual), rounded_vector<A>(x));
    lanes.store(x, y);
  });
}

template <typename A>
HWY_INLINE void finish_row(const float* product, const std::byte* bias, DType bias_dtype,
                           const std::byte* residual, int64_t columns, std::byte* y) {
  if (bias_dtype == DType::kBF16)
    finish_row(product, reinterpret_cast<const BFloat16*>(bias), reinterpret_cast<const A*>(residual),
               columns, reinterpret_cast<A*>(y));
  else
    finish_row(product, reinterpret_cast<const float*>(bias), reinterpret_cast<const A*>(residual), columns,
               reinterpret_cast<A*>(y));
}

void FinishRow(const float* product, const std::byte* bias, DType bias_dtype, const std::byte* residual,
               int64_t columns, DType dtype, std::byte* y) {
  if (dtype == DType::kBF16)
    finish_row<BFloat16>(product, bias, bias_dtype, residual, columns, y);
  else
    finish_row<float>(product, bias, bias_dtype, residual, columns, y);
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
