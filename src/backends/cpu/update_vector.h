// backends/cpu/update_vector.h — one block of a sum of squares, one range of AdamW; included once per Highway target
#if defined(SNUG_BACKENDS_CPU_UPDATE_VECTOR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_BACKENDS_CPU_UPDATE_VECTOR_H_
#undef SNUG_BACKENDS_CPU_UPDATE_VECTOR_H_
#else
#define SNUG_BACKENDS_CPU_UPDATE_VECTOR_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "backends/cpu/update_rules.h"
#include "backends/cpu/vector_io.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {
namespace {

// Sum of squares of one block of at most kSumBlock elements. The square of an f32 is exact in f64.
double sum_block(const float* g, int64_t count) {
  using DoubleTag = hn::ScalableTag<double>;
  const DoubleTag doubles;
  const hn::Rebind<float, DoubleTag> halves;
  constexpr int64_t kDoubles = HWY_MAX_BYTES / 8, kVectors = kSumLanes / kDoubles;
  hn::Vec<DoubleTag> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(doubles);
  const auto add = [&](const float* from) {
    for (int64_t k = 0; k < kVectors; ++k) {
      const auto value = hn::PromoteTo(doubles, hn::LoadU(halves, from + k * kDoubles));
      sums[k] = hn::MulAdd(value, value, sums[k]);
    }
  };
  int64_t at = 0;
  for (; at + kSumLanes <= count; at += kSumLanes) add(g + at);
  if (at < count) {
    float padded[kSumLanes] = {};
    std::copy(g + at, g + count, padded);
    add(padded);
  }
  double lanes[kSumLanes];
  for (int64_t k = 0; k < kVectors; ++k) hn::StoreU(sums[k], doubles, lanes + k * kDoubles);
  return add_lanes(lanes);
}

// Elements [first, last); whether any weight changed.
bool adamw_range(const AdamwOperands& o, const AdamwScalars<float>& s, int64_t first, int64_t last) {
  const FloatTag floats;
  const auto set = [&](float value) { return hn::Set(floats, value); };
  const FloatVector clip = set(s.clip), decay = set(s.decay), beta2 = set(s.beta2), step = set(s.step_size);
  const FloatVector keep1 = set(s.one_minus_beta1), keep2 = set(s.one_minus_beta2);
  const FloatVector root = set(s.correction2_root), eps = set(s.eps);
  WordVector changed = hn::Zero(WordTag());
  for_lanes(first, last, [&](auto lanes) {
    const FloatVector gradient = hn::Mul(lanes.load(o.gradient), clip);
    const FloatVector before = lanes.load(o.weight);
    const FloatVector m0 = lanes.load(o.m);
    const FloatVector m = hn::Add(m0, hn::Mul(keep1, hn::Sub(gradient, m0)));
    const FloatVector v =
        hn::Add(hn::Mul(lanes.load(o.v), beta2), hn::Mul(hn::Mul(keep2, gradient), gradient));
    const FloatVector denominator = hn::Add(hn::Div(hn::Sqrt(v), root), eps);
    const FloatVector after = hn::Sub(hn::Mul(before, decay), hn::Mul(step, hn::Div(m, denominator)));
    lanes.store(m, o.m);
    lanes.store(v, o.v);
    lanes.store(after, o.weight);
    if (o.copy != nullptr) lanes.store_weight(after, o.copy);
    // Lanes beyond a ragged end may hold 0/0.
    const FloatVector difference = lanes.select(
        hn::BitCast(floats, hn::Xor(hn::BitCast(WordTag(), before), hn::BitCast(WordTag(), after))));
    changed = hn::Or(changed, hn::BitCast(WordTag(), difference));
  });
  return !hn::AllTrue(WordTag(), hn::Eq(changed, hn::Zero(WordTag())));
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
