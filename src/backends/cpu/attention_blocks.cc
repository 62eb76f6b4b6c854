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
HWY_EXPORT(CopyRows);
HWY_EXPORT(StoreScaled);
HWY_EXPORT(Transpose);
HWY_EXPORT(RowDots);
HWY_EXPORT(SoftmaxBlock);
HWY_EXPORT(BackwardBlock);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
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

void copy_rows(ConstRows from, int64_t rows, int64_t columns, BFloat16* to, int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(CopyRows)(from.data, from.stride, rows, columns, to, to_stride);
}

// Moves words, whatever they mean.
void transpose(const Bf16Pair* from, int64_t from_stride, int64_t rows, int64_t columns, Bf16Pair* to,
               int64_t to_stride) {
  transpose(reinterpret_cast<const float*>(from), from_stride, rows, columns, reinterpret_cast<float*>(to),
            to_stride);
}

void pair_rows(const BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns, Bf16Pair* to,
               int64_t to_stride) {
  N_AVX3::PairRows(from, from_stride, rows, columns, to, to_stride);
}

void row_dots(const float* a, const float* b, int64_t stride, int64_t rows, int64_t columns, float* out) {
  HWY_DYNAMIC_DISPATCH(RowDots)(a, b, stride, rows, columns, out);
}

void softmax_block(const ScoreBlock& block, float* scores, int64_t stride, const RunningSoftmax& running) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBlock)(block, scores, stride, running);
}

void softmax_block_bf16(const ScoreBlock& block, float* scores, int64_t stride, float factor,
                        const RunningSoftmax& running) {
  N_AVX3::SoftmaxBlockBf16(block, scores, stride, factor, running);
}

void finish_softmax(const RunningSoftmax& running, int64_t rows, float factor, Rows y, float* lse) {
  for (int64_t r = 0; r < rows; ++r) {
    const float sum = running.sum[r];
    const bool saw_nothing = sum == 0;
    lse[r] =
        saw_nothing ? -kInfinity : static_cast<float>((running.largest[r] + std::log2(double{sum})) * kLn2);
    running.sum[r] = saw_nothing ? 0.0f : factor / sum;
  }
  HWY_DYNAMIC_DISPATCH(StoreScaled)
  (running.output, running.stride, rows, running.head_dim, running.sum, 1, y.data, y.dtype, y.stride);
}

void base2_lse(const float* lse, int64_t queries, float* to) {
  for (int64_t r = 0; r < queries; ++r)
    to[r] = lse[r] == -kInfinity ? kInfinity : lse[r] * static_cast<float>(kLog2E);
  std::fill_n(to + queries, kRowPadding, kInfinity);
}

void backward_block(const ScoreBlock& block, const ScoreGradients& of) {
  HWY_DYNAMIC_DISPATCH(BackwardBlock)(block, of);
}

void backward_block_bf16(const ScoreBlock& block, const ScoreGradients& of, Bf16Pair* d_score_pairs) {
  N_AVX3::BackwardBlockBf16(block, of, d_score_pairs);
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

void AttentionDropout::drop(const ScoreBlock& block, BFloat16* probabilities, int64_t stride) const {
  for_queries(block, [&](int64_t query, const float* factors) {
    for (int64_t c = 0; c < block.keys; ++c)
      if (factors[c] == 0) probabilities[query * stride + c] = {};
  });
}

void AttentionDropout::factors_transposed(const ScoreBlock& block, float* keep, int64_t stride) const {
  for_queries(block, [&](int64_t query, const float* factors) {
    for (int64_t c = 0; c < block.keys; ++c) keep[c * stride + query] = factors[c];
  });
  const int64_t padding = round_up(block.queries, kRowPadding) - block.queries;
  for (int64_t c = 0; c < block.keys; ++c) std::fill_n(keep + c * stride + block.queries, padding, 0.0f);
}

}  // namespace snug::cpu
