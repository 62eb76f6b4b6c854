// backends/cpu/vector_io.h — f32, bf16 and f16 elements as f32 vectors, whole or ragged
//
// Included once per Highway target, after <hwy/foreach_target.h>. Arithmetic is in f32; bf16 and f16 are widened
// when loaded and rounded to nearest even when stored, NaN kept (Highway 1.0.3's own conversion to bf16 truncates;
// to f16 it is the processor's). A
// ragged end is computed in the same vector instructions as the rest, so an element's bits do not depend on
// where a range begins or ends.
#if defined(SNUG_BACKENDS_CPU_VECTOR_IO_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_BACKENDS_CPU_VECTOR_IO_H_
#undef SNUG_BACKENDS_CPU_VECTOR_IO_H_
#else
#define SNUG_BACKENDS_CPU_VECTOR_IO_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backends/cpu/bfloat16.h"
#include "backends/cpu/float16.h"
#include "base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;
using WordTag = hn::Rebind<uint32_t, FloatTag>;
using WordVector = hn::Vec<WordTag>;

constexpr int64_t kLanes = HWY_MAX_BYTES / 4;

// Calls body with a value of the stored type, f32, bf16 or f16; returns what it returns.
template <typename Body>
HWY_INLINE auto by_type(DType stored, const Body& body) {
  if (stored == DType::kBF16) return body(BFloat16());
  if (stored == DType::kF16) return body(Float16());
  return body(float());
}

HWY_INLINE FloatVector load_vector(const float* from) { return hn::LoadU(FloatTag(), from); }
HWY_INLINE FloatVector load_vector(const BFloat16* from) {
  const hn::Rebind<uint16_t, FloatTag> halves;
  const auto bits = hn::LoadU(halves, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(WordTag(), bits)));
}

HWY_INLINE FloatVector load_vector(const Float16* from) {
  const hn::Rebind<hwy::float16_t, FloatTag> halves;
  return hn::PromoteTo(FloatTag(), hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(from)));
}

// Bits of the nearest bf16 in the low half of each lane.
HWY_INLINE WordVector nearest_even_bits(FloatVector x) {
  const WordTag words;
  const auto bits = hn::BitCast(words, x);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(words, 1));
  const auto nearest = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7FFF))));
  const auto nan = hn::RebindMask(words, hn::IsNaN(x));
  return hn::IfThenElse(nan, hn::Or(upper, hn::Set(words, 0x0040)), nearest);
}

// narrow_weight's bits (decision 14) in the low half of each lane.
HWY_INLINE WordVector narrow_weight_bits(FloatVector x) {
  const WordTag words;
  const auto bits = hn::BitCast(words, x);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto nearest = hn::ShiftRight<16>(hn::Add(bits, hn::Set(words, 0x8000)));
  const auto nan = hn::RebindMask(words, hn::IsNaN(x));
  const auto finite = hn::RebindMask(words, hn::IsFinite(x));
  return hn::IfThenElse(finite, nearest, hn::IfThenElse(nan, hn::Or(upper, hn::Set(words, 0x0040)), upper));
}

HWY_INLINE void store_low_halves(WordVector bits, BFloat16* to) {
  const hn::Rebind<uint16_t, FloatTag> halves;
  const hn::Rebind<int32_t, FloatTag> integers;
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(integers, bits)), halves, reinterpret_cast<uint16_t*>(to));
}

HWY_INLINE void store_vector(FloatVector x, float* to) { hn::StoreU(x, FloatTag(), to); }
HWY_INLINE void store_vector(FloatVector x, BFloat16* to) { store_low_halves(nearest_even_bits(x), to); }
HWY_INLINE void store_vector(FloatVector x, Float16* to) {
  const hn::Rebind<hwy::float16_t, FloatTag> halves;
  hn::StoreU(hn::DemoteTo(halves, x), halves, reinterpret_cast<hwy::float16_t*>(to));
}
// As a weight that is trained: bf16 follows narrow_weight, f16 is the nearest, f32 is kept.
HWY_INLINE void store_weight_vector(FloatVector x, BFloat16* to) {
  store_low_halves(narrow_weight_bits(x), to);
}
HWY_INLINE void store_weight_vector(FloatVector x, Float16* to) { store_vector(x, to); }
HWY_INLINE void store_weight_vector(FloatVector x, float* to) { store_vector(x, to); }

// What an element stored as A would read back as.
template <typename A>
HWY_INLINE FloatVector rounded_vector(FloatVector x) {
  if constexpr (std::is_same_v<A, BFloat16>)
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(nearest_even_bits(x)));
  else if constexpr (std::is_same_v<A, Float16>)
    return hn::PromoteTo(FloatTag(), hn::DemoteTo(hn::Rebind<hwy::float16_t, FloatTag>(), x));
  else
    return x;
}

// Elements [at, at + kLanes) of an array.
struct AllLanes {
  int64_t at;

  template <typename T>
  HWY_INLINE FloatVector load(const T* from) const {
    return load_vector(from + at);
  }
  template <typename T>
  HWY_INLINE void store(FloatVector x, T* to) const {
    store_vector(x, to + at);
  }
  template <typename W>
  HWY_INLINE void store_weight(FloatVector x, W* to) const {
    store_weight_vector(x, to + at);
  }
  // x in lanes that count, 0 beyond.
  HWY_INLINE FloatVector select(FloatVector x) const { return x; }
};

// Elements [at, at + count) with count < kLanes; lanes beyond are loaded as 0 and not stored.
struct FirstLanes {
  int64_t at, count;

  template <typename T>
  HWY_INLINE FloatVector load(const T* from) const {
    T padded[kLanes] = {};
    std::memcpy(padded, from + at, static_cast<size_t>(count) * sizeof(T));
    return load_vector(padded);
  }
  template <typename T>
  HWY_INLINE void store(FloatVector x, T* to) const {
    T padded[kLanes];
    store_vector(x, padded);
    std::memcpy(to + at, padded, static_cast<size_t>(count) * sizeof(T));
  }
  template <typename W>
  HWY_INLINE void store_weight(FloatVector x, W* to) const {
    W padded[kLanes];
    store_weight_vector(x, padded);
    std::memcpy(to + at, padded, static_cast<size_t>(count) * sizeof(W));
  }
  // x in lanes that count, 0 beyond.
  HWY_INLINE FloatVector select(FloatVector x) const {
    return hn::IfThenElseZero(hn::FirstN(FloatTag(), static_cast<size_t>(count)), x);
  }
};

// Calls body(lanes) over elements [first, last) in order; `lanes` is AllLanes or, for a ragged end,
// FirstLanes.
template <typename Body>
HWY_INLINE void for_lanes(int64_t first, int64_t last, const Body& body) {
  int64_t at = first;
  for (; at + kLanes <= last; at += kLanes) body(AllLanes{at});
  if (at < last) body(FirstLanes{at, last - at});
}

}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
