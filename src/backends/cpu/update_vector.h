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

#include "backends/cpu/elementwise_math.h"
#include "backends/cpu/update_codes.h"
#include "backends/cpu/update_rules.h"
#include "backends/cpu/vector_io.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {
namespace {

using DoubleTag = hn::ScalableTag<double>;

HWY_INLINE hn::Vec<DoubleTag> load_doubles(const float* from) {
  return hn::PromoteTo(DoubleTag(), hn::LoadU(hn::Rebind<float, DoubleTag>(), from));
}
HWY_INLINE hn::Vec<DoubleTag> load_doubles(const BFloat16* from) {
  const hn::Rebind<uint16_t, DoubleTag> halves;
  const hn::Rebind<uint32_t, DoubleTag> words;
  const auto bits = hn::PromoteTo(words, hn::LoadU(halves, reinterpret_cast<const uint16_t*>(from)));
  return hn::PromoteTo(DoubleTag(), hn::BitCast(hn::Rebind<float, DoubleTag>(), hn::ShiftLeft<16>(bits)));
}

// Sum of squares of one block of at most kSumBlock elements. The square of an f32 is exact in f64.
template <typename G>
HWY_INLINE double sum_block_of(const G* g, int64_t count) {
  const DoubleTag doubles;
  constexpr int64_t kDoubles = HWY_MAX_BYTES / 8, kVectors = kSumLanes / kDoubles;
  hn::Vec<DoubleTag> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(doubles);
  const auto add = [&](const G* from) {
    for (int64_t k = 0; k < kVectors; ++k) {
      const auto value = load_doubles(from + k * kDoubles);
      sums[k] = hn::MulAdd(value, value, sums[k]);
    }
  };
  int64_t at = 0;
  for (; at + kSumLanes <= count; at += kSumLanes) add(g + at);
  if (at < count) {
    G padded[kSumLanes] = {};
    std::copy(g + at, g + count, padded);
    add(padded);
  }
  double lanes[kSumLanes];
  for (int64_t k = 0; k < kVectors; ++k) hn::StoreU(sums[k], doubles, lanes + k * kDoubles);
  return add_lanes(lanes);
}
double sum_block(const float* g, int64_t count) { return sum_block_of(g, count); }
double sum_narrow_block(const BFloat16* g, int64_t count) { return sum_block_of(g, count); }

// To nearest even.
void narrow_gradient_range(const float* wide, BFloat16* narrow, int64_t first, int64_t last) {
  for_lanes(first, last, [&](auto lanes) { lanes.store(lanes.load(wide), narrow); });
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

// Random words of elements [base, base + kMomentBlock), as many as were drawn.
struct Words {
  int64_t base = 0;
  uint32_t words[kMomentBlock];

  // Elements [first, last); `first` is a multiple of 4.
  void draw(const RandomStream& stream, int64_t first, int64_t last) {
    base = first;
    for (int64_t at = first; at < last; at += 4 * kLanes)
      philox_block(stream, static_cast<uint64_t>(at) / 4, words + (at - first));
  }
  template <typename Lanes>
  HWY_INLINE WordVector load(Lanes lanes) const {
    return hn::LoadU(WordTag(), words + (lanes.at - base));
  }
};

// narrow_stochastic's bits in the low half of each lane; `random` has 16 bits.
HWY_INLINE WordVector stochastic_bits(FloatVector x, WordVector random) {
  const WordTag words;
  const WordVector rounded = hn::ShiftRight<16>(hn::Add(hn::BitCast(words, x), random));
  return hn::IfThenElse(hn::RebindMask(words, hn::IsFinite(x)), rounded, narrow_weight_bits(x));
}
HWY_INLINE WordVector low_half_of(WordVector word) { return hn::And(word, hn::Set(WordTag(), 0xFFFF)); }

// Forms of the weight. `store` returns what differs in the stored bits.

// f32, with a copy in 16 bits or without.
template <typename Copy>
struct WholeWeight {
  float* weight;
  Copy* copy;

  template <typename Lanes>
  HWY_INLINE FloatVector load(Lanes lanes) const {
    return lanes.load(weight);
  }
  template <typename Lanes>
  HWY_INLINE WordVector store(Lanes lanes, FloatVector before, FloatVector x) const {
    lanes.store(x, weight);
    if (copy != nullptr) lanes.store_weight(x, copy);
    return hn::Xor(hn::BitCast(WordTag(), before), hn::BitCast(WordTag(), x));
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
  HWY_INLINE WordVector store(Lanes lanes, FloatVector before, FloatVector x) const {
    const WordTag words;
    lanes.store_weight(x, narrow);
    const WordVector bits = low_half_of(hn::BitCast(words, x));
    const auto nan = hn::RebindMask(words, hn::IsNaN(x));
    store_halves(lanes, hn::IfThenElse(nan, hn::Zero(words), bits), low);
    return hn::Xor(hn::BitCast(words, before), hn::BitCast(words, x));
  }
};

// bf16 alone.
struct RoundedWeight {
  BFloat16* narrow;
  const Words* draws;  // null: to nearest

  template <typename Lanes>
  HWY_INLINE FloatVector load(Lanes lanes) const {
    return lanes.load(narrow);
  }
  template <typename Lanes>
  HWY_INLINE WordVector store(Lanes lanes, FloatVector before, FloatVector x) const {
    const WordVector bits =
        draws == nullptr ? narrow_weight_bits(x) : stochastic_bits(x, low_half_of(draws->load(lanes)));
    store_halves(lanes, bits, reinterpret_cast<uint16_t*>(narrow));
    return hn::Xor(hn::BitCast(WordTag(), before), hn::ShiftLeft<16>(bits));
  }
};

// Forms of the moments.

// Both moments as numbers of type T.
template <typename T>
struct StoredMoments {
  T *m_array, *v_array;

  template <typename Lanes>
  HWY_INLINE FloatVector m(Lanes lanes) const {
    return lanes.load(m_array);
  }
  template <typename Lanes>
  HWY_INLINE FloatVector v(Lanes lanes) const {
    return lanes.load(v_array);
  }
};

struct WholeMoments : StoredMoments<float> {
  template <typename Lanes>
  HWY_INLINE void store(Lanes lanes, FloatVector m_next, FloatVector v_next) const {
    lanes.store(m_next, m_array);
    lanes.store(v_next, v_array);
  }
};

struct HalfMoments : StoredMoments<BFloat16> {
  const Words* draws;

  template <typename Lanes>
  HWY_INLINE void store(Lanes lanes, FloatVector m_next, FloatVector v_next) const {
    const WordVector word = draws->load(lanes);
    store_halves(lanes, stochastic_bits(m_next, low_half_of(word)), reinterpret_cast<uint16_t*>(m_array));
    store_halves(lanes, stochastic_bits(v_next, hn::ShiftRight<16>(word)),
                 reinterpret_cast<uint16_t*>(v_array));
  }
};

// A block of coded moments, decoded: whole vectors, 0 beyond a ragged end.
struct BlockMoments {
  int64_t base;
  float *m_block, *v_block;

  template <typename Lanes>
  HWY_INLINE FloatVector m(Lanes lanes) const {
    return load_vector(m_block + (lanes.at - base));
  }
  template <typename Lanes>
  HWY_INLINE FloatVector v(Lanes lanes) const {
    return load_vector(v_block + (lanes.at - base));
  }
  template <typename Lanes>
  HWY_INLINE void store(Lanes lanes, FloatVector m_next, FloatVector v_next) const {
    store_vector(lanes.select(m_next), m_block + (lanes.at - base));
    store_vector(lanes.select(v_next), v_block + (lanes.at - base));
  }
};

using ByteTag = hn::Rebind<uint8_t, FloatTag>;
using IntegerTag = hn::Rebind<int32_t, FloatTag>;

HWY_INLINE void decode_block(const MomentMap& map, const uint8_t* codes, float scale, int64_t count,
                             float* values) {
  uint8_t padded[kMomentBlock] = {};
  std::memcpy(padded, codes, static_cast<size_t>(count));
  for (int64_t at = 0; at < kMomentBlock; at += kLanes) {
    const auto code = hn::PromoteTo(IntegerTag(), hn::LoadU(ByteTag(), padded + at));
    const FloatVector value = hn::GatherIndex(FloatTag(), map.values, code);
    store_vector(hn::Mul(value, hn::Set(FloatTag(), scale)), values + at);
  }
}

// MomentMap::code of values / scale; of the unsigned map none is 0 where the value is not. Returns the scale.
HWY_INLINE float encode_block(const MomentMap& map, const float* values, int64_t count, uint8_t* codes) {
  const FloatTag floats;
  const WordTag words;
  const IntegerTag integers;
  WordVector largest = hn::Zero(words);
  for (int64_t at = 0; at < kMomentBlock; at += kLanes)
    largest =
        hn::Max(largest, hn::And(hn::BitCast(words, load_vector(values + at)), hn::Set(words, 0x7FFFFFFF)));
  uint32_t lanes[kLanes];
  hn::StoreU(largest, words, lanes);
  const float scale = moment_scale(*std::max_element(lanes, lanes + kLanes));
  if (scale == 0) {
    std::memset(codes, 0, static_cast<size_t>(count));
    return scale;
  }
  uint8_t padded[kMomentBlock];
  for (int64_t at = 0; at < kMomentBlock; at += kLanes) {
    const FloatVector value = load_vector(values + at);
    const WordVector all_bits = hn::BitCast(words, hn::Div(value, hn::Set(floats, scale)));
    const WordVector bits = hn::Min(hn::And(all_bits, hn::Set(words, 0x7FFFFFFF)), hn::Set(words, kOneBits));
    const WordVector first_bits = hn::Set(words, kFirstBucketBits);
    const WordVector bucket = hn::ShiftRight<kBucketShift>(hn::Sub(hn::Max(bits, first_bits), first_bits));
    auto code = hn::GatherIndex(integers, map.first, hn::BitCast(integers, bucket));
    const FloatVector threshold = hn::GatherIndex(floats, map.thresholds, code);
    const auto above = hn::RebindMask(integers, hn::Gt(hn::BitCast(floats, bits), threshold));
    code = hn::IfThenElse(above, hn::Add(code, hn::Set(integers, 1)), code);
    if (map.is_signed) {
      const auto negative = hn::And(hn::Lt(hn::BitCast(integers, all_bits), hn::Zero(integers)),
                                    hn::Gt(code, hn::Zero(integers)));
      const auto mirrored = hn::Add(hn::Min(code, hn::Set(integers, MomentMap::kLargestNegative)),
                                    hn::Set(integers, MomentMap::kNegative));
      code = hn::IfThenElse(negative, mirrored, code);
    } else {
      const auto some = hn::RebindMask(integers, hn::Gt(value, hn::Zero(floats)));
      code = hn::IfThenElse(some, hn::Max(code, hn::Set(integers, 1)), code);
    }
    hn::StoreU(hn::DemoteTo(ByteTag(), code), ByteTag(), padded + at);
  }
  std::memcpy(codes, padded, static_cast<size_t>(count));
  return scale;
}

template <typename Weight, typename Moments, typename G>
HWY_INLINE bool adamw_lanes(const Weight& weight, const Moments& moments, const G* gradients,
                            const AdamwScalars<float>& s, int64_t first, int64_t last) {
  const FloatTag floats;
  const auto set = [&](float value) { return hn::Set(floats, value); };
  const FloatVector clip = set(s.clip), decay = set(s.decay), beta2 = set(s.beta2), step = set(s.step_size);
  const FloatVector keep1 = set(s.one_minus_beta1), keep2 = set(s.one_minus_beta2);
  const FloatVector root = set(s.correction2_root), eps = set(s.eps);
  WordVector changed = hn::Zero(WordTag());
  for_lanes(first, last, [&](auto lanes) {
    const FloatVector gradient = hn::Mul(lanes.load(gradients), clip);
    const FloatVector before = weight.load(lanes);
    const FloatVector m0 = moments.m(lanes);
    const FloatVector m = hn::Add(m0, hn::Mul(keep1, hn::Sub(gradient, m0)));
    const FloatVector v =
        hn::Add(hn::Mul(moments.v(lanes), beta2), hn::Mul(hn::Mul(keep2, gradient), gradient));
    const FloatVector denominator = hn::Add(hn::Div(hn::Sqrt(v), root), eps);
    const FloatVector after = hn::Sub(hn::Mul(before, decay), hn::Mul(step, hn::Div(m, denominator)));
    moments.store(lanes, m, v);
    const WordVector difference = weight.store(lanes, before, after);
    // Lanes beyond a ragged end may hold 0/0.
    changed = hn::Or(changed, hn::BitCast(WordTag(), lanes.select(hn::BitCast(floats, difference))));
  });
  return !hn::AllTrue(WordTag(), hn::Eq(changed, hn::Zero(WordTag())));
}

// Calls body with the gradient, in f32 or bf16, and the weight in its form.
template <typename Body>
HWY_INLINE bool with_operands(const AdamwOperands& o, const Words* draws, const Body& body) {
  const auto with = [&](const auto& weight) {
    return o.gradient != nullptr ? body(weight, o.gradient) : body(weight, o.narrow_gradient);
  };
  if (o.weight != nullptr)
    return by_type(o.copy_type, [&](auto sample) {
      using Copy = decltype(sample);
      return with(WholeWeight<Copy>{o.weight, reinterpret_cast<Copy*>(o.copy)});
    });
  if (o.low != nullptr) return with(SplitWeight{o.narrow, o.low});
  return with(RoundedWeight{o.narrow, o.stochastic_weight ? draws : nullptr});
}

// Elements [first, last) of at most one block; `first` is a multiple of kMomentBlock.
HWY_INLINE bool adamw_block(const AdamwOperands& o, const AdamwScalars<float>& s, const UpdateDraws* draws,
                            int64_t first, int64_t last) {
  Words for_weight, for_moments;
  if (o.stochastic_weight) for_weight.draw(draws->weight, first, last);
  const auto with = [&](const auto& moments) {
    return with_operands(o, &for_weight, [&](const auto& weight, const auto* gradients) {
      return adamw_lanes(weight, moments, gradients, s, first, last);
    });
  };
  if (o.m != nullptr) return with(WholeMoments{{o.m, o.v}});
  if (o.m_half != nullptr) {
    for_moments.draw(draws->moments, first, last);
    return with(HalfMoments{{o.m_half, o.v_half}, &for_moments});
  }
  const int64_t block = first / kMomentBlock, count = last - first;
  float m[kMomentBlock], v[kMomentBlock];
  decode_block(signed_moment_map(), o.m_codes + first, o.m_scales[block], count, m);
  decode_block(unsigned_moment_map(), o.v_codes + first, o.v_scales[block], count, v);
  const bool changed = with(BlockMoments{first, m, v});
  o.m_scales[block] = encode_block(signed_moment_map(), m, count, o.m_codes + first);
  o.v_scales[block] = encode_block(unsigned_moment_map(), v, count, o.v_codes + first);
  return changed;
}

// Elements [first, last), `first` a multiple of kMomentBlock; whether any stored weight changed. `draws` may be null where nothing
// is rounded stochastically.
bool adamw_range(const AdamwOperands& o, const AdamwScalars<float>& s, const UpdateDraws* draws,
                 int64_t first, int64_t last) {
  if (o.m != nullptr && !o.stochastic_weight)
    return with_operands(o, nullptr, [&](const auto& weight, const auto* gradients) {
      return adamw_lanes(weight, WholeMoments{{o.m, o.v}}, gradients, s, first, last);
    });
  bool changed = false;
  for (int64_t at = first; at < last; at += kMomentBlock)
    changed |= adamw_block(o, s, draws, at, std::min(at + kMomentBlock, last));
  return changed;
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
