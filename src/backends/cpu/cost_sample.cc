#include "backends/cpu/cost_sample.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <span>

#include "base/checked.h"
#include "base/mlp_operands.h"

namespace snug::cpu {
namespace {

constexpr double kProductSeconds = 0.016;  // a sample that multiplies takes about this long …
constexpr double kHeadSeconds = 0.120;     // … the head more: it is a third of small models' steps
constexpr double kAttentionSeconds = 0.030;
constexpr int64_t kProductRows = 1024;  // but has at least this many rows
constexpr int64_t kHeadTokens = 4096;
constexpr int64_t kTrafficBytes = 32 << 20;  // operands of a sample that does not multiply

// Which operands of an operation have its rows as leading dimensions, as bits by position.
struct RowsRule {
  std::string_view op;
  uint32_t inputs = 0, outputs = 0;
  bool last_input = false;   // the last input too
  uint32_t samples = 0;      // inputs with the first dimension alone
  bool scalar_rows = false;  // a row of input 0 is one element
};
constexpr std::array kRowsRules = {
    RowsRule{.op = "linear", .inputs = 0b1, .outputs = 0b1},
    RowsRule{.op = "linear_gelu", .inputs = 0b1, .outputs = 0b11},
    RowsRule{.op = "linear_add", .inputs = 0b1, .outputs = 0b1, .last_input = true},
    RowsRule{.op = "linear_dx", .inputs = 0b1, .outputs = 0b1},
    RowsRule{.op = "linear_dweight", .inputs = 0b11},
    RowsRule{.op = "linear_dbias", .inputs = 0b1},
    RowsRule{.op = "add", .inputs = 0b11, .outputs = 0b1},
    RowsRule{.op = "layer_norm", .inputs = 0b1, .outputs = 0b111},
    RowsRule{.op = "layer_norm_dx", .inputs = 0b11011, .outputs = 0b1},
    RowsRule{.op = "layer_norm_dweight", .inputs = 0b1111},
    RowsRule{.op = "rms_norm", .inputs = 0b1, .outputs = 0b11},
    RowsRule{.op = "rms_norm_dx", .inputs = 0b1011, .outputs = 0b1},
    RowsRule{.op = "rms_norm_dweight", .inputs = 0b111},
    RowsRule{.op = "gelu", .inputs = 0b1, .outputs = 0b1},
    RowsRule{.op = "gelu_backward", .inputs = 0b11, .outputs = 0b1},
    RowsRule{.op = "swiglu", .inputs = 0b11, .outputs = 0b1},
    RowsRule{.op = "swiglu_backward", .inputs = 0b111, .outputs = 0b11},
    RowsRule{.op = "mlp", .inputs = 0b1, .outputs = 0b1},
    RowsRule{.op = "mlp_gradient", .inputs = 0b11, .outputs = 0b1},
    RowsRule{.op = "dropout", .inputs = 0b1, .outputs = 0b1, .samples = 0b10},
    RowsRule{.op = "rotary", .inputs = 0b111, .outputs = 0b1},
    RowsRule{.op = "rotary_table", .inputs = 0b1, .outputs = 0b11, .scalar_rows = true},
    RowsRule{.op = "embedding", .inputs = 0b1, .outputs = 0b1, .scalar_rows = true},
    RowsRule{.op = "embedding_dtable", .inputs = 0b11, .scalar_rows = true},
    RowsRule{.op = "cross_entropy", .inputs = 0b11},
    RowsRule{.op = "cross_entropy_backward", .inputs = 0b11, .outputs = 0b1},
};

// Which operands have the shape of the parameter, several units an element, or one for a block of elements. Random words are among
// none of these.
struct ElementsRule {
  std::string_view op;
  uint32_t inputs = 0, outputs = 0;
};
constexpr std::array kElementsRules = {
    ElementsRule{.op = "narrow_gradient", .inputs = 0b1, .outputs = 0b1},
    ElementsRule{.op = "sum_squares", .inputs = 0b1},
    ElementsRule{.op = "adamw", .inputs = 0b111001111, .outputs = 0b1110111},
    ElementsRule{.op = "narrow_weight", .inputs = 0b1, .outputs = 0b1},
    ElementsRule{.op = "fill", .outputs = 0b1},
};

template <typename Rules>
auto find_rule(const Rules& rules, std::string_view op) {
  return std::find_if(rules.begin(), rules.end(), [&](const auto& rule) { return rule.op == op; });
}

bool has_bit(uint32_t bits, size_t position) { return position < 32 && (bits >> position & 1) != 0; }

double bytes_of(const CostSample& sample) {
  double bytes = 0;
  for (const auto* operands : {&sample.inputs, &sample.outputs})
    for (const OperandType& type : *operands) bytes += static_cast<double>(type.bytes().value);
  return bytes;
}

// The largest power of two ≤ wanted, but at least `least`; all where that is hardly more.
int64_t pick(int64_t all, double wanted, int64_t least) {
  const auto whole = static_cast<uint64_t>(std::clamp(wanted, 1.0, 1e15));
  const int64_t picked = std::max(static_cast<int64_t>(std::bit_floor(whole)), least);
  return 2 * all <= 3 * picked ? all : picked;
}

struct Machine {
  const Dispatch& dispatch;
  const CpuRates& rates;
  double work(const CostSample& sample, const OpCost& cost) const {
    return work_seconds(sample.query(), cost, dispatch, rates);
  }
};

// Fewer rows. The rows' dimensions are (samples, positions) or one dimension.
void shrink_rows(CostSample& sample, const RowsRule& rule, const Machine& machine) {
  const Shape first = sample.inputs.at(0).shape;
  const size_t rank = first.rank() - (rule.scalar_rows ? 0 : 1);
  if (rank < 1 || rank > 2) return;
  const int64_t samples = rank == 2 ? first.dim(0) : 1, positions = first.dim(static_cast<int>(rank) - 1);
  const int64_t all = checked_mul(samples, positions);

  std::vector<OperandType*> operands;
  double row_bytes = 0;
  for (size_t i = 0; i < sample.inputs.size(); ++i)
    if (has_bit(rule.inputs, i) || (rule.last_input && i + 1 == sample.inputs.size()))
      operands.push_back(&sample.inputs[i]);
  for (size_t i = 0; i < sample.outputs.size(); ++i)
    if (has_bit(rule.outputs, i)) operands.push_back(&sample.outputs[i]);
  for (const OperandType* type : operands) {
    if (type->shape.rank() < rank ||
        !std::equal(first.dims().begin(), first.dims().begin() + static_cast<std::ptrdiff_t>(rank),
                    type->shape.dims().begin()))
      return;
    row_bytes += static_cast<double>(type->bytes().value) / static_cast<double>(all);
  }
  const double rows = static_cast<double>(all);
  const double row_seconds = machine.work(sample, {sample.cost.flops / rows, row_bytes});
  // A sample of fewer rows than a chunk would have other products.
  const int64_t fewest = std::max(kProductRows, sample.attributes.integer_or("chunk", 0));
  const int64_t picked = sample.cost.flops > 0
                             ? pick(all, kProductSeconds / row_seconds, fewest)
                             : pick(all, static_cast<double>(kTrafficBytes) / row_bytes, 64);
  if (picked >= all) return;
  const int64_t fewer_samples = rank == 2 ? std::max<int64_t>(1, picked / positions) : 1;
  const int64_t fewer_positions = std::min(positions, picked);
  for (OperandType* type : operands) {
    std::vector<int64_t> dims = type->shape.dims();
    dims[rank - 1] = fewer_positions;
    if (rank == 2) dims[0] = fewer_samples;
    type->shape = Shape(std::move(dims));
  }
  for (size_t i = 0; i < sample.inputs.size(); ++i)
    if (has_bit(rule.samples, i))
      sample.inputs[i].shape = Shape{fewer_samples, sample.inputs[i].shape.last()};
  sample.cost.flops *= static_cast<double>(fewer_samples * fewer_positions) / rows;
}

void shrink_elements(CostSample& sample, const ElementsRule& rule) {
  const OperandType& parameter = sample.inputs.empty() ? sample.outputs.at(0) : sample.inputs[0];
  const int64_t all = parameter.shape.elements();
  double element_bytes = 0;
  std::vector<OperandType*> operands;
  for (size_t i = 0; i < sample.inputs.size(); ++i)
    if (has_bit(rule.inputs, i) && sample.inputs[i].dtype != DType::kU32)
      operands.push_back(&sample.inputs[i]);
  for (size_t i = 0; i < sample.outputs.size(); ++i)
    if (has_bit(rule.outputs, i)) operands.push_back(&sample.outputs[i]);
  for (const OperandType* type : operands)
    element_bytes += static_cast<double>(type->bytes().value) / static_cast<double>(all);
  const int64_t picked = pick(all, static_cast<double>(kTrafficBytes) / element_bytes, 4096);
  // Also a whole parameter becomes one row of elements: kernels see no shape.
  // Some hold several units an element, the two bytes of a split master's low half; some one for a block of elements, the scales of
  // moments in 8 bits.
  const int64_t fewer = std::min(picked, all);
  for (OperandType* type : operands) {
    const int64_t units = type->shape.elements() / all;
    if (units == 0) {
      const int64_t block = std::max<int64_t>(1, all / type->shape.elements());
      type->shape = Shape{ceil_div(fewer, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(block))))};
    } else {
      type->shape = units == 1 ? Shape{fewer} : Shape{fewer, units};
    }
  }
}

// fp8_encode and fp8_decode: fewer blocks, whatever the shape.
void shrink_blocks(CostSample& sample) {
  const int64_t block = sample.attributes.integer("block"), all = sample.inputs.at(0).shape.elements();
  const double element_bytes = bytes_of(sample) / static_cast<double>(all);
  const int64_t wanted = pick(all, static_cast<double>(kTrafficBytes) / element_bytes, 4096);
  const int64_t picked = std::min(all, ceil_div(wanted, block) * block);
  for (auto* operands : {&sample.inputs, &sample.outputs})
    for (OperandType& type : *operands)
      type.shape = Shape{type.shape.elements() == all ? picked : ceil_div(picked, block)};
}

// q, k, v (…) by heads and samples: tasks of (sample, kv head) are handed to threads one at a time.
void shrink_attention(CostSample& sample, const Machine& machine) {
  const int64_t heads = sample.attributes.integer("heads"), kv_heads = sample.attributes.integer("kv_heads");
  const bool backward = sample.op.ends_with("_backward"), fused = sample.op.starts_with("attention_qkv");
  const int64_t samples = sample.inputs.at(0).shape.dim(0), group = heads / kv_heads;
  const int64_t threads = machine.dispatch.threads, tasks = checked_mul(samples, kv_heads);
  const double seconds = machine.work(sample, sample.cost);
  const double sample_seconds = seconds / static_cast<double>(samples);
  int64_t fewer = std::clamp<int64_t>(static_cast<int64_t>(kAttentionSeconds / sample_seconds), 1, samples);
  if (fewer < samples) fewer = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(fewer)));
  int64_t kept = kv_heads;
  if (fewer == 1 && sample_seconds > 2 * kAttentionSeconds) {
    const double task_seconds = seconds / static_cast<double>(tasks);
    kept = std::min(kv_heads, std::max(threads, static_cast<int64_t>(kAttentionSeconds / task_seconds) /
                                                    threads * threads));
  }
  if (fewer == samples && kept == kv_heads) return;

  const auto set = [&](OperandType& type, int64_t last) {
    type.shape = Shape{fewer, type.shape.dim(1), last};
  };
  const auto by_heads = [&](OperandType& type, int64_t all_heads, int64_t kept_heads) {
    set(type, type.shape.last() / all_heads * kept_heads);
  };
  const auto views = [&](std::vector<OperandType>& operands,
                         size_t at) {  // returns nothing: q, k, v from `at`
    if (fused) return by_heads(operands.at(at), heads + 2 * kv_heads, group * kept + 2 * kept);
    by_heads(operands.at(at), heads, group * kept);
    by_heads(operands.at(at + 1), kv_heads, kept);
    by_heads(operands.at(at + 2), kv_heads, kept);
  };
  const auto lse = [&](OperandType& type) { type.shape = Shape{fewer, group * kept, type.shape.last()}; };
  const size_t width = fused ? 1 : 3;
  size_t rest = width;  // document_starts and, with dropout, randomness
  if (backward) {
    by_heads(sample.inputs.at(0), heads, group * kept);
    views(sample.inputs, 1);
    by_heads(sample.inputs.at(width + 1), heads, group * kept);
    lse(sample.inputs.at(width + 2));
    views(sample.outputs, 0);
    rest = width + 3;
  } else {
    views(sample.inputs, 0);
    by_heads(sample.outputs.at(0), heads, group * kept);
    lse(sample.outputs.at(1));
  }
  for (; rest < sample.inputs.size(); ++rest)
    sample.inputs[rest].shape = Shape{fewer, sample.inputs[rest].shape.last()};
  sample.attributes.set("heads", group * kept);
  sample.attributes.set("kv_heads", kept);
  sample.cost.flops *= static_cast<double>(fewer * kept) / static_cast<double>(tasks);
  // Backward hands out kv heads, forward heads.
  const int64_t per_task = backward ? 1 : group;
  sample.factor = static_cast<double>(ceil_div(tasks * per_task, threads)) /
                  static_cast<double>(ceil_div(fewer * kept * per_task, threads));
}

// All chunks but the first add to the parameters' gradients, and a sample may have one chunk.
void shrink_mlp_gradient(CostSample& sample, RowsRule rule, const Machine& machine) {
  const MlpOperands positions(sample.attributes);
  if (sample.inputs.at(0).shape.rows() > sample.attributes.integer("chunk") && positions.parameters() > 0 &&
      sample.attributes.integer_or("accumulate", 0) == 0) {
    sample.attributes.set("accumulate", int64_t{1});
    for (size_t output = positions.first_parameter(); output < sample.outputs.size(); ++output)
      sample.inputs.push_back(sample.outputs[output]);
  }
  if (!positions.makes(0)) rule.outputs = 0;
  shrink_rows(sample, rule, machine);
}

void shrink_head(CostSample& sample, const Machine& machine) {
  const int64_t rows = sample.inputs.at(0).shape.rows(), width = sample.inputs[0].shape.last();
  const int64_t vocabulary = sample.inputs.at(1).shape.dim(0);
  const int64_t chunk = std::min(rows, sample.attributes.integer("chunk"));
  // All chunks but the first add to the weight's gradient.
  if (rows > chunk && sample.attributes.integer_or("dweight", 0) != 0 &&
      sample.attributes.integer_or("accumulate", 0) == 0) {
    sample.attributes.set("accumulate", int64_t{1});
    sample.inputs.push_back(sample.outputs.at(2));
  }
  const double chunk_flops = sample.cost.flops * static_cast<double>(chunk) / static_cast<double>(rows);
  const double token_seconds = machine.work(sample, {chunk_flops, 0}) / static_cast<double>(vocabulary);
  const int64_t tokens = pick(vocabulary, kHeadSeconds / token_seconds, kHeadTokens);
  sample.inputs[0].shape = Shape{1, chunk, width};
  sample.inputs.at(2).shape = Shape{1, chunk};
  if (sample.outputs.size() > 1) sample.outputs[1].shape = Shape{1, chunk, width};
  const Shape weight{std::min(tokens, vocabulary), width};
  sample.inputs[1].shape = weight;
  if (sample.attributes.integer_or("accumulate", 0) != 0) sample.inputs.back().shape = weight;
  if (sample.outputs.size() > 2) sample.outputs[2].shape = weight;
  sample.cost.flops = chunk_flops * static_cast<double>(weight.dim(0)) / static_cast<double>(vocabulary);
  sample.factor = static_cast<double>(rows) / static_cast<double>(chunk) * static_cast<double>(vocabulary) /
                  static_cast<double>(weight.dim(0));
}

std::string key_of(const CostSample& sample) {
  std::string key = sample.op;
  const auto add = [&](const std::vector<OperandType>& operands) {
    for (const OperandType& type : operands)
      key += fmt::format(" {}{}", dtype_name(type.dtype), to_string(type.shape));
  };
  add(sample.inputs);
  key += " ->";
  add(sample.outputs);
  Attributes attributes;
  for (const auto& [name, value] : sample.attributes.entries()) {
    if (name == "stream" || name == "overwrite_first") continue;
    if (const double* real = std::get_if<double>(&value))
      attributes.set(name, int64_t{*real != 0});
    else
      attributes.set(name, value);
  }
  return fmt::format("{} {}", key, to_string(attributes));
}

}  // namespace

CostSample cost_sample(const OpQuery& query, const OpCost& cost, const Dispatch& dispatch,
                       const CpuRates& rates) {
  CostSample sample{.op = std::string(query.op),
                    .inputs = {query.inputs.begin(), query.inputs.end()},
                    .outputs = {query.outputs.begin(), query.outputs.end()},
                    .attributes = query.attributes,
                    .cost = cost,
                    .key = {}};
  const Machine machine{dispatch, rates};
  const double work = machine.work(sample, cost);
  bool by_work = true;
  if (const auto* rule = find_rule(kRowsRules, query.op); rule != kRowsRules.end()) {
    sample.known = true;
    if (query.op == "mlp_gradient")
      shrink_mlp_gradient(sample, *rule, machine);
    else
      shrink_rows(sample, *rule, machine);
  } else if (const auto* elements = find_rule(kElementsRules, query.op); elements != kElementsRules.end()) {
    sample.known = true;
    shrink_elements(sample, *elements);
  } else if (query.op == "fp8_encode" || query.op == "fp8_decode") {
    sample.known = true;
    shrink_blocks(sample);
  } else if (query.op.starts_with("attention")) {
    sample.known = true;
    by_work = false;
    shrink_attention(sample, machine);
  } else if (query.op == "head_loss" || query.op == "head_loss_gradient") {
    sample.known = true;
    by_work = false;
    shrink_head(sample, machine);
  } else {
    sample.known = query.op == "update_control" || query.op == "update_gate" || query.op == "last_logits";
  }
  sample.cost.bytes = std::min(cost.bytes, bytes_of(sample));
  if (by_work) {
    const double sample_work = machine.work(sample, sample.cost);
    sample.factor = sample_work > 0 ? work / sample_work : 1;
  }
  sample.key = key_of(sample);
  return sample;
}

}  // namespace snug::cpu
