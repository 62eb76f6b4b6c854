#include "backends/cpu/panel.h"

#include "backends/cpu/bfloat16.h"
#include "backends/cpu/vector_targets.h"
#include "base/errors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/panel.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for every target.
#include <hwy/highway.h>

#include "backends/cpu/vector_io.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu {
namespace HWY_NAMESPACE {

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

}  // namespace HWY_NAMESPACE
}  // namespace snug::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstring>

namespace snug::cpu {
namespace {

HWY_EXPORT(WidenRow);
HWY_EXPORT(FinishRow);

// Below this many elements one thread is faster than waking the others.
constexpr int64_t kParallelElements = 32 * 1024;

void check_dtype(DType dtype) {
  require(dtype == DType::kF32 || dtype == DType::kBF16, "a panel of {} elements", dtype_name(dtype));
}

}  // namespace

void widen_rows(ConstRows from, int64_t rows, int64_t columns, Rows to) {
  check_dtype(from.dtype);
  require(to.dtype == DType::kF32, "widening to {}", dtype_name(to.dtype));
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelElements)
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* source = from.from(row, 0).data;
    float* target = to.from(row, 0).f32();
    if (from.dtype == DType::kBF16)
      HWY_DYNAMIC_DISPATCH(WidenRow)(reinterpret_cast<const BFloat16*>(source), columns, target);
    else
      std::memcpy(target, source, static_cast<size_t>(columns) * sizeof(float));
  }
}

void finish_rows(ConstRows product, ConstRows bias, ConstRows residual, int64_t rows, int64_t columns,
                 Rows y) {
  check_dtype(y.dtype);
  check_dtype(bias.dtype);
  require(product.dtype == DType::kF32, "finishing a product of {}", dtype_name(product.dtype));
  require(residual.data == nullptr || residual.dtype == y.dtype, "a residual of {} for {}",
          dtype_name(residual.dtype), dtype_name(y.dtype));
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelElements)
  for (int64_t row = 0; row < rows; ++row) HWY_DYNAMIC_DISPATCH(FinishRow)
  (product.from(row, 0).f32(), bias.data, bias.dtype,
   residual.data == nullptr ? nullptr : residual.from(row, 0).data, columns, y.dtype, y.from(row, 0).data);
}

}  // namespace snug::cpu
#endif  // HWY_ONCE
