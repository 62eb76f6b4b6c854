// backends/cpu/attention_blocks_vector.h — the vector forms of attention's blocks; included once per Highway target by attention_blocks.cc
#if defined(SNUG_BACKENDS_CPU_ATTENTION_BLOCKS_VECTOR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_BACKENDS_CPU_ATTENTION_BLOCKS_VECTOR_H_
#undef SNUG_BACKENDS_CPU_ATTENTION_BLOCKS_VECTOR_H_
#else
#define SNUG_BACKENDS_CPU_ATTENTION_BLOCKS_VECTOR_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "backends/cpu/attention_blocks.h"
#include "backends/cpu/vector_exp2.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

HWY_INLINE FloatVector constant(float value) { return hn::Set(FloatTag(), value); }

// Rows of a head lie a page or more apart, which no hardware prefetcher follows: asks for row `row` of a matrix.
constexpr int64_t kRowsAhead = 6, kCacheLineBytes = 64;
HWY_INLINE void prefetch_row(const std::byte* matrix, int64_t row, int64_t rows, int64_t stride_bytes,
                             int64_t row_bytes) {
  if (row >= rows) return;
  for (int64_t at = 0; at < row_bytes; at += kCacheLineBytes) hwy::Prefetch(matrix + row * stride_bytes + at);
}

template <typename A>
HWY_INLINE void copy_row(const A* from, int64_t columns, float factor, float* to) {
  const FloatVector f = constant(factor);
  for_lanes(0, columns, [&](auto lanes) HWY_ATTR { lanes.store(hn::Mul(lanes.load(from), f), to); });
}

void CopyScaled(const std::byte* from, DType dtype, int64_t from_stride, int64_t rows, int64_t columns,
                float factor, float* to, int64_t to_stride) {
  const int64_t bytes = dtype_bytes(dtype);
  for (int64_t r = 0; r < rows; ++r) {
    prefetch_row(from, r + kRowsAhead, rows, from_stride * bytes, columns * bytes);
    by_type(dtype, [&](auto sample) HWY_ATTR {
      copy_row(reinterpret_cast<const decltype(sample)*>(from) + r * from_stride, columns, factor,
               to + r * to_stride);
    });
  }
}

void CopyRows(const std::byte* from, int64_t from_stride, int64_t rows, int64_t columns, BFloat16* to,
              int64_t to_stride) {
  constexpr int64_t kBytes = sizeof(BFloat16);
  for (int64_t r = 0; r < rows; ++r) {
    prefetch_row(from, r + kRowsAhead, rows, from_stride * kBytes, columns * kBytes);
    std::memcpy(to + r * to_stride, from + r * from_stride * kBytes, static_cast<size_t>(columns * kBytes));
  }
}

template <typename A>
HWY_INLINE void store_row(const float* from, int64_t columns, float factor, A* to) {
  const FloatVector f = constant(factor);
  for_lanes(0, columns, [&](auto lanes) HWY_ATTR { lanes.store(hn::Mul(lanes.load(from), f), to); });
}

// factor_step 0: one factor for all rows; 1: one a row.
void StoreScaled(const float* from, int64_t from_stride, int64_t rows, int64_t columns, const float* factors,
                 int64_t factor_step, std::byte* to, DType dtype, int64_t to_stride) {
  const int64_t bytes = dtype_bytes(dtype);
  for (int64_t r = 0; r < rows; ++r) {
    prefetch_row(to, r + kRowsAhead, rows, to_stride * bytes, columns * bytes);
    const float factor = factors[r * factor_step];
    by_type(dtype, [&](auto sample) HWY_ATTR {
      store_row(from + r * from_stride, columns, factor,
                reinterpret_cast<decltype(sample)*>(to) + r * to_stride);
    });
  }
}

// In tiles of 4 × 4.
void Transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
               int64_t to_stride) {
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> pairs;
  const int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
  for (int64_t c = 0; c < whole_columns; c += 4)
    for (int64_t r = 0; r < whole_rows; r += 4) {
      const float* source = from + r * from_stride + c;
      float* target = to + c * to_stride + r;
      const auto a0 = hn::LoadU(d, source), a1 = hn::LoadU(d, source + from_stride),
                 a2 = hn::LoadU(d, source + 2 * from_stride), a3 = hn::LoadU(d, source + 3 * from_stride);
      const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, a0, a1)),
                 high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, a0, a1)),
                 low23 = hn::BitCast(pairs, hn::InterleaveLower(d, a2, a3)),
                 high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, a2, a3));
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, target);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, target + to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, target + 2 * to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, target + 3 * to_stride);
    }
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = c < whole_columns ? whole_rows : 0; r < rows; ++r)
      to[c * to_stride + r] = from[r * from_stride + c];
}

void RowDots(const float* a, const float* b, int64_t stride, int64_t rows, int64_t columns, float* out) {
  for (int64_t r = 0; r < rows; ++r) {
    FloatVector sum = constant(0.0f);
    for_lanes(0, columns, [&](auto lanes) HWY_ATTR {
      sum = hn::MulAdd(lanes.load(a + r * stride), lanes.load(b + r * stride), sum);
    });
    out[r] = hn::GetLane(hn::SumOfLanes(FloatTag(), sum));
  }
}

// The largest of row[0, width), of which some are visible; width is a multiple of the lanes.
HWY_INLINE float largest_of(const float* row, int64_t width) {
  const FloatTag d;
  FloatVector maximum0 = constant(kMinusInfinity), maximum1 = maximum0;
  int64_t c = 0;
  for (; c + 2 * kLanes <= width; c += 2 * kLanes) {
    maximum0 = hn::Max(maximum0, hn::LoadU(d, row + c));
    maximum1 = hn::Max(maximum1, hn::LoadU(d, row + c + kLanes));
  }
  if (c < width) maximum0 = hn::Max(maximum0, hn::LoadU(d, row + c));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(maximum0, maximum1)));
}

// Row r's largest becomes `now`, and `added` joins its sum.
HWY_INLINE void advance(const RunningSoftmax& running, int64_t r, float now, FloatVector added) {
  float& largest = running.largest[r];
  if (now != largest) {
    const FloatVector shrink = exp2_vector(constant(largest - now));
    float* output = running.output + r * running.stride;
    for_lanes(0, running.head_dim,
              [&](auto lanes) HWY_ATTR { lanes.store(hn::Mul(lanes.load(output), shrink), output); });
    running.sum[r] *= hn::GetLane(shrink);
    largest = now;
  }
  running.sum[r] += hn::GetLane(hn::SumOfLanes(FloatTag(), added));
}

HWY_INLINE void softmax_row(float* row, int64_t width, int64_t r, const RunningSoftmax& running) {
  const FloatTag d;
  const float now = std::max(running.largest[r], largest_of(row, width));
  const FloatVector base = constant(now);
  FloatVector sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t c = 0;
  for (; c + 2 * kLanes <= width; c += 2 * kLanes) {
    const FloatVector p0 = exp2_vector(hn::Sub(hn::LoadU(d, row + c), base)),
                      p1 = exp2_vector(hn::Sub(hn::LoadU(d, row + c + kLanes), base));
    hn::StoreU(p0, d, row + c);
    hn::StoreU(p1, d, row + c + kLanes);
    sum0 = hn::Add(sum0, p0);
    sum1 = hn::Add(sum1, p1);
  }
  if (c < width) {
    const FloatVector p = exp2_vector(hn::Sub(hn::LoadU(d, row + c), base));
    hn::StoreU(p, d, row + c);
    sum0 = hn::Add(sum0, p);
  }
  advance(running, r, now, hn::Add(sum0, sum1));
}

// Calls body(row of scores, width in whole vectors, query row) for the queries that see something, with −∞ where they see nothing; the other rows
// become 0.
template <typename Body>
HWY_INLINE void for_seeing_rows(const ScoreBlock& block, float* scores, int64_t stride, const Body& body) {
  const int64_t width = (block.keys + kLanes - 1) / kLanes * kLanes;
  for (int64_t r = 0; r < block.queries; ++r) {
    float* row = scores + r * stride;
    int64_t visible_first = 0, visible_last = block.keys;
    if (block.masked) {
      const int64_t query = block.first_query + r;
      visible_first = std::clamp<int64_t>(block.document_starts[query] - block.first_key, 0, block.keys);
      visible_last = std::clamp<int64_t>(query + 1 - block.first_key, 0, block.keys);
    }
    if (visible_first >= visible_last) {
      std::fill(row, row + width, 0.0f);
      continue;
    }
    std::fill(row, row + visible_first, kMinusInfinity);
    std::fill(row + visible_last, row + width, kMinusInfinity);
    body(row, width, r);
  }
}

void SoftmaxBlock(const ScoreBlock& block, float* scores, int64_t stride, const RunningSoftmax& running) {
  for_seeing_rows(block, scores, stride, [&](float* row, int64_t width, int64_t r) HWY_ATTR {
    softmax_row(row, width, r, running);
  });
}

// p·keep and p·(d_p·keep − dots) of some queries and one key.
struct GradientLanes {
  FloatVector kept, d_score;
};

template <bool kMasked, bool kKeep>
HWY_INLINE GradientLanes gradient_lanes(const ScoreBlock& block, const ScoreGradients& of, int64_t key_row,
                                        int64_t c) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> integers;
  const int64_t at = key_row * of.stride + c;
  FloatVector p =
      exp2_vector(hn::MulSub(hn::LoadU(d, of.scores + at), constant(of.factor), hn::LoadU(d, of.lse2 + c)));
  if constexpr (kMasked) {
    const auto key = hn::Set(integers, static_cast<int32_t>(block.first_key + key_row));
    const auto query = hn::Iota(integers, static_cast<int32_t>(block.first_query + c));
    // Beyond the last position there is no start to read; those lanes are no query of the block.
    int32_t own_starts[kLanes] = {};
    const int32_t* starts = block.document_starts + block.first_query + c;
    if (c + kLanes > block.queries) {
      std::copy_n(starts, block.queries - c, own_starts);
      starts = own_starts;
    }
    const auto hidden = hn::Or(hn::Lt(query, key), hn::Gt(hn::LoadU(integers, starts), key));
    p = hn::IfThenZeroElse(hn::RebindMask(d, hidden), p);
  }
  FloatVector slope = hn::LoadU(d, of.d_p + at), kept = p;
  if constexpr (kKeep) {
    const FloatVector factor = hn::LoadU(d, of.keep + at);
    slope = hn::Mul(slope, factor);
    kept = hn::Mul(p, factor);
  }
  return {kept, hn::Mul(p, hn::Sub(slope, hn::LoadU(d, of.dots + c)))};
}

template <bool kMasked, bool kKeep>
HWY_INLINE void backward_rows(const ScoreBlock& block, const ScoreGradients& of) {
  for (int64_t r = 0; r < block.keys; ++r)
    for (int64_t c = 0; c < block.queries; c += kLanes) {
      const GradientLanes x = gradient_lanes<kMasked, kKeep>(block, of, r, c);
      hn::StoreU(x.kept, FloatTag(), of.scores + r * of.stride + c);
      hn::StoreU(x.d_score, FloatTag(), of.d_p + r * of.stride + c);
    }
}

void BackwardBlock(const ScoreBlock& block, const ScoreGradients& of) {
  if (of.keep != nullptr) return backward_rows<true, true>(block, of);
  if (block.masked) return backward_rows<true, false>(block, of);
  backward_rows<false, false>(block, of);
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_TARGET == HWY_AVX3
// With the processor's own rounding to bf16: to nearest, ties to even, NaN kept, denormal numbers to 0. Highway 1.0.3 has no target with it.
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace snug::cpu::HWY_NAMESPACE {
namespace {

// The first row's elements in the low half, the second's in the high one.
HWY_INLINE __m512i narrow_two(FloatVector first, FloatVector second) {
  return (__m512i)_mm512_cvtne2ps_pbh(second.raw, first.raw);
}
HWY_INLINE void store_halves(__m512i halves, float* first, float* second, int64_t c) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(reinterpret_cast<BFloat16*>(first) + c),
                      _mm512_castsi512_si256(halves));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(reinterpret_cast<BFloat16*>(second) + c),
                      _mm512_extracti64x4_epi64(halves, 1));
}
HWY_INLINE __m512i pair_halves(__m512i halves) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, halves);
}

// In place: what is stored ends before what is loaded next.
HWY_INLINE void softmax_row_bf16(float* row, int64_t width, float factor, int64_t r,
                                 const RunningSoftmax& running) {
  const FloatTag d;
  const float now = std::max(running.largest[r], factor * largest_of(row, width));
  const FloatVector base = constant(now), scale = constant(factor);
  FloatVector sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  for (int64_t c = 0; c < width; c += 2 * kLanes) {
    const FloatVector p0 = exp2_vector(hn::MulSub(hn::LoadU(d, row + c), scale, base));
    FloatVector p1 = hn::Zero(d);
    if (c + kLanes < width) p1 = exp2_vector(hn::MulSub(hn::LoadU(d, row + c + kLanes), scale, base));
    _mm512_storeu_si512(reinterpret_cast<BFloat16*>(row) + c, narrow_two(p0, p1));
    sum0 = hn::Add(sum0, p0);
    sum1 = hn::Add(sum1, p1);
  }
  advance(running, r, now, hn::Add(sum0, sum1));
}

void SoftmaxBlockBf16(const ScoreBlock& block, float* scores, int64_t stride, float factor,
                      const RunningSoftmax& running) {
  for_seeing_rows(
      block, scores, stride,
      [&](float* row, int64_t width, int64_t r) __attribute__((target(HWY_TARGET_STR ",avx512bf16"))) {
        softmax_row_bf16(row, width, factor, r, running);
      });
}

template <bool kMasked, bool kKeep>
HWY_INLINE void backward_rows_bf16(const ScoreBlock& block, const ScoreGradients& of,
                                   Bf16Pair* d_score_pairs) {
  for (int64_t r = 0; r < block.keys; r += 2) {
    float *scores = of.scores + r * of.stride, *d_p = of.d_p + r * of.stride;
    for (int64_t c = 0; c < block.queries; c += kLanes) {
      const GradientLanes first = gradient_lanes<kMasked, kKeep>(block, of, r, c);
      GradientLanes second = {hn::Zero(FloatTag()), hn::Zero(FloatTag())};
      if (r + 1 < block.keys) second = gradient_lanes<kMasked, kKeep>(block, of, r + 1, c);
      // In place: what is stored ends before what is loaded next.
      store_halves(narrow_two(first.kept, second.kept), scores, scores + of.stride, c);
      const __m512i d_score = narrow_two(first.d_score, second.d_score);
      store_halves(d_score, d_p, d_p + of.stride, c);
      _mm512_storeu_si512(d_score_pairs + r / 2 * of.stride + c, pair_halves(d_score));
    }
  }
}

void BackwardBlockBf16(const ScoreBlock& block, const ScoreGradients& of, Bf16Pair* d_score_pairs) {
  if (of.keep != nullptr) return backward_rows_bf16<true, true>(block, of, d_score_pairs);
  if (block.masked) return backward_rows_bf16<true, false>(block, of, d_score_pairs);
  backward_rows_bf16<false, false>(block, of, d_score_pairs);
}

void PairRows(const BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns, Bf16Pair* to,
              int64_t to_stride) {
  const auto load = [](const BFloat16* row) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
  };
  for (int64_t r = 0; r < rows; r += 2, from += 2 * from_stride, to += to_stride)
    for (int64_t c = 0; c < columns; c += kLanes) {
      const __m256i second = r + 1 < rows ? load(from + from_stride + c) : _mm256_setzero_si256();
      _mm512_storeu_si512(to + c,
                          pair_halves(_mm512_inserti64x4(_mm512_castsi256_si512(load(from + c)), second, 1)));
    }
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
#endif

#endif  // per target
