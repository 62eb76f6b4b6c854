#include "backends/cpu/panel.h"

#include "backends/cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/panel_vector.h"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include "backends/cpu/panel_vector.h"

#include "base/errors.h"
#include "base/float16.h"

#include <cstring>

namespace snug::cpu {
namespace {

HWY_EXPORT(WidenRow);
HWY_EXPORT(FinishRow);

// Below this many elements one thread is faster than waking the others.
constexpr int64_t kParallelElements = 32 * 1024;

void check_dtype(DType dtype) {
  require(dtype == DType::kF32 || is_half(dtype), "a panel of {} elements", dtype_name(dtype));
}

}  // namespace

void widen_rows(ConstRows from, int64_t rows, int64_t columns, Rows to) {
  check_dtype(from.dtype);
  require(to.dtype == DType::kF32, "widening to {}", dtype_name(to.dtype));
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelElements)
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* source = from.from(row, 0).data;
    float* target = to.from(row, 0).f32();
    if (is_half(from.dtype))
      HWY_DYNAMIC_DISPATCH(WidenRow)(source, from.dtype, columns, target);
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
