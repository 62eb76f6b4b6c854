// Backward of blocked attention, recomputing probabilities from lse: Dao et al. 2022, appendix B.2.
//
//   P = 2^(S − lse),  dV = (P∘M)ᵀ·dY,  dP = (dY·Vᵀ)∘M,  dS = P∘(dP − rowsum(dY∘Y)),  dQ = scale·dS·K,  dK = scale·dSᵀ·Q
//
// with M the dropout factors. Works on Sᵀ and dPᵀ (keys × queries) and on dQᵀ, so that all five products of a block are plain row-major ones
// (small transposed products run at 65–80 % of their rate). One (sample, key-value head) is a task of one thread: dK and dV need no other
// thread's sums, and the bits do not depend on the number of threads.
#include "backends/cpu/attention_shape.h"
#include "backends/cpu/onednn.h"

namespace snug::cpu {
namespace {

// One thread's working set. Transposed parts are (head_dim, T) or (head_dim, query block), the others (T or query block, head_dim).
struct BackwardScratch {
  float *k, *k_transposed, *v, *d_k, *d_v;
  float *q, *q_transposed, *d_y, *d_y_transposed, *d_q_transposed;
  float *scores, *d_p, *keep;  // (key block, query block)
  float *lse2, *dots;          // (query block)
};

struct BackwardStrides {
  int64_t row, keys, block;

  explicit BackwardStrides(const AttentionShape& s)
      : row(row_stride(s.head_dim)), keys(row_stride(s.positions)), block(row_stride(s.query_block())) {}
};

BackwardScratch take_scratch(const AttentionShape& s, Scratch& scratch) {
  const BackwardStrides strides(s);
  const int64_t queries = s.query_block(), key_block = std::max(queries, std::min(s.positions, kKeyBlock));
  BackwardScratch parts;
  for (float** part : {&parts.k, &parts.v, &parts.d_k, &parts.d_v})
    *part = scratch.take<float>(s.positions * strides.row);
  parts.k_transposed = scratch.take<float>(s.head_dim * strides.keys);
  for (float** part : {&parts.q, &parts.d_y}) *part = scratch.take<float>(queries * strides.row);
  for (float** part : {&parts.q_transposed, &parts.d_y_transposed, &parts.d_q_transposed})
    *part = scratch.take<float>(s.head_dim * strides.block + kRowPadding);
  // Rows of y and d_q pass through the first of these blocks.
  parts.scores =
      scratch.take<float>(std::max(key_block * strides.block, queries * strides.row) + kRowPadding);
  parts.d_p = scratch.take<float>(key_block * strides.block + kRowPadding);
  parts.keep = s.dropout > 0 ? scratch.take<float>(key_block * strides.block + kRowPadding) : nullptr;
  for (float** part : {&parts.lse2, &parts.dots}) *part = scratch.take<float>(queries + kRowPadding);
  return parts;
}

class BlockedAttentionBackward : public Kernel {
 public:
  BlockedAttentionBackward(const Binding& b, const AttentionShape& shape)
      : s_(shape), strides_(shape), o_(shape, b), scratch_(scratch_of_threads(b, shape, take_scratch)) {}

  void run(bool) override {
    for_heads(s_.samples, s_.kv_heads, scratch_,
              [this](int64_t sample, int64_t kv_head, const BackwardScratch& own) {
                differentiate(sample, kv_head, own);
              });
  }

 private:
  void differentiate(int64_t sample, int64_t kv_head, const BackwardScratch& own) const {
    const int64_t first_row = sample * s_.positions, kv_column = kv_head * s_.head_dim;
    copy_scaled(o_.in.k.from(first_row, kv_column), s_.positions, s_.head_dim, 1.0f, own.k, strides_.row);
    copy_scaled(o_.in.v.from(first_row, kv_column), s_.positions, s_.head_dim, 1.0f, own.v, strides_.row);
    transpose(own.k, strides_.row, s_.positions, s_.head_dim, own.k_transposed, strides_.keys);
    std::fill_n(own.d_k, s_.positions * strides_.row, 0.0f);
    std::fill_n(own.d_v, s_.positions * strides_.row, 0.0f);
    for (int64_t head = kv_head * s_.group(); head < (kv_head + 1) * s_.group(); ++head)
      for (int64_t query = 0; query < s_.positions; query += kQueryBlock)
        differentiate_queries(sample, head, query, std::min(kQueryBlock, s_.positions - query), own);
    // Queries carry scale·log₂e.
    store_scaled(own.d_k, strides_.row, s_.positions, s_.head_dim, static_cast<float>(kLn2),
                 o_.out.k.from(first_row, kv_column));
    store_scaled(own.d_v, strides_.row, s_.positions, s_.head_dim, 1.0f, o_.out.v.from(first_row, kv_column));
  }

  void load_queries(int64_t sample, int64_t head, int64_t first_query, int64_t queries,
                    const BackwardScratch& own) const {
    const int64_t first_row = sample * s_.positions + first_query, column = head * s_.head_dim;
    copy_scaled(o_.in.q.from(first_row, column), queries, s_.head_dim, static_cast<float>(s_.scale * kLog2E),
                own.q, strides_.row);
    transpose(own.q, strides_.row, queries, s_.head_dim, own.q_transposed, strides_.block);
    copy_scaled(o_.d_y.from(first_row, column), queries, s_.head_dim, 1.0f, own.d_y, strides_.row);
    transpose(own.d_y, strides_.row, queries, s_.head_dim, own.d_y_transposed, strides_.block);
    copy_scaled(o_.y.from(first_row, column), queries, s_.head_dim, 1.0f, own.scores, strides_.row);
    row_dots(own.d_y, own.scores, strides_.row, queries, s_.head_dim, own.dots);
    base2_lse(o_.lse + (sample * s_.heads + head) * s_.positions + first_query, queries, own.lse2);
    // Lanes beyond the last query get p = 0 from any score.
    std::fill_n(own.dots + queries, kRowPadding, 0.0f);
  }

  void differentiate_queries(int64_t sample, int64_t head, int64_t first_query, int64_t queries,
                             const BackwardScratch& own) const {
    load_queries(sample, head, first_query, queries, own);
    std::fill_n(own.d_q_transposed, s_.head_dim * strides_.block, 0.0f);
    const int64_t D = s_.head_dim, row = strides_.row, stride = strides_.block;
    for_backward_blocks(
        o_.starts + sample * s_.positions, first_query, queries, diagonal_half(queries),
        [&](const ScoreBlock& block) {
          const int64_t column = block.first_query - first_query, key = block.first_key * row;
          // Sᵀ = K·Qᵀ, dPᵀ = V·dYᵀ
          sgemm(false, false, block.keys, block.queries, D, own.k + key, row, own.q_transposed + column,
                stride, 0.0f, own.scores, stride);
          sgemm(false, false, block.keys, block.queries, D, own.v + key, row, own.d_y_transposed + column,
                stride, 0.0f, own.d_p, stride);
          if (own.keep != nullptr)
            AttentionDropout(s_.dropout, o_.randomness + 4 * sample, s_.stream, head, s_.positions)
                .factors_transposed(block, own.keep, stride);
          backward_block(block,
                         {own.scores, own.d_p, own.keep, stride, 1.0f, own.lse2 + column, own.dots + column});
          // dV += (P∘M)ᵀ·dY, dK += dSᵀ·Q, dQᵀ += Kᵀ·dSᵀ
          sgemm(false, false, block.keys, D, block.queries, own.scores, stride, own.d_y + column * row, row,
                1.0f, own.d_v + key, row);
          sgemm(false, false, block.keys, D, block.queries, own.d_p, stride, own.q + column * row, row, 1.0f,
                own.d_k + key, row);
          sgemm(false, false, D, block.queries, block.keys, own.k_transposed + block.first_key, strides_.keys,
                own.d_p, stride, 1.0f, own.d_q_transposed + column, stride);
        });
    transpose(own.d_q_transposed, stride, D, queries, own.scores, row);
    store_scaled(own.scores, row, queries, D, static_cast<float>(s_.scale),
                 o_.out.q.from(sample * s_.positions + first_query, head * D));
  }

  AttentionShape s_;
  BackwardStrides strides_;
  BackwardOperands o_;
  std::vector<BackwardScratch> scratch_;  // one a thread
};

}  // namespace

Bytes attention_backward_scratch_bytes(const AttentionShape& shape, int threads) {
  return scratch_of_threads_bytes(shape, threads, take_scratch);
}

std::unique_ptr<Kernel> make_attention_backward(const Binding& binding, const AttentionShape& shape) {
  return std::make_unique<BlockedAttentionBackward>(binding, shape);
}

}  // namespace snug::cpu
