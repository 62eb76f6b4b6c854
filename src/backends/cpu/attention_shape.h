// backends/cpu/attention_shape.h — the operands of the four attention operations, and how they are cut into blocks
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "backends/cpu/attention_blocks.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/scratch.h"

namespace snug::cpu {

// Lengths of a block: functions of nothing. Measured (bench/kernels): larger key blocks lose above the diagonal, smaller ones in the products.
constexpr int64_t kQueryBlock = 128, kKeyBlock = 256;
// Below this many queries the diagonal block is not split in halves.
constexpr int64_t kSmallestSplit = 32;

constexpr double kLog2E = 1.44269504088896340736;

struct AttentionShape {
  int64_t samples = 0, positions = 0, heads = 0, kv_heads = 0, head_dim = 0;
  double scale = 0, dropout = 0;
  int64_t stream = 0;
  DType dtype = DType::kF32;
  bool fused = false;  // q, k, v side by side in one tensor

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t group() const { return heads / kv_heads; }
  int64_t query_block() const { return std::min(positions, kQueryBlock); }
};

// A leading dimension for rows of `elements` floats: padded for whole vectors, and off the multiples of 1 KiB that would put a column's
// elements into few cache sets.
inline int64_t row_stride(int64_t elements) {
  const int64_t whole = round_up(elements, kRowPadding);
  return whole * 4 % 1024 == 0 ? whole + kRowPadding : whole;
}

// q, k, v (or their gradients) of an operation, whether fused or not.
template <typename View>
struct HeadViews {
  View q, k, v;
};

// `first` is the position of q or qkv among `operands`.
template <typename View>
HeadViews<View> head_views(const AttentionShape& s, const std::vector<Operand>& operands, size_t first) {
  if (!s.fused) {
    const auto view = [&](size_t i, int64_t width) { return View{operands[first + i].data, s.dtype, width}; };
    return {view(0, s.q_width()), view(1, s.kv_width()), view(2, s.kv_width())};
  }
  const View all{operands[first].data, s.dtype, s.q_width() + 2 * s.kv_width()};
  return {all, all.from(0, s.q_width()), all.from(0, s.q_width() + s.kv_width())};
}

// Calls visit(block) for the visible part of queries [first_query, first_query + queries): whole key blocks up to the diagonal square, then
// the square in two halves of queries. Keys before every query's document start are left out. A block's queries and keys are a
// function of the shape and the document starts alone.
template <typename Visit>
void for_forward_blocks(const int32_t* starts, int64_t first_query, int64_t queries, const Visit& visit) {
  const auto [lowest, highest] = std::minmax_element(starts + first_query, starts + first_query + queries);
  // Whole vectors of keys, so that the ragged end stays at the diagonal.
  const int64_t first_key = *lowest / kRowPadding * kRowPadding;
  for (int64_t key = first_key; key < first_query; key += kKeyBlock)
    visit(ScoreBlock{first_query, queries, key, std::min(kKeyBlock, first_query - key), starts,
                     *highest > key});
  const int64_t half = queries <= kSmallestSplit ? queries : round_up(queries / 2, kRowPadding);
  visit(ScoreBlock{first_query, half, first_query, half, starts, true});
  if (half < queries)
    visit(ScoreBlock{first_query + half, queries - half, first_query, queries, starts, true});
}

// The same pairs for the transposed backward: the square in two halves of keys.
template <typename Visit>
void for_backward_blocks(const int32_t* starts, int64_t first_query, int64_t queries, const Visit& visit) {
  const auto [lowest, highest] = std::minmax_element(starts + first_query, starts + first_query + queries);
  const int64_t first_key = *lowest / kRowPadding * kRowPadding;
  for (int64_t key = first_key; key < first_query; key += kKeyBlock)
    visit(ScoreBlock{first_query, queries, key, std::min(kKeyBlock, first_query - key), starts,
                     *highest > key});
  const int64_t half = queries <= kSmallestSplit ? queries : round_up(queries / 2, kRowPadding);
  visit(ScoreBlock{first_query, queries, first_query, half, starts, true});
  if (half < queries)
    visit(ScoreBlock{first_query + half, queries - half, first_query + half, queries - half, starts, true});
}

// Implemented in attention_backward.cc.
Bytes attention_backward_scratch_bytes(const AttentionShape& shape, int threads);
// `first` is the position of q (or qkv) among the inputs; y, lse, document starts and randomness follow.
std::unique_ptr<Kernel> make_attention_backward(const Binding& binding, const AttentionShape& shape);

}  // namespace snug::cpu
