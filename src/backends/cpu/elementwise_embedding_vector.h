// backends/cpu/elementwise_embedding_vector.h — adding a row to an f32 row; included once per Highway target
#if defined(SNUG_BACKENDS_CPU_ELEMENTWISE_EMBEDDING_VECTOR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_BACKENDS_CPU_ELEMENTWISE_EMBEDDING_VECTOR_H_
#undef SNUG_BACKENDS_CPU_ELEMENTWISE_EMBEDDING_VECTOR_H_
#else
#define SNUG_BACKENDS_CPU_ELEMENTWISE_EMBEDDING_VECTOR_H_
#endif

#include <hwy/highway.h>

#include "backends/cpu/vector_io.h"
#include "base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {
namespace {

// sum[first, last) += row[first, last)
void accumulate_row(DType activation, const std::byte* row, float* sum, int64_t first, int64_t last) {
  by_type(activation, [&](auto sample) {
    const auto* from = reinterpret_cast<const decltype(sample)*>(row);
    for_lanes(first, last, [&](auto lanes) { lanes.store(hn::Add(lanes.load(sum), lanes.load(from)), sum); });
  });
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
