// backends/cpu/attention_blocks_vector.h — the vector forms of attention's blocks; included once per Highway target by attention_blocks.cc
#if defined(SNUG_BACKENDS_CPU_ATTENTION_BLOCKS_VECTOR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_BACKENDS_CPU_ATTENTION_BLOCKS_VECTOR_H_
#undef SNUG_BACKENDS_CPU_ATTENTION_BLOCKS_VECTOR_H_
#else
#define SNUG_BACKENDS_CPU_ATTENTION_BLOCKS_VECTOR_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
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
      store_row(from + r * from_stride, columns, factor, reinterpret_cast<decltype(sample)*>(to) + r * to_stride);
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

// One row of scores over [0, width), of which some are visible; width is a multiple of the lanes.
HWY_INLINE void softmax_row(float* row, int64_t width, float& largest, float& sum, float* output,
                            int64_t head_dim) {
  const FloatTag d;
  FloatVector maximum0 = constant(largest), maximum1 = maximum0;
  int64_t c = 0;
  for (; c + 2 * kLanes <= width; c += 2 * kLanes) {
    maximum0 = hn::Max(maximum0, hn::LoadU(d, row + c));
    maximum1 = hn::Max(maximum1, hn::LoadU(d, row + c + kLanes));
  }
  if (c < width) maximum0 = hn::Max(maximum0, hn::LoadU(d, row + c));
  const float now = hn::GetLane(hn::MaxOfLanes(d, hn::Max(maximum0, maximum1)));
  const FloatVector base = constant(now);
  FloatVector sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  for (c = 0; c + 2 * kLanes <= width; c += 2 * kLanes) {
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
  const float added = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  if (now != largest) {
    const FloatVector shrink = exp2_vector(constant(largest - now));
    for_lanes(0, head_dim,
              [&](auto lanes) HWY_ATTR { lanes.store(hn::Mul(lanes.load(output), shrink), output); });
    sum *= hn::GetLane(shrink);
    largest = now;
  }
  sum += added;
}

void SoftmaxBlock(const ScoreBlock& block, float* scores, int64_t stride, const RunningSoftmax& running) {
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
    softmax_row(row, width, running.largest[r], running.sum[r], running.output + r * running.stride,
                running.head_dim);
  }
}

template <bool kMasked, bool kKeep>
HWY_INLINE void backward_rows(const ScoreBlock& block, float* scores, float* d_p, const float* keep,
                              int64_t stride, const float* lse2, const float* dots) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> integers;
  for (int64_t r = 0; r < block.keys; ++r) {
    const auto key = hn::Set(integers, static_cast<int32_t>(block.first_key + r));
    for (int64_t c = 0; c < block.queries; c += kLanes) {
      float *score = scores + r * stride + c, *gradient = d_p + r * stride + c;
      FloatVector p = exp2_vector(hn::Sub(hn::LoadU(d, score), hn::LoadU(d, lse2 + c)));
      if constexpr (kMasked) {
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
      FloatVector slope = hn::LoadU(d, gradient), kept = p;
      if constexpr (kKeep) {
        const FloatVector factor = hn::LoadU(d, keep + r * stride + c);
        slope = hn::Mul(slope, factor);
        kept = hn::Mul(p, factor);
      }
      hn::StoreU(kept, d, score);
      hn::StoreU(hn::Mul(p, hn::Sub(slope, hn::LoadU(d, dots + c))), d, gradient);
    }
  }
}

void BackwardBlock(const ScoreBlock& block, float* scores, float* d_p, const float* keep, int64_t stride,
                   const float* lse2, const float* dots) {
  if (keep != nullptr) return backward_rows<true, true>(block, scores, d_p, keep, stride, lse2, dots);
  if (block.masked) return backward_rows<true, false>(block, scores, d_p, keep, stride, lse2, dots);
  backward_rows<false, false>(block, scores, d_p, keep, stride, lse2, dots);
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
