// backends/cpu/head_rows_vector.h — the vector forms of the head's rows; included once per Highway target by head_rows.cc
#if defined(SNUG_BACKENDS_CPU_HEAD_ROWS_VECTOR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_BACKENDS_CPU_HEAD_ROWS_VECTOR_H_
#undef SNUG_BACKENDS_CPU_HEAD_ROWS_VECTOR_H_
#else
#define SNUG_BACKENDS_CPU_HEAD_ROWS_VECTOR_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/head_rows.h"
#include "backends/cpu/vector_exp2.h"
#include "base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;

HWY_INLINE FloatVector largest(const float* logits, int64_t vocabulary) {
  const FloatTag d;
  FloatVector m0 = hn::Set(d, logits[0]), m1 = m0;
  int64_t c = 0;
  for (; c + 2 * kLanes <= vocabulary; c += 2 * kLanes) {
    m0 = hn::Max(m0, hn::LoadU(d, logits + c));
    m1 = hn::Max(m1, hn::LoadU(d, logits + c + kLanes));
  }
  float rest = logits[0];
  for (; c < vocabulary; ++c) rest = std::max(rest, logits[c]);
  return hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Set(d, rest)));
}

// Σ e^(logit − base); kStore: writes each term over its logit. The terms and their order are the same either way.
template <bool kStore, typename Logits>
HWY_INLINE float sum_exponentials(Logits* logits, int64_t vocabulary, FloatVector base) {
  const FloatTag d;
  const FloatVector log2e = hn::Set(d, kLog2E);
  FloatVector sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t c = 0;
  for (; c + 4 * kLanes <= vocabulary; c += 4 * kLanes)
    for (int64_t part = 0; part < 4; ++part) {
      const FloatVector e =
          exp2_vector(hn::Mul(hn::Sub(hn::LoadU(d, logits + c + part * kLanes), base), log2e));
      if constexpr (kStore) hn::StoreU(e, d, logits + c + part * kLanes);
      sums[part] = hn::Add(sums[part], e);
    }
  for_lanes(c, vocabulary, [&](auto lanes) HWY_ATTR {
    const FloatVector e = exp2_vector(hn::Mul(hn::Sub(lanes.load(logits), base), log2e));
    if constexpr (kStore) lanes.store(e, logits);
    sums[0] = hn::Add(sums[0], lanes.select(e));
  });
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

double RowLoss(const float* logits, int64_t vocabulary, int32_t target) {
  const FloatVector base = largest(logits, vocabulary);
  const float sum = sum_exponentials<false>(logits, vocabulary, base);
  return double{hn::GetLane(base)} + std::log(double{sum}) - double{logits[target]};
}

double RowLossGradient(float* logits, int64_t vocabulary, int32_t target, float factor, LogitGradient form) {
  const FloatVector base = largest(logits, vocabulary);
  const double logit = logits[target];
  const float sum = sum_exponentials<true>(logits, vocabulary, base);
  const FloatVector scale = hn::Set(FloatTag(), factor / sum);
  const float of_target = hn::GetLane(hn::Mul(hn::Set(FloatTag(), logits[target]), scale)) - factor;
  const BFloat16 narrow_of_target = narrow_nearest_even(of_target);
  switch (form) {
    case LogitGradient::kF32:
      for_lanes(0, vocabulary,
                [&](auto lanes) HWY_ATTR { lanes.store(hn::Mul(lanes.load(logits), scale), logits); });
      logits[target] = of_target;
      break;
    case LogitGradient::kRounded:
      for_lanes(0, vocabulary, [&](auto lanes) HWY_ATTR {
        lanes.store(rounded_vector<BFloat16>(hn::Mul(lanes.load(logits), scale)), logits);
      });
      logits[target] = widen(narrow_of_target);
      break;
    case LogitGradient::kBF16: {
      // In place: what is stored ends before what is loaded next.
      auto* narrow = reinterpret_cast<BFloat16*>(logits);
      for_lanes(0, vocabulary,
                [&](auto lanes) HWY_ATTR { lanes.store(hn::Mul(lanes.load(logits), scale), narrow); });
      std::memcpy(narrow + target, &narrow_of_target, sizeof narrow_of_target);
      break;
    }
  }
  return double{hn::GetLane(base)} + std::log(double{sum}) - logit;
}

template <typename W>
HWY_INLINE float dot_of(const float* x, const W* w, int64_t columns) {
  const FloatTag d;
  FloatVector sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t c = 0;
  for (; c + 4 * kLanes <= columns; c += 4 * kLanes)
    for (int64_t part = 0; part < 4; ++part)
      sums[part] =
          hn::MulAdd(hn::LoadU(d, x + c + part * kLanes), load_vector(w + c + part * kLanes), sums[part]);
  for_lanes(c, columns,
            [&](auto lanes) HWY_ATTR { sums[0] = hn::MulAdd(lanes.load(x), lanes.load(w), sums[0]); });
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

float Dot(const float* x, const std::byte* w, DType w_dtype, int64_t columns) {
  return by_type(w_dtype, [&](auto sample) HWY_ATTR {
    return dot_of(x, reinterpret_cast<const decltype(sample)*>(w), columns);
  });
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
