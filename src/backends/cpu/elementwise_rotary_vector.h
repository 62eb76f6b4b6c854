// backends/cpu/elementwise_rotary_vector.h — the rotation of one token's heads; included once per Highway target
#if defined(SNUG_BACKENDS_CPU_ELEMENTWISE_ROTARY_VECTOR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_BACKENDS_CPU_ELEMENTWISE_ROTARY_VECTOR_H_
#undef SNUG_BACKENDS_CPU_ELEMENTWISE_ROTARY_VECTOR_H_
#else
#define SNUG_BACKENDS_CPU_ELEMENTWISE_ROTARY_VECTOR_H_
#endif

#include <hwy/highway.h>

#include "backends/cpu/vector_io.h"
#include "base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {
namespace {

// One token's heads: x, y (H·2·pairs); cosine, sine (pairs). Rounded like the reference: two products, one
// sum.
template <typename A>
void rotate(const A* x, const float* cosine, const float* sine, float sign, int64_t heads, int64_t pairs,
            A* y) {
  const FloatVector signs = hn::Set(FloatTag(), sign);
  for (int64_t head = 0; head < heads; ++head) {
    const A *first = x + head * 2 * pairs, *second = first + pairs;
    A *to_first = y + head * 2 * pairs, *to_second = to_first + pairs;
    for_lanes(0, pairs, [&](auto lanes) {
      const FloatVector c = lanes.load(cosine), s = hn::Mul(signs, lanes.load(sine));
      const FloatVector x1 = lanes.load(first), x2 = lanes.load(second);
      lanes.store(hn::Sub(hn::Mul(x1, c), hn::Mul(x2, s)), to_first);
      lanes.store(hn::Add(hn::Mul(x2, c), hn::Mul(x1, s)), to_second);
    });
  }
}

void rotate_token(DType activation, const std::byte* x, const float* cosine, const float* sine, float sign,
                  int64_t heads, int64_t pairs, std::byte* y) {
  by_type(activation, [&](auto sample) {
    using A = decltype(sample);
    rotate(reinterpret_cast<const A*>(x), cosine, sine, sign, heads, pairs, reinterpret_cast<A*>(y));
  });
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
