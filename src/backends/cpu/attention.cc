// Blocked causal attention within documents: forward with online softmax (Dao et al. 2022, algorithm 1), and the list of both directions.
//
// One (sample, head) is a task of one thread: it copies the head's keys (transposed) and values to contiguous f32 rows, then visits query
// blocks of kQueryBlock rows against key blocks of kKeyBlock. Bits do not depend on the number of threads. Scratch O(T · head
// dimension) for each thread. bf16 and f16 are widened when copied; everything inside is f32. attention_bf16.cc multiplies bf16.
#include <limits>

#include "backends/cpu/attention_shape.h"
#include "backends/cpu/onednn.h"
#include "base/errors.h"
#include "base/float16.h"

namespace snug::cpu {
namespace {

AttentionShape attention_shape(const OpQuery& query) {
  AttentionShape s;
  const bool backward = query.op.ends_with("backward");
  const OperandType& q = query.inputs[backward ? 1 : 0];
  s.fused = query.op.starts_with("attention_qkv");
  s.samples = q.shape.dim(0);
  s.positions = q.shape.dim(1);
  s.heads = query.attributes.integer("heads");
  s.kv_heads = query.attributes.integer_or("kv_heads", s.heads);
  require(s.heads > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0, "{}: {} heads, {} key-value heads",
          query.op, s.heads, s.kv_heads);
  s.head_dim = q.shape.last() / (s.fused ? s.heads + 2 * s.kv_heads : s.heads);
  s.scale = query.attributes.real("scale");
  s.dropout = query.attributes.real_or("dropout", 0.0);
  if (s.dropout > 0) s.stream = query.attributes.integer("stream");
  s.dtype = q.dtype;
  return s;
}

// One thread's working set.
struct ForwardScratch {
  float *keys, *values;     // (head_dim, T) and (T, head_dim)
  float *queries, *output;  // (query block, head_dim)
  float* scores;            // (query block, key block)
  float *largest, *sum;     // (query block)
};

struct ForwardStrides {
  int64_t keys, row, scores;

  explicit ForwardStrides(const AttentionShape& s)
      : keys(row_stride(s.positions)),
        row(row_stride(s.head_dim)),
        scores(row_stride(std::max(std::min(s.positions, kKeyBlock), s.query_block()))) {}
};

ForwardScratch take_forward_scratch(const AttentionShape& s, Scratch& scratch) {
  const ForwardStrides strides(s);
  ForwardScratch parts;
  parts.keys = scratch.take<float>(s.head_dim * strides.keys + kRowPadding);
  parts.values = scratch.take<float>(s.positions * strides.row);
  parts.queries = scratch.take<float>(s.query_block() * strides.row);
  parts.output = scratch.take<float>(s.query_block() * strides.row);
  // Keys are copied by way of this block before they are transposed.
  parts.scores = scratch.take<float>(s.query_block() * std::max(strides.scores, strides.row) + kRowPadding);
  parts.largest = scratch.take<float>(s.query_block());
  parts.sum = scratch.take<float>(s.query_block());
  return parts;
}

class BlockedAttention : public Kernel {
 public:
  BlockedAttention(const Binding& b, const AttentionShape& shape)
      : s_(shape),
        strides_(shape),
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
      copy_scaled(o_.in.k.from(first_row + key, kv_column), keys, s_.head_dim, 1.0f, own.scores,
                  strides_.row);
      transpose(own.scores, strides_.row, keys, s_.head_dim, own.keys + key, strides_.keys);
    }
    copy_scaled(o_.in.v.from(first_row, kv_column), s_.positions, s_.head_dim, 1.0f, own.values,
                strides_.row);
    for (int64_t query = 0; query < s_.positions; query += kQueryBlock)
      attend_queries(sample, head, query, std::min(kQueryBlock, s_.positions - query), own);
  }

  void attend_queries(int64_t sample, int64_t head, int64_t first_query, int64_t queries,
                      const ForwardScratch& own) const {
    const int64_t first_row = sample * s_.positions + first_query, column = head * s_.head_dim;
    copy_scaled(o_.in.q.from(first_row, column), queries, s_.head_dim, static_cast<float>(s_.scale * kLog2E),
                own.queries, strides_.row);
    std::fill_n(own.largest, queries, -std::numeric_limits<float>::infinity());
    std::fill_n(own.sum, queries, 0.0f);
    std::fill_n(own.output, queries * strides_.row, 0.0f);
    const RunningSoftmax all{own.largest, own.sum, own.output, strides_.row, s_.head_dim};
    for_forward_blocks(
        o_.starts + sample * s_.positions, first_query, queries, diagonal_half(queries),
        [&](const ScoreBlock& block) {
          const int64_t row = block.first_query - first_query;
          const RunningSoftmax running{own.largest + row, own.sum + row, own.output + row * strides_.row,
                                       strides_.row, s_.head_dim};
          sgemm(false, false, block.queries, block.keys, s_.head_dim, own.queries + row * strides_.row,
                strides_.row, own.keys + block.first_key, strides_.keys, 0.0f, own.scores, strides_.scores);
          softmax_block(block, own.scores, strides_.scores, running);
          if (s_.dropout > 0)
            AttentionDropout(s_.dropout, o_.randomness + 4 * sample, s_.stream, head, s_.positions)
                .apply(block, own.scores, strides_.scores);
          sgemm(false, false, block.queries, s_.head_dim, block.keys, own.scores, strides_.scores,
                own.values + block.first_key * strides_.row, strides_.row, 1.0f, running.output,
                strides_.row);
        });
    finish_softmax(all, queries, 1.0f, o_.y.from(first_row, column),
                   o_.lse + (sample * s_.heads + head) * s_.positions + first_query);
  }

  AttentionShape s_;
  ForwardStrides strides_;
  ForwardOperands o_;
  std::vector<ForwardScratch> scratch_;  // one a thread
};

std::optional<std::string> bf16_refusal(const OpQuery& query, const Dispatch& dispatch) {
  const DType dtype = query.inputs[0].dtype;
  if (dtype != DType::kBF16) return fmt::format("multiplies bf16, not {}", dtype_name(dtype));
  if (const int64_t head_dim = attention_shape(query).head_dim; head_dim % 2 != 0)
    return fmt::format("multiplies pairs, and a head has {} elements", head_dim);
  return bf16_product_refusal(dispatch);
}

std::optional<std::string> refusal(const OpQuery& query, const Dispatch&) {
  const DType dtype = query.inputs[0].dtype;
  if (dtype == DType::kF32 || is_half(dtype)) return std::nullopt;
  return fmt::format("attends in f32, bf16 and f16, not {}", dtype_name(dtype));
}

AttentionShape bound_shape(const Binding& b) {
  std::vector<OperandType> inputs;
  for (const Operand& operand : b.inputs) inputs.push_back(operand.type);
  return attention_shape({b.op, inputs, {}, b.attributes});
}

Bytes forward_scratch_bytes(const AttentionShape& shape, int threads) {
  return scratch_of_threads_bytes(shape, threads, take_forward_scratch);
}

std::unique_ptr<Kernel> make_forward(const Binding& b, const AttentionShape& shape) {
  return std::make_unique<BlockedAttention>(b, shape);
}

template <Bytes (*kBytes)(const AttentionShape&, int)>
Bytes scratch_bytes(const OpQuery& query, const Dispatch& dispatch) {
  return kBytes(attention_shape(query), dispatch.threads);
}
template <std::unique_ptr<Kernel> (*kMake)(const Binding&, const AttentionShape&)>
std::unique_ptr<Kernel> make(const Binding& b) {
  return kMake(b, bound_shape(b));
}

constexpr KernelEntry forward_bf16(std::string_view op) {
  return {op, "blocked_bf16", bf16_refusal, scratch_bytes<attention_bf16_scratch_bytes>,
          make<make_attention_bf16>};
}
constexpr KernelEntry forward(std::string_view op) {
  return {op, "blocked", refusal, scratch_bytes<forward_scratch_bytes>, make<make_forward>};
}
constexpr KernelEntry backward_bf16(std::string_view op) {
  return {op, "blocked_bf16", bf16_refusal, scratch_bytes<attention_bf16_backward_scratch_bytes>,
          make<make_attention_bf16_backward>};
}
constexpr KernelEntry backward(std::string_view op) {
  return {op, "blocked", refusal, scratch_bytes<attention_backward_scratch_bytes>,
          make<make_attention_backward>};
}

constexpr std::array kEntries = {
    forward_bf16("attention"),
    forward("attention"),
    forward_bf16("attention_qkv"),
    forward("attention_qkv"),
    backward_bf16("attention_backward"),
    backward("attention_backward"),
    backward_bf16("attention_qkv_backward"),
    backward("attention_qkv_backward"),
};

}  // namespace

std::span<const KernelEntry> attention_kernels() { return kEntries; }

}  // namespace snug::cpu
