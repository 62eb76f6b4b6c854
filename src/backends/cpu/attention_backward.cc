// Backward of blocked attention, recomputing probabilities from lse: Dao et al. 2022, appendix B.2.
//
//   P = 2^(S − lse),  dV = (P∘M)ᵀ·dY,  dP = (dY·Vᵀ)∘M,  dS = P∘(dP − rowsum(dY∘Y)),  dQ = scale·dS·K,  dK = scale·dSᵀ·Q
//
// with M the dropout factors. Works on Sᵀ and dPᵀ (keys × queries) and on dQᵀ, so that all five products of a block are plain row-major ones
// (small transposed products run at 65–80 % of their rate). One (sample, key-value head) is a task of one thread: dK and dV need no other
// thread's sums, and the bits do not depend on the number of threads.
#include <omp.h>

#include <limits>

#include "backends/cpu/attention_shape.h"
#include "backends/cpu/onednn.h"

namespace snug::cpu {
namespace {

constexpr float kLn2 = 0.69314718055994530942f;

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
      : s_(shape),
        strides_(shape),
        threads_(b.dispatch.threads),
        in_(head_views<ConstRows>(shape, b.inputs, 1)),
        out_(head_views<Rows>(shape, b.outputs, 0)) {
    const size_t y = s_.fused ? 2 : 4;
    d_y_ = {b.inputs[0].data, s_.dtype, s_.q_width()};
    y_ = {b.inputs[y].data, s_.dtype, s_.q_width()};
    lse_ = b.inputs[y + 1].as<float>();
    starts_ = b.inputs[y + 2].as<int32_t>();
    if (s_.dropout > 0) randomness_ = b.inputs.at(y + 3).as<uint32_t>();
    Scratch scratch(b.scratch);
    for (int thread = 0; thread < threads_; ++thread) scratch_.push_back(take_scratch(s_, scratch));
  }

  void run(bool) override {
#pragma omp parallel num_threads(threads_)
    {
      // Products here belong to this thread. Without this oneDNN would choose their method by the team's size,
      // and bits would depend on it.
      omp_set_num_threads(1);
      const auto& own = scratch_[static_cast<size_t>(omp_get_thread_num())];
#pragma omp for schedule(dynamic)
      for (int64_t task = 0; task < s_.samples * s_.kv_heads; ++task)
        differentiate(task / s_.kv_heads, task % s_.kv_heads, own);
    }
  }

 private:
  void differentiate(int64_t sample, int64_t kv_head, const BackwardScratch& own) const {
    const int64_t first_row = sample * s_.positions, kv_column = kv_head * s_.head_dim;
    copy_scaled(in_.k.from(first_row, kv_column), s_.positions, s_.head_dim, 1.0f, own.k, strides_.row);
    copy_scaled(in_.v.from(first_row, kv_column), s_.positions, s_.head_dim, 1.0f, own.v, strides_.row);
    transpose(own.k, strides_.row, s_.positions, s_.head_dim, own.k_transposed, strides_.keys);
    std::fill_n(own.d_k, s_.positions * strides_.row, 0.0f);
    std::fill_n(own.d_v, s_.positions * strides_.row, 0.0f);
    for (int64_t head = kv_head * s_.group(); head < (kv_head + 1) * s_.group(); ++head)
      for (int64_t query = 0; query < s_.positions; query += kQueryBlock)
        differentiate_queries(sample, head, query, std::min(kQueryBlock, s_.positions - query), own);
    // Queries carry scale·log₂e.
    store_scaled(own.d_k, strides_.row, s_.positions, s_.head_dim, kLn2, out_.k.from(first_row, kv_column));
    store_scaled(own.d_v, strides_.row, s_.positions, s_.head_dim, 1.0f, out_.v.from(first_row, kv_column));
  }

  void load_queries(int64_t sample, int64_t head, int64_t first_query, int64_t queries,
                    const BackwardScratch& own) const {
    const int64_t first_row = sample * s_.positions + first_query, column = head * s_.head_dim;
    copy_scaled(in_.q.from(first_row, column), queries, s_.head_dim, static_cast<float>(s_.scale * kLog2E),
                own.q, strides_.row);
    transpose(own.q, strides_.row, queries, s_.head_dim, own.q_transposed, strides_.block);
    copy_scaled(d_y_.from(first_row, column), queries, s_.head_dim, 1.0f, own.d_y, strides_.row);
    transpose(own.d_y, strides_.row, queries, s_.head_dim, own.d_y_transposed, strides_.block);
    copy_scaled(y_.from(first_row, column), queries, s_.head_dim, 1.0f, own.scores, strides_.row);
    row_dots(own.d_y, own.scores, strides_.row, queries, s_.head_dim, own.dots);
    const float* lse = lse_ + (sample * s_.heads + head) * s_.positions + first_query;
    for (int64_t r = 0; r < queries; ++r)
      own.lse2[r] = std::isinf(lse[r]) && lse[r] < 0
                        ? std::numeric_limits<float>::infinity()  // saw nothing: p = 0
                        : lse[r] * static_cast<float>(kLog2E);
    // Lanes beyond the last query get p = 0 from any score.
    std::fill_n(own.lse2 + queries, kRowPadding, std::numeric_limits<float>::infinity());
    std::fill_n(own.dots + queries, kRowPadding, 0.0f);
  }

  void differentiate_queries(int64_t sample, int64_t head, int64_t first_query, int64_t queries,
                             const BackwardScratch& own) const {
    load_queries(sample, head, first_query, queries, own);
    std::fill_n(own.d_q_transposed, s_.head_dim * strides_.block, 0.0f);
    const int64_t D = s_.head_dim, row = strides_.row, stride = strides_.block;
    for_backward_blocks(starts_ + sample * s_.positions, first_query, queries, [&](const ScoreBlock& block) {
      const int64_t column = block.first_query - first_query, key = block.first_key * row;
      // Sᵀ = K·Qᵀ, dPᵀ = V·dYᵀ
      sgemm(false, false, block.keys, block.queries, D, own.k + key, row, own.q_transposed + column, stride,
            0.0f, own.scores, stride);
      sgemm(false, false, block.keys, block.queries, D, own.v + key, row, own.d_y_transposed + column, stride,
            0.0f, own.d_p, stride);
      if (own.keep != nullptr)
        AttentionDropout(s_.dropout, randomness_ + 4 * sample, s_.stream, head, s_.positions)
            .factors_transposed(block, own.keep, stride);
      backward_block(block, own.scores, own.d_p, own.keep, stride, own.lse2 + column, own.dots + column);
      // dV += (P∘M)ᵀ·dY, dK += dSᵀ·Q, dQᵀ += Kᵀ·dSᵀ
      sgemm(false, false, block.keys, D, block.queries, own.scores, stride, own.d_y + column * row, row, 1.0f,
            own.d_v + key, row);
      sgemm(false, false, block.keys, D, block.queries, own.d_p, stride, own.q + column * row, row, 1.0f,
            own.d_k + key, row);
      sgemm(false, false, D, block.queries, block.keys, own.k_transposed + block.first_key, strides_.keys,
            own.d_p, stride, 1.0f, own.d_q_transposed + column, stride);
    });
    transpose(own.d_q_transposed, stride, D, queries, own.scores, row);
    store_scaled(own.scores, row, queries, D, static_cast<float>(s_.scale),
                 out_.q.from(sample * s_.positions + first_query, head * D));
  }

  AttentionShape s_;
  BackwardStrides strides_;
  int threads_;
  HeadViews<ConstRows> in_;
  HeadViews<Rows> out_;
  ConstRows d_y_, y_;
  const float* lse_ = nullptr;
  const int32_t* starts_ = nullptr;
  const uint32_t* randomness_ = nullptr;
  std::vector<BackwardScratch> scratch_;  // one a thread
};

}  // namespace

Bytes attention_backward_scratch_bytes(const AttentionShape& shape, int threads) {
  Scratch scratch;
  take_scratch(shape, scratch);
  return scratch.used() * threads;
}

std::unique_ptr<Kernel> make_attention_backward(const Binding& binding, const AttentionShape& shape) {
  return std::make_unique<BlockedAttentionBackward>(binding, shape);
}

}  // namespace snug::cpu
