// backends/cpu/attention_shape.h — the operands of the four attention operations, and how they are cut into blocks
#pragma once

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cpu/attention_blocks.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/scratch.h"

namespace snug::cpu {

// Lengths of a block: functions of nothing. Measured (bench/kernels): larger key blocks lose above the diagonal, smaller ones in the products.
constexpr int64_t kQueryBlock = 128, kKeyBlock = 256;
// Below this many queries the diagonal block is not split in halves.
constexpr int64_t kSmallestSplit = 32;

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

// The operands of a direction, whether q, k and v are fused or not.
struct ForwardOperands {
  HeadViews<ConstRows> in;
  const int32_t* starts = nullptr;
  const uint32_t* randomness = nullptr;  // null: no dropout
  Rows y;
  float* lse = nullptr;

  ForwardOperands(const AttentionShape& s, const Binding& b) : in(head_views<ConstRows>(s, b.inputs, 0)) {
    const size_t after_qkv = s.fused ? 1 : 3;
    starts = b.inputs[after_qkv].as<int32_t>();
    if (s.dropout > 0) randomness = b.inputs.at(after_qkv + 1).as<uint32_t>();
    y = {b.outputs[0].data, s.dtype, s.q_width()};
    lse = b.outputs[1].as<float>();
  }
};

struct BackwardOperands {
  HeadViews<ConstRows> in;
  HeadViews<Rows> out;
  ConstRows d_y, y;
  const float* lse = nullptr;
  const int32_t* starts = nullptr;
  const uint32_t* randomness = nullptr;  // null: no dropout

  BackwardOperands(const AttentionShape& s, const Binding& b)
      : in(head_views<ConstRows>(s, b.inputs, 1)), out(head_views<Rows>(s, b.outputs, 0)) {
    const size_t after_qkv = s.fused ? 2 : 4;
    d_y = {b.inputs[0].data, s.dtype, s.q_width()};
    y = {b.inputs[after_qkv].data, s.dtype, s.q_width()};
    lse = b.inputs[after_qkv + 1].as<float>();
    starts = b.inputs[after_qkv + 2].as<int32_t>();
    if (s.dropout > 0) randomness = b.inputs.at(after_qkv + 3).as<uint32_t>();
  }
};

// Each thread's part of an operation's scratch, by take(shape, scratch).
template <typename Own>
std::vector<Own> scratch_of_threads(const Binding& b, const AttentionShape& s,
                                    Own (*take)(const AttentionShape&, Scratch&)) {
  Scratch scratch(b.scratch);
  std::vector<Own> all;
  for (int thread = 0; thread < b.dispatch.threads; ++thread) all.push_back(take(s, scratch));
  return all;
}
template <typename Own>
Bytes scratch_of_threads_bytes(const AttentionShape& s, int threads,
                               Own (*take)(const AttentionShape&, Scratch&)) {
  Scratch scratch;
  take(s, scratch);
  return scratch.used() * threads;
}

// Calls task(sample, head, the thread's scratch) for every head of every sample, each on one thread.
template <typename Own, typename Task>
void for_heads(int64_t samples, int64_t heads, const std::vector<Own>& scratch, const Task& task) {
  const int threads = static_cast<int>(scratch.size());
#pragma omp parallel num_threads(threads)
  {
    // Products here belong to this thread. Without this oneDNN would choose their method by the team's size,
    // and bits would depend on it.
    omp_set_num_threads(1);
    const Own& own = scratch[static_cast<size_t>(omp_get_thread_num())];
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < samples * heads; ++i) task(i / heads, i % heads, own);
  }
}

// The strip with which oneDNN's products are fastest: the square in two halves.
inline int64_t diagonal_half(int64_t queries) {
  return queries <= kSmallestSplit ? queries : round_up(queries / 2, kRowPadding);
}

// Calls visit(block) for the visible part of queries [first_query, first_query + queries): whole key blocks up to the diagonal square, then the
// square in strips of so many queries. Keys before every query's document start are left out. A block's queries and keys are a
// function of the shape and the document starts alone.
template <typename Visit>
void for_forward_blocks(const int32_t* starts, int64_t first_query, int64_t queries, int64_t strip,
                        const Visit& visit) {
  const auto [lowest, highest] = std::minmax_element(starts + first_query, starts + first_query + queries);
  // Whole vectors of keys, so that the ragged end stays at the diagonal.
  const int64_t first_key = *lowest / kRowPadding * kRowPadding;
  for (int64_t key = first_key; key < first_query; key += kKeyBlock)
    visit(ScoreBlock{first_query, queries, key, std::min(kKeyBlock, first_query - key), starts,
                     *highest > key});
  for (int64_t row = 0; row < queries; row += strip) {
    const int64_t rows = std::min(strip, queries - row);
    visit(ScoreBlock{first_query + row, rows, first_query, row + rows, starts, true});
  }
}

// The same pairs for the transposed backward: the square in strips of keys.
template <typename Visit>
void for_backward_blocks(const int32_t* starts, int64_t first_query, int64_t queries, int64_t strip,
                         const Visit& visit) {
  const auto [lowest, highest] = std::minmax_element(starts + first_query, starts + first_query + queries);
  const int64_t first_key = *lowest / kRowPadding * kRowPadding;
  for (int64_t key = first_key; key < first_query; key += kKeyBlock)
    visit(ScoreBlock{first_query, queries, key, std::min(kKeyBlock, first_query - key), starts,
                     *highest > key});
  for (int64_t row = 0; row < queries; row += strip)
    visit(ScoreBlock{first_query + row, queries - row, first_query + row, std::min(strip, queries - row),
                     starts, true});
}

// Implemented in attention_backward.cc.
Bytes attention_backward_scratch_bytes(const AttentionShape& shape, int threads);
std::unique_ptr<Kernel> make_attention_backward(const Binding& binding, const AttentionShape& shape);

// Implemented in attention_bf16.cc.
Bytes attention_bf16_scratch_bytes(const AttentionShape& shape, int threads);
std::unique_ptr<Kernel> make_attention_bf16(const Binding& binding, const AttentionShape& shape);
Bytes attention_bf16_backward_scratch_bytes(const AttentionShape& shape, int threads);
std::unique_ptr<Kernel> make_attention_bf16_backward(const Binding& binding, const AttentionShape& shape);

}  // namespace snug::cpu
