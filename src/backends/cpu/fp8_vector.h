// backends/cpu/fp8_vector.h — blocks of numbers to and from 8-bit floating codes; included once per Highway target
#if defined(SNUG_BACKENDS_CPU_FP8_VECTOR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_BACKENDS_CPU_FP8_VECTOR_H_
#undef SNUG_BACKENDS_CPU_FP8_VECTOR_H_
#else
#define SNUG_BACKENDS_CPU_FP8_VECTOR_H_
#endif

#include <hwy/highway.h>

#include <cfloat>
#include <cstring>
#include <type_traits>

#include "backends/cpu/fp8.h"
#include "backends/cpu/vector_io.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {
namespace {

using ByteTag = hn::Rebind<uint8_t, FloatTag>;

HWY_INLINE WordVector word(uint32_t value) { return hn::Set(WordTag(), value); }

HWY_INLINE void store_codes(WordVector codes, const AllLanes& lanes, uint8_t* to) {
  const hn::Rebind<int32_t, FloatTag> integers;
  hn::StoreU(hn::DemoteTo(ByteTag(), hn::BitCast(integers, codes)), ByteTag(), to + lanes.at);
}
HWY_INLINE void store_codes(WordVector codes, const FirstLanes& lanes, uint8_t* to) {
  uint8_t padded[kLanes];
  store_codes(codes, AllLanes{0}, padded);
  std::memcpy(to + lanes.at, padded, static_cast<size_t>(lanes.count));
}
HWY_INLINE WordVector load_codes(const AllLanes& lanes, const uint8_t* from) {
  return hn::PromoteTo(WordTag(), hn::LoadU(ByteTag(), from + lanes.at));
}
HWY_INLINE WordVector load_codes(const FirstLanes& lanes, const uint8_t* from) {
  uint8_t padded[kLanes] = {};
  std::memcpy(padded, from + lanes.at, static_cast<size_t>(lanes.count));
  return load_codes(AllLanes{0}, padded);
}

// As an f32 whose unit in the last place is the format's smallest number: adding it to a smaller one rounds that to a whole number of
// them, to nearest even, and leaves the code in the low bits.
template <const Fp8Format& kFormat>
constexpr uint32_t kSmallest = static_cast<uint32_t>(127 + 23 + 1 - kFormat.bias - kFormat.mantissa_bits)
                               << 23;

// Codes of numbers of at most the format's largest magnitude; what is not finite becomes infinity_code or a NaN.
template <const Fp8Format& kFormat>
HWY_INLINE WordVector encoded(FloatVector scaled, FloatVector original) {
  const FloatTag floats;
  const WordTag words;
  constexpr int kDropped = 23 - kFormat.mantissa_bits;
  const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(words, original)), word(0x80));
  const FloatVector magnitude = hn::Abs(scaled);
  const auto bits = hn::BitCast(words, magnitude);
  const auto odd = hn::And(hn::ShiftRight<kDropped>(bits), word(1));
  const auto rounded =
      hn::ShiftRight<kDropped>(hn::Add(bits, hn::Add(odd, word((1u << (kDropped - 1)) - 1))));
  const auto normal =
      hn::Sub(rounded, word(static_cast<uint32_t>(127 - kFormat.bias) << kFormat.mantissa_bits));
  const auto unit = hn::BitCast(floats, word(kSmallest<kFormat>));
  const auto below = hn::Sub(hn::BitCast(words, hn::Add(magnitude, unit)), word(kSmallest<kFormat>));
  const auto is_below =
      hn::Lt(magnitude, hn::BitCast(floats, word(static_cast<uint32_t>(128 - kFormat.bias) << 23)));
  auto code = hn::IfThenElse(hn::RebindMask(words, is_below), below, normal);
  const auto finite = hn::RebindMask(words, hn::IsFinite(original)),
             nan = hn::RebindMask(words, hn::IsNaN(original));
  code = hn::IfThenElse(finite, code, hn::IfThenElse(nan, word(kFp8NanCode), word(kFormat.infinity_code)));
  return hn::Or(code, sign);
}

// Block by block of `block` elements, of which the last may be shorter; blocks [first, last).
template <const Fp8Format& kFormat, typename A>
HWY_INLINE void encode_blocks(const A* x, uint8_t* codes, float* scales, int64_t elements, int64_t block,
                              int64_t first, int64_t last) {
  const FloatTag floats;
  for (int64_t index = first; index < last; ++index) {
    const int64_t begin = index * block, end = HWY_MIN(begin + block, elements);
    FloatVector most = hn::Zero(floats);
    for_lanes(begin, end, [&](auto lanes) {
      const FloatVector magnitude = hn::Abs(lanes.load(x));
      most = hn::Max(most, hn::IfThenElseZero(hn::IsFinite(magnitude), magnitude));
    });
    const float scale = fp8_scale(kFormat, hn::GetLane(hn::MaxOfLanes(floats, most)));
    scales[index] = scale;
    const FloatVector inverse = hn::Set(floats, fp8_inverse(scale));
    for_lanes(begin, end, [&](auto lanes) {
      const FloatVector original = lanes.load(x);
      store_codes(encoded<kFormat>(hn::Mul(original, inverse), original), lanes, codes);
    });
  }
}

template <typename A>
constexpr float largest_of() {
  return std::is_same_v<A, BFloat16> ? 0x1.FEp127F : std::is_same_v<A, Float16> ? 65504.0F : FLT_MAX;
}

template <const Fp8Format& kFormat, typename A>
HWY_INLINE void decode_blocks(const uint8_t* codes, const float* scales, A* y, int64_t elements,
                              int64_t block, int64_t first, int64_t last) {
  const FloatTag floats;
  const WordTag words;
  const auto unit = hn::BitCast(floats, word(kSmallest<kFormat>));
  const FloatVector limit = hn::Set(floats, largest_of<A>());
  for (int64_t index = first; index < last; ++index) {
    const int64_t begin = index * block, end = HWY_MIN(begin + block, elements);
    const FloatVector scale = hn::Set(floats, scales[index]);
    for_lanes(begin, end, [&](auto lanes) {
      const auto code = load_codes(lanes, codes);
      const auto magnitude = hn::And(code, word(0x7F));
      const auto normal = hn::BitCast(floats, hn::Add(hn::ShiftLeft<23 - kFormat.mantissa_bits>(magnitude),
                                                      word(static_cast<uint32_t>(127 - kFormat.bias) << 23)));
      const auto below = hn::Sub(hn::BitCast(floats, hn::Add(magnitude, word(kSmallest<kFormat>))), unit);
      const auto is_below = hn::RebindMask(floats, hn::Lt(magnitude, word(1u << kFormat.mantissa_bits)));
      // Rounding up the largest number of the type must not make it infinite.
      FloatVector value = hn::Min(hn::Mul(hn::IfThenElse(is_below, below, normal), scale), limit);
      const auto special =
          hn::IfThenElse(hn::Eq(magnitude, word(0x7C)), word(0x7F800000u), word(0x7FC00000u));
      const auto is_special = hn::RebindMask(floats, hn::Gt(magnitude, word(kFormat.largest_code)));
      value = hn::IfThenElse(is_special, hn::BitCast(floats, special), value);
      const auto sign = hn::ShiftLeft<24>(hn::And(code, word(0x80)));
      lanes.store(hn::BitCast(floats, hn::Or(hn::BitCast(words, value), sign)), y);
    });
  }
}

template <const Fp8Format& kFormat>
void encode(const Fp8Operands& o, int64_t first, int64_t last) {
  by_type(o.activation, [&](auto number) {
    encode_blocks<kFormat>(reinterpret_cast<const decltype(number)*>(o.numbers), o.codes, o.scales,
                           o.elements, o.block, first, last);
  });
}

template <const Fp8Format& kFormat>
void decode(const Fp8Operands& o, int64_t first, int64_t last) {
  by_type(o.activation, [&](auto number) {
    decode_blocks<kFormat>(o.codes, o.scales, reinterpret_cast<decltype(number)*>(o.numbers), o.elements,
                           o.block, first, last);
  });
}

void encode_e4m3(const Fp8Operands& o, int64_t first, int64_t last) { encode<kE4M3>(o, first, last); }
void encode_e5m2(const Fp8Operands& o, int64_t first, int64_t last) { encode<kE5M2>(o, first, last); }
void decode_e4m3(const Fp8Operands& o, int64_t first, int64_t last) { decode<kE4M3>(o, first, last); }
void decode_e5m2(const Fp8Operands& o, int64_t first, int64_t last) { decode<kE5M2>(o, first, last); }

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
