#include "backends/cpu/attention_blocks.h"

#include "backends/cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/attention_blocks_vector.h"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include "backends/cpu/attention_blocks_vector.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backends/cpu/elementwise.h"
#include "base/errors.h"

namespace snug::cpu {
namespace {

HWY_EXPORT(CopyScaled);
HWY_EXPORT(StoreScaled);
HWY_EXPORT(Transpose);
HWY_EXPORT(RowDots);
HWY_EXPORT(SoftmaxBlock);
HWY_EXPORT(BackwardBlock);

constexpr double kLn2 = 0.69314718055994530942;
// Keys whose random words are made at a time; a multiple of the four words of a group.
constexpr int64_t kDropoutKeys = 256;

}  // namespace

void copy_scaled(ConstRows from, int64_t rows, int64_t columns, float factor, float* to, int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(CopyScaled)(from.data, from.dtype, from.stride, rows, columns, factor, to, to_stride);
}

void store_scaled(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float factor,
                  Rows to) {
  HWY_DYNAMIC_DISPATCH(StoreScaled)
  (from, from_stride, rows, columns, &factor, 0, to.data, to.dtype, to.stride);
}

void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
               int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(Transpose)(from, from_stride, rows, columns, to, to_stride);
}

void row_dots(const float* a, const float* b, int64_t stride, int64_t rows, int64_t columns, float* out) {
  HWY_DYNAMIC_DISPATCH(RowDots)(a, b, stride, rows, columns, out);
}

void softmax_block(const ScoreBlock& block, float* scores, int64_t stride, const RunningSoftmax& running) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBlock)(block, scores, stride, running);
}

void finish_softmax(const RunningSoftmax& running, int64_t rows, Rows y, float* lse) {
  for (int64_t r = 0; r < rows; ++r) {
    const float sum = running.sum[r];
    const bool saw_nothing = sum == 0;
    lse[r] = saw_nothing ? -std::numeric_limits<float>::infinity()
                         : static_cast<float>((running.largest[r] + std::log2(double{sum})) * kLn2);
    running.sum[r] = saw_nothing ? 0.0f : 1.0f / sum;
  }
  HWY_DYNAMIC_DISPATCH(StoreScaled)
  (running.output, running.stride, rows, running.head_dim, running.sum, 1, y.data, y.dtype, y.stride);
}

void backward_block(const ScoreBlock& block, float* scores, float* d_p, const float* keep, int64_t stride,
                    const float* lse2, const float* dots) {
  HWY_DYNAMIC_DISPATCH(BackwardBlock)(block, scores, d_p, keep, stride, lse2, dots);
}

AttentionDropout::AttentionDropout(double probability, const uint32_t* randomness, int64_t stream,
                                   int64_t head, int64_t positions)
    : stream_(randomness, stream),
      threshold_(drop_threshold(probability)),
      first_element_(static_cast<uint64_t>(head) * static_cast<uint64_t>(positions) *
                     static_cast<uint64_t>(positions)),
      positions_(positions),
      scale_(static_cast<float>(keep_scale(probability))) {}

template <typename Use>
void AttentionDropout::for_queries(const ScoreBlock& block, const Use& use) const {
  require(block.keys <= kDropoutKeys, "dropout of {} keys at once", block.keys);
  std::array<uint32_t, kDropoutKeys + 8> words;
  std::array<float, kDropoutKeys> factors;
  for (int64_t r = 0; r < block.queries; ++r) {
    const uint64_t first =
        first_element_ + static_cast<uint64_t>((block.first_query + r) * positions_ + block.first_key);
    const int64_t skipped = static_cast<int64_t>(first % 4);
    philox_words(stream_, first / 4, ceil_div(skipped + block.keys, 4), words.data());
    for (int64_t c = 0; c < block.keys; ++c)
      factors[static_cast<size_t>(c)] = words[static_cast<size_t>(skipped + c)] >= threshold_ ? scale_ : 0.0f;
    use(r, factors.data());
  }
}

void AttentionDropout::apply(const ScoreBlock& block, float* probabilities, int64_t stride) const {
  for_queries(block, [&](int64_t query, const float* factors) {
    for (int64_t c = 0; c < block.keys; ++c) probabilities[query * stride + c] *= factors[c];
  });
}

void AttentionDropout::factors_transposed(const ScoreBlock& block, float* keep, int64_t stride) const {
  for_queries(block, [&](int64_t query, const float* factors) {
    for (int64_t c = 0; c < block.keys; ++c) keep[c * stride + query] = factors[c];
  });
}

}  // namespace snug::cpu
