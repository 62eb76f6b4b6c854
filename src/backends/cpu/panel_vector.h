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

void WidenRow(const std::byte* from, DType dtype, int64_t columns, float* to) {
  by_type(dtype, [&](auto sample) HWY_ATTR {
    const auto* row = reinterpret_cast<const decltype(sample)*>(from);
    for_lanes(0, columns, [&](auto lanes) HWY_ATTR { lanes.store(lanes.load(row), to); });
  });
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

void FinishRow(const float* product, const std::byte* bias, DType bias_dtype, const std::byte* residual,
               int64_t columns, DType dtype, std::byte* y) {
  by_type(dtype, [&](auto y_sample) HWY_ATTR {
    using A = decltype(y_sample);
    by_type(bias_dtype, [&](auto bias_sample) HWY_ATTR {
      finish_row(product, reinterpret_cast<const decltype(bias_sample)*>(bias),
                 reinterpret_cast<const A*>(residual), columns, reinterpret_cast<A*>(y));
    });
  });
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
