// backends/cpu/attention_blocks.h — the vector parts of blocked attention: copies of a head, and one block of scores at a time
//
// Scores are kept in base 2: queries are copied with scale·log₂e folded in, so that p = 2^(score − lse·log₂e) and no exponential needs a
// multiplication. Everything here runs on the calling thread; leading dimensions are in elements. pair_rows and what ends in _bf16 need a processor
// for which bf16_product_refusal (onednn.h) is silent.
#pragma once

#include <cstdint>

#include "backends/cpu/bfloat16.h"
#include "backends/cpu/pair_product.h"
#include "backends/cpu/panel.h"
#include "backends/cpu/philox.h"

namespace snug::cpu {

// Rows of f32 scratch hold this many elements beyond the last one that may be read and written.
constexpr int64_t kRowPadding = 16;

constexpr double kLog2E = 1.44269504088896340736, kLn2 = 0.69314718055994530942;

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
// to[r][c] = from[r][c], both bf16.
void copy_rows(ConstRows from, int64_t rows, int64_t columns, BFloat16* to, int64_t to_stride);
// to[c][r] = from[r][c]
void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
               int64_t to_stride);
void transpose(const Bf16Pair* from, int64_t from_stride, int64_t rows, int64_t columns, Bf16Pair* to,
               int64_t to_stride);
// to[r / 2][c] = the pair (from[r][c], from[r + 1][c]), for even r. Works on whole vectors: rows have kRowPadding elements of room.
void pair_rows(const BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns, Bf16Pair* to,
               int64_t to_stride);
// out[r] = Σ_c a[r][c]·b[r][c]
void row_dots(const float* a, const float* b, int64_t stride, int64_t rows, int64_t columns, float* out);

// Turns scores (queries, keys) into 2^(score − largest), 0 where invisible, and brings the running softmax's largest, sum and old output to the
// new largest. The product with v is the caller's.
void softmax_block(const ScoreBlock& block, float* scores, int64_t stride, const RunningSoftmax& running);
// The same of factor · scores. Sums are of the f32 probabilities; each is then stored as the nearest bf16, from its row's beginning on.
void softmax_block_bf16(const ScoreBlock& block, float* scores, int64_t stride, float factor,
                        const RunningSoftmax& running);

// y = factor · output / sum and lse (natural); leaves factor/sum in `sum`. A query that saw nothing gets y = 0 and lse = −∞.
void finish_softmax(const RunningSoftmax& running, int64_t rows, float factor, Rows y, float* lse);

// to[r] = lse[r]·log₂e, +∞ where it is −∞ (a query that saw nothing has p = 0), and +∞ in the padding.
void base2_lse(const float* lse, int64_t queries, float* to);

// Of transposed scores (keys, queries).
struct ScoreGradients {
  float *scores, *d_p;
  const float* keep;         // dropout factors; null: 1
  int64_t stride;            // of these three
  float factor;              // of the scores
  const float *lse2, *dots;  // by query of the block
};
// With p = 2^(factor·scores − lse2): scores ← p·keep, d_p ← p·(d_p·keep − dots).
void backward_block(const ScoreBlock& block, const ScoreGradients& of);
// The same, each stored as the nearest bf16 from its row's beginning on, and d_p also as pairs of keys (keys / 2, queries). An odd last key is
// paired with 0, and the row behind it is written.
void backward_block_bf16(const ScoreBlock& block, const ScoreGradients& of, Bf16Pair* d_score_pairs);

// Dropout of the probabilities of one (sample, head).
class AttentionDropout {
 public:
  // `positions` is T; `stream` and `probability` are the operation's attributes.
  AttentionDropout(double probability, const uint32_t* randomness, int64_t stream, int64_t head,
                   int64_t positions);

  // probabilities (queries, keys) ← 0 or probabilities/(1−probability).
  void apply(const ScoreBlock& block, float* probabilities, int64_t stride) const;
  // probabilities (queries, keys) ← 0 or probabilities: the factor is finish_softmax's.
  void drop(const ScoreBlock& block, BFloat16* probabilities, int64_t stride) const;
  // keep[key][query] = 0 or 1/(1−probability); 0 in the padding.
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
