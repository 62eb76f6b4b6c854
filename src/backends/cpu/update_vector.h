// backends/cpu/update_vector.h — one block of a sum of squares, one range of AdamW; included once per Highway target
#if defined(SNUG_BACKENDS_CPU_UPDATE_VECTOR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_BACKENDS_CPU_UPDATE_VECTOR_H_
#undef SNUG_BACKENDS_CPU_UPDATE_VECTOR_H_
#else
#define SNUG_BACKENDS_CPU_UPDATE_VECTOR_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

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

// Halves of 32-bit words: 16 bits an element.
WordVector load_halves(AllLanes lanes, const uint16_t* from) {
  const hn::Rebind<uint16_t, FloatTag> halves;
  return hn::PromoteTo(WordTag(), hn::LoadU(halves, from + lanes.at));
}
WordVector load_halves(FirstLanes lanes, const uint16_t* from) {
  uint16_t padded[kLanes] = {};
  std::memcpy(padded, from + lanes.at, static_cast<size_t>(lanes.count) * sizeof(uint16_t));
  return load_halves(AllLanes{0}, padded);
}
void store_halves(AllLanes lanes, WordVector bits, uint16_t* to) {
  const hn::Rebind<uint16_t, FloatTag> halves;
  const hn::Rebind<int32_t, FloatTag> integers;
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(integers, bits)), halves, to + lanes.at);
}
void store_halves(FirstLanes lanes, WordVector bits, uint16_t* to) {
  uint16_t padded[kLanes];
  store_halves(AllLanes{0}, bits, padded);
  std::memcpy(to + lanes.at, padded, static_cast<size_t>(lanes.count) * sizeof(uint16_t));
}

// The weight in f32, with its bf16 copy or without.
struct WholeWeight {
  float* weight;
  BFloat16* copy;

  template <typename Lanes>
  HWY_INLINE FloatVector load(Lanes lanes) const {
    return lanes.load(weight);
  }
  template <typename Lanes>
  HWY_INLINE void store(Lanes lanes, FloatVector x) const {
    lanes.store(x, weight);
    if (copy != nullptr) lanes.store_weight(x, copy);
  }
};

// The weight as bf16 and the 16 low bits: low_half and join_halves of update_rules.h.
struct SplitWeight {
  BFloat16* narrow;
  uint16_t* low;

  template <typename Lanes>
  HWY_INLINE FloatVector load(Lanes lanes) const {
    const WordTag words;
    const WordVector high = load_halves(lanes, reinterpret_cast<const uint16_t*>(narrow));
    const WordVector bits = hn::Or(hn::ShiftLeft<16>(high), load_halves(lanes, low));
    const WordVector carried = hn::ShiftLeft<1>(hn::And(bits, hn::Set(words, 0x8000)));
    return hn::BitCast(FloatTag(), hn::Sub(bits, carried));
  }
  template <typename Lanes>
  HWY_INLINE void store(Lanes lanes, FloatVector x) const {
    const WordTag words;
    lanes.store_weight(x, narrow);
    const WordVector bits = hn::And(hn::BitCast(words, x), hn::Set(words, 0xFFFF));
    const auto nan = hn::RebindMask(words, hn::IsNaN(x));
    store_halves(lanes, hn::IfThenElse(nan, hn::Zero(words), bits), low);
  }
};

template <typename Weight>
HWY_INLINE bool adamw_lanes(const Weight& weight, const AdamwOperands& o, const AdamwScalars<float>& s,
                            int64_t first, int64_t last) {
  const FloatTag floats;
  const auto set = [&](float value) { return hn::Set(floats, value); };
  const FloatVector clip = set(s.clip), decay = set(s.decay), beta2 = set(s.beta2), step = set(s.step_size);
  const FloatVector keep1 = set(s.one_minus_beta1), keep2 = set(s.one_minus_beta2);
  const FloatVector root = set(s.correction2_root), eps = set(s.eps);
  WordVector changed = hn::Zero(WordTag());
  for_lanes(first, last, [&](auto lanes) {
    const FloatVector gradient = hn::Mul(lanes.load(o.gradient), clip);
    const FloatVector before = weight.load(lanes);
    const FloatVector m0 = lanes.load(o.m);
    const FloatVector m = hn::Add(m0, hn::Mul(keep1, hn::Sub(gradient, m0)));
    const FloatVector v =
        hn::Add(hn::Mul(lanes.load(o.v), beta2), hn::Mul(hn::Mul(keep2, gradient), gradient));
    const FloatVector denominator = hn::Add(hn::Div(hn::Sqrt(v), root), eps);
    const FloatVector after = hn::Sub(hn::Mul(before, decay), hn::Mul(step, hn::Div(m, denominator)));
    lanes.store(m, o.m);
    lanes.store(v, o.v);
    weight.store(lanes, after);
    // Lanes beyond a ragged end may hold 0/0.
    const FloatVector difference = lanes.select(
        hn::BitCast(floats, hn::Xor(hn::BitCast(WordTag(), before), hn::BitCast(WordTag(), after))));
    changed = hn::Or(changed, hn::BitCast(WordTag(), difference));
  });
  return !hn::AllTrue(WordTag(), hn::Eq(changed, hn::Zero(WordTag())));
}

// Elements [first, last); whether any weight changed.
bool adamw_range(const AdamwOperands& o, const AdamwScalars<float>& s, int64_t first, int64_t last) {
  return o.weight != nullptr ? adamw_lanes(WholeWeight{o.weight, o.copy}, o, s, first, last)
                             : adamw_lanes(SplitWeight{o.narrow, o.low}, o, s, first, last);
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
