// backends/cpu/attention_blocks.h — the vector parts of blocked attention: copies of a head, and one block of scores at a time
//
// Scores are kept in base 2: queries are copied with scale·log₂e folded in, so that p = 2^(score − lse·log₂e) and no exponential needs a
// multiplication. Everything here runs on the calling thread; leading dimensions are in elements.
#pragma once

#include <cstdint>

#include "backends/cpu/panel.h"
#include "backends/cpu/philox.h"

namespace snug::cpu {

// Rows of f32 scratch hold this many elements beyond the last one that may be read and written.
constexpr int64_t kRowPadding = 16;

// Part of the (query, key) plane of one sample and head.
struct ScoreBlock {
  int64_t first_query, queries, first_key, keys;
  const int32_t* document_starts;  // of the sample, by position
  bool masked;                     // some pair in the block is not visible
};

// The running softmax of some query rows, by row of the block: Dao et al. 2022, algorithm 1.
struct RunningSoftmax {
  float *largest, *sum;  // largest score so far (base 2), Σ 2^(score − largest)
  float* output;         // Σ 2^(score − largest)·v, rows of `head_dim`
  int64_t stride, head_dim;
};

// to[r][c] = factor · from[r][c]; `from` is f32, bf16 or f16.
void copy_scaled(ConstRows from, int64_t rows, int64_t columns, float factor, float* to, int64_t to_stride);
// to[r][c] = factor · from[r][c], rounded to `to`'s type.
void store_scaled(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float factor,
                  Rows to);
// to[c][r] = from[r][c]
void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
               int64_t to_stride);
// out[r] = Σ_c a[r][c]·b[r][c]
void row_dots(const float* a, const float* b, int64_t stride, int64_t rows, int64_t columns, float* out);

// Turns scores (queries, keys) into 2^(score − largest), 0 where invisible, and brings the running softmax's largest, sum and old output to the
// new largest. The product with v is the caller's.
void softmax_block(const ScoreBlock& block, float* scores, int64_t stride, const RunningSoftmax& running);

// y = output / sum and lse (natural); leaves 1/sum in `sum`. A query that saw nothing gets y = 0 and lse = −∞.
void finish_softmax(const RunningSoftmax& running, int64_t rows, Rows y, float* lse);

// For the transposed scores and d_p (keys, queries): scores ← p·keep, d_p ← p·(d_p·keep − dots). lse2 is lse·log₂e; `lse2` and `dots` are by
// query of the block. keep (keys, queries) may be null: 1.
void backward_block(const ScoreBlock& block, float* scores, float* d_p, const float* keep, int64_t stride,
                    const float* lse2, const float* dots);

// Dropout of the probabilities of one (sample, head).
class AttentionDropout {
 public:
  // `positions` is T; `stream` and `probability` are the operation's attributes.
  AttentionDropout(double probability, const uint32_t* randomness, int64_t stream, int64_t head,
                   int64_t positions);

  // probabilities (queries, keys) ← 0 or probabilities/(1−probability).
  void apply(const ScoreBlock& block, float* probabilities, int64_t stride) const;
  // keep[key][query] = 0 or 1/(1−probability).
  void factors_transposed(const ScoreBlock& block, float* keep, int64_t stride) const;

 private:
  // Calls use(query of the block, factors by key of the block) for every query.
  template <typename Use>
  void for_queries(const ScoreBlock& block, const Use& use) const;

  RandomStream stream_;
  uint64_t threshold_, first_element_;
  int64_t positions_;
  float scale_;
};

}  // namespace snug::cpu
