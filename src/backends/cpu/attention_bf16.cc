// Blocked attention where the processor multiplies bf16: every product of a block reads bf16 and sums in f32 (pair_product.h).
//
// The same blocks, tasks and formulas as attention.cc and attention_backward.cc, and the same softmax in f32. What is rounded to bf16 between two
// products: probabilities before P·V and Pᵀ·dY, and dS. Queries are not scaled, so that scores are of the model's own numbers: the scale joins
// the exponential. Scores of the forward and the backward have the same bits, since every one is the same sum over the same pairs.
#include "backends/cpu/attention_shape.h"

namespace snug::cpu {
namespace {

// Of the diagonal square. Measured: 2–3 % faster than 64, and 16 no faster.
constexpr int64_t kStrip = 32;

int64_t pairs(int64_t elements) { return ceil_div(elements, int64_t{2}); }

// Rows of bf16 as left operands: the pairs lie along the row.
LeftPairs pairs_of(const void* rows, int64_t stride) {
  return {static_cast<const Bf16Pair*>(rows), stride / 2, 1};
}

// to (columns / 2, rows): the right operand that the transposed matrix is.
void transpose_pairs(const BFloat16* from, int64_t stride, int64_t rows, int64_t columns, Bf16Pair* to,
                     int64_t to_stride) {
  transpose(reinterpret_cast<const Bf16Pair*>(from), stride / 2, rows, columns / 2, to, to_stride);
}

struct Strides {
  int64_t row, keys, block;  // rows of a head; (…, T); scores

  Strides(const AttentionShape& s, int64_t block_columns)
      : row(row_stride(s.head_dim)), keys(row_stride(s.positions)), block(row_stride(block_columns)) {}
};

int64_t longest_key_block(const AttentionShape& s) {
  return std::max(std::min(s.positions, kKeyBlock), s.query_block());
}

// One thread's working set.
struct ForwardScratch {
  Bf16Pair *keys, *values;  // (head_dim / 2, T) and (T / 2, head_dim)
  BFloat16* rows;           // (query block, head_dim): of the queries, and of whatever is packed
  float *scores, *output;   // (query block, key block) and (query block, head_dim)
  float *largest, *sum;     // (query block)
};

ForwardScratch take_forward_scratch(const AttentionShape& s, Scratch& scratch) {
  const Strides strides(s, longest_key_block(s));
  ForwardScratch parts;
  parts.keys = scratch.take<Bf16Pair>(s.head_dim / 2 * strides.keys + kRowPadding);
  parts.values = scratch.take<Bf16Pair>(pairs(s.positions) * strides.row);
  parts.rows = scratch.take<BFloat16>(s.query_block() * strides.row);
  parts.scores = scratch.take<float>(s.query_block() * strides.block + kRowPadding);
  parts.output = scratch.take<float>(s.query_block() * strides.row);
  parts.largest = scratch.take<float>(s.query_block());
  parts.sum = scratch.take<float>(s.query_block());
  return parts;
}

class Bf16Attention : public Kernel {
 public:
  Bf16Attention(const Binding& b, const AttentionShape& shape)
      : s_(shape),
        strides_(shape, longest_key_block(shape)),
        o_(shape, b),
        scratch_(scratch_of_threads(b, shape, take_forward_scratch)) {}

  void run(bool) override {
    for_heads(s_.samples, s_.heads, scratch_,
              [this](int64_t sample, int64_t head, const ForwardScratch& own) { attend(sample, head, own); });
  }

 private:
  void attend(int64_t sample, int64_t head, const ForwardScratch& own) const {
    const int64_t first_row = sample * s_.positions, kv_column = head / s_.group() * s_.head_dim;
    for (int64_t key = 0; key < s_.positions; key += kQueryBlock) {
      const int64_t keys = std::min(kQueryBlock, s_.positions - key);
      copy_rows(o_.in.k.from(first_row + key, kv_column), keys, s_.head_dim, own.rows, strides_.row);
      transpose_pairs(own.rows, strides_.row, keys, s_.head_dim, own.keys + key, strides_.keys);
      copy_rows(o_.in.v.from(first_row + key, kv_column), keys, s_.head_dim, own.rows, strides_.row);
      pair_rows(own.rows, strides_.row, keys, s_.head_dim, own.values + key / 2 * strides_.row, strides_.row);
    }
    for (int64_t query = 0; query < s_.positions; query += kQueryBlock)
      attend_queries(sample, head, query, std::min(kQueryBlock, s_.positions - query), own);
  }

  void attend_queries(int64_t sample, int64_t head, int64_t first_query, int64_t queries,
                      const ForwardScratch& own) const {
    const int64_t first_row = sample * s_.positions + first_query, column = head * s_.head_dim;
    copy_rows(o_.in.q.from(first_row, column), queries, s_.head_dim, own.rows, strides_.row);
    std::fill_n(own.largest, queries, -std::numeric_limits<float>::infinity());
    std::fill_n(own.sum, queries, 0.0f);
    std::fill_n(own.output, queries * strides_.row, 0.0f);
    const RunningSoftmax all{own.largest, own.sum, own.output, strides_.row, s_.head_dim};
    for_forward_blocks(
        o_.starts + sample * s_.positions, first_query, queries, kStrip, [&](const ScoreBlock& block) {
          const int64_t row = block.first_query - first_query;
          const RunningSoftmax running{own.largest + row, own.sum + row, own.output + row * strides_.row,
                                       strides_.row, s_.head_dim};
          multiply_pairs(block.queries, block.keys, s_.head_dim / 2,
                         pairs_of(own.rows + row * strides_.row, strides_.row), own.keys + block.first_key,
                         strides_.keys, false, own.scores, strides_.block);
          softmax_block_bf16(block, own.scores, strides_.block, static_cast<float>(s_.scale * kLog2E),
                             running);
          auto* probabilities = reinterpret_cast<BFloat16*>(own.scores);
          if (s_.dropout > 0)
            AttentionDropout(s_.dropout, o_.randomness + 4 * sample, s_.stream, head, s_.positions)
                .drop(block, probabilities, 2 * strides_.block);
          multiply_pairs(block.queries, s_.head_dim, pairs(block.keys),
                         pairs_of(probabilities, 2 * strides_.block),
                         own.values + block.first_key / 2 * strides_.row, strides_.row, true, running.output,
                         strides_.row);
        });
    finish_softmax(all, queries, static_cast<float>(keep_scale(s_.dropout)), o_.y.from(first_row, column),
                   o_.lse + (sample * s_.heads + head) * s_.positions + first_query);
  }

  AttentionShape s_;
  Strides strides_;
  ForwardOperands o_;
  std::vector<ForwardScratch> scratch_;  // one a thread
};

// One thread's working set.
struct BackwardScratch {
  BFloat16 *k, *v;                          // (T, head_dim)
  Bf16Pair* k_pairs;                        // (T / 2, head_dim)
  float *d_k, *d_v;                         // (T, head_dim)
  BFloat16* rows;                           // (query block, head_dim): of what is packed
  Bf16Pair *q, *d_y;                        // (query block / 2, head_dim)
  Bf16Pair *q_transposed, *d_y_transposed;  // (head_dim / 2, query block)
  float* d_q;                               // (query block, head_dim)
  float *scores, *d_p, *keep;               // (key block, query block)
  Bf16Pair* d_score_pairs;                  // (key block / 2, query block)
  float *lse2, *dots;                       // (query block)
};

BackwardScratch take_backward_scratch(const AttentionShape& s, Scratch& scratch) {
  const Strides strides(s, s.query_block());
  const int64_t queries = s.query_block(), key_pairs = pairs(longest_key_block(s)),
                block = 2 * key_pairs * strides.block + kRowPadding;
  BackwardScratch parts;
  for (BFloat16** part : {&parts.k, &parts.v}) *part = scratch.take<BFloat16>(s.positions * strides.row);
  parts.k_pairs = scratch.take<Bf16Pair>(pairs(s.positions) * strides.row);
  for (float** part : {&parts.d_k, &parts.d_v}) *part = scratch.take<float>(s.positions * strides.row);
  parts.rows = scratch.take<BFloat16>(queries * strides.row);
  for (Bf16Pair** part : {&parts.q, &parts.d_y}) *part = scratch.take<Bf16Pair>(pairs(queries) * strides.row);
  for (Bf16Pair** part : {&parts.q_transposed, &parts.d_y_transposed})
    *part = scratch.take<Bf16Pair>(s.head_dim / 2 * strides.block);
  parts.d_q = scratch.take<float>(queries * strides.row);
  // Rows of d_y and y pass through these two blocks in f32.
  for (float** part : {&parts.scores, &parts.d_p})
    *part = scratch.take<float>(std::max(block, queries * strides.row));
  parts.keep = s.dropout > 0 ? scratch.take<float>(block) : nullptr;
  parts.d_score_pairs = scratch.take<Bf16Pair>(key_pairs * strides.block);
  for (float** part : {&parts.lse2, &parts.dots}) *part = scratch.take<float>(queries + kRowPadding);
  return parts;
}

// dP is transposed as in attention_backward.cc, and so are the products but the last: dQ = scale·dS·K.
class Bf16AttentionBackward : public Kernel {
 public:
  Bf16AttentionBackward(const Binding& b, const AttentionShape& shape)
      : s_(shape),
        strides_(shape, shape.query_block()),
        o_(shape, b),
        scratch_(scratch_of_threads(b, shape, take_backward_scratch)) {}

  void run(bool) override {
    for_heads(s_.samples, s_.kv_heads, scratch_,
              [this](int64_t sample, int64_t kv_head, const BackwardScratch& own) {
                differentiate(sample, kv_head, own);
              });
  }

 private:
  void differentiate(int64_t sample, int64_t kv_head, const BackwardScratch& own) const {
    const int64_t first_row = sample * s_.positions, kv_column = kv_head * s_.head_dim;
    copy_rows(o_.in.k.from(first_row, kv_column), s_.positions, s_.head_dim, own.k, strides_.row);
    copy_rows(o_.in.v.from(first_row, kv_column), s_.positions, s_.head_dim, own.v, strides_.row);
    pair_rows(own.k, strides_.row, s_.positions, s_.head_dim, own.k_pairs, strides_.row);
    std::fill_n(own.d_k, s_.positions * strides_.row, 0.0f);
    std::fill_n(own.d_v, s_.positions * strides_.row, 0.0f);
    for (int64_t head = kv_head * s_.group(); head < (kv_head + 1) * s_.group(); ++head)
      for (int64_t query = 0; query < s_.positions; query += kQueryBlock)
        differentiate_queries(sample, head, query, std::min(kQueryBlock, s_.positions - query), own);
    store_scaled(own.d_k, strides_.row, s_.positions, s_.head_dim, static_cast<float>(s_.scale),
                 o_.out.k.from(first_row, kv_column));
    store_scaled(own.d_v, strides_.row, s_.positions, s_.head_dim, 1.0f, o_.out.v.from(first_row, kv_column));
  }

  void pack_queries(ConstRows from, int64_t queries, const BackwardScratch& own, Bf16Pair* paired,
                    Bf16Pair* transposed) const {
    copy_rows(from, queries, s_.head_dim, own.rows, strides_.row);
    pair_rows(own.rows, strides_.row, queries, s_.head_dim, paired, strides_.row);
    // Lanes beyond the last query are multiplied too, and p = 0 there needs a finite score.
    if (queries % kPairColumns != 0) std::fill_n(transposed, s_.head_dim / 2 * strides_.block, Bf16Pair{0});
    transpose_pairs(own.rows, strides_.row, queries, s_.head_dim, transposed, strides_.block);
  }

  void load_queries(int64_t sample, int64_t head, int64_t first_query, int64_t queries,
                    const BackwardScratch& own) const {
    const int64_t first_row = sample * s_.positions + first_query, column = head * s_.head_dim;
    const ConstRows d_y = o_.d_y.from(first_row, column);
    pack_queries(o_.in.q.from(first_row, column), queries, own, own.q, own.q_transposed);
    pack_queries(d_y, queries, own, own.d_y, own.d_y_transposed);
    copy_scaled(d_y, queries, s_.head_dim, 1.0f, own.scores, strides_.row);
    copy_scaled(o_.y.from(first_row, column), queries, s_.head_dim, 1.0f, own.d_p, strides_.row);
    row_dots(own.scores, own.d_p, strides_.row, queries, s_.head_dim, own.dots);
    std::fill_n(own.dots + queries, kRowPadding, 0.0f);
    base2_lse(o_.lse + (sample * s_.heads + head) * s_.positions + first_query, queries, own.lse2);
  }

  void differentiate_queries(int64_t sample, int64_t head, int64_t first_query, int64_t queries,
                             const BackwardScratch& own) const {
    load_queries(sample, head, first_query, queries, own);
    std::fill_n(own.d_q, queries * strides_.row, 0.0f);
    const int64_t D = s_.head_dim, row = strides_.row, stride = strides_.block;
    for_backward_blocks(
        o_.starts + sample * s_.positions, first_query, queries, kStrip, [&](const ScoreBlock& block) {
          const int64_t column = block.first_query - first_query, key = block.first_key * row;
          // Sᵀ = K·Qᵀ, dPᵀ = V·dYᵀ
          multiply_pairs(block.keys, block.queries, D / 2, pairs_of(own.k + key, row),
                         own.q_transposed + column, stride, false, own.scores, stride);
          multiply_pairs(block.keys, block.queries, D / 2, pairs_of(own.v + key, row),
                         own.d_y_transposed + column, stride, false, own.d_p, stride);
          if (own.keep != nullptr)
            AttentionDropout(s_.dropout, o_.randomness + 4 * sample, s_.stream, head, s_.positions)
                .factors_transposed(block, own.keep, stride);
          backward_block_bf16(block,
                              {own.scores, own.d_p, own.keep, stride, static_cast<float>(s_.scale * kLog2E),
                               own.lse2 + column, own.dots + column},
                              own.d_score_pairs);
          // dV += (P∘M)ᵀ·dY, dK += dSᵀ·Q, dQ += dS·K
          const int64_t query_pairs = pairs(block.queries), pair_row = column / 2 * row;
          multiply_pairs(block.keys, D, query_pairs, pairs_of(own.scores, 2 * stride), own.d_y + pair_row,
                         row, true, own.d_v + key, row);
          multiply_pairs(block.keys, D, query_pairs, pairs_of(own.d_p, 2 * stride), own.q + pair_row, row,
                         true, own.d_k + key, row);
          multiply_pairs(block.queries, D, pairs(block.keys), {own.d_score_pairs, 1, stride},
                         own.k_pairs + key / 2, row, true, own.d_q + column * row, row);
        });
    store_scaled(own.d_q, row, queries, D, static_cast<float>(s_.scale),
                 o_.out.q.from(sample * s_.positions + first_query, head * D));
  }

  AttentionShape s_;
  Strides strides_;
  BackwardOperands o_;
  std::vector<BackwardScratch> scratch_;  // one a thread
};

}  // namespace

Bytes attention_bf16_scratch_bytes(const AttentionShape& shape, int threads) {
  return scratch_of_threads_bytes(shape, threads, take_forward_scratch);
}

std::unique_ptr<Kernel> make_attention_bf16(const Binding& binding, const AttentionShape& shape) {
  return std::make_unique<Bf16Attention>(binding, shape);
}

Bytes attention_bf16_backward_scratch_bytes(const AttentionShape& shape, int threads) {
  return scratch_of_threads_bytes(shape, threads, take_backward_scratch);
}

std::unique_ptr<Kernel> make_attention_bf16_backward(const Binding& binding, const AttentionShape& shape) {
  return std::make_unique<Bf16AttentionBackward>(binding, shape);
}

}  // namespace snug::cpu
