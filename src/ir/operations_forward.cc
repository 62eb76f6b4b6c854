// Forward operations: shape rules, alias rules and costs, in the order of docs/operations.md.
#include <algorithm>

#include "base/checked.h"
#include "base/errors.h"
#include "base/mlp_operands.h"
#include "ir/operand_reader.h"
#include "ir/operation_rules.h"

namespace snug {
namespace {

using Type = AttributeSpec::Type;
using Types = std::vector<OperandType>;
using Inputs = std::span<const OperandType>;
using Aliases = std::vector<AliasRule>;

constexpr std::string_view kApproximations = "tanh|none";
constexpr std::string_view kMlpActivations = "gelu_tanh|gelu_none|swiglu";
constexpr std::string_view kWeightOrders = "oi|io";

constexpr AttributeSpec kLinearAttributes[] = {
    {"weight", Type::kWord, true, kWeightOrders}, {"bias", Type::kFlag}, {"out", Type::kWord, false, "f32"}};
constexpr AttributeSpec kLinearGeluAttributes[] = {{"weight", Type::kWord, true, kWeightOrders},
                                                   {"bias", Type::kFlag},
                                                   {"approximate", Type::kWord, true, kApproximations}};
constexpr AttributeSpec kLinearAddAttributes[] = {{"weight", Type::kWord, true, kWeightOrders},
                                                  {"bias", Type::kFlag}};
constexpr AttributeSpec kNormAttributes[] = {{"eps", Type::kReal}};
constexpr AttributeSpec kRotaryTableAttributes[] = {
    {"head_dim", Type::kInteger},
    {"type", Type::kWord, true, "default|linear|llama3|yarn"},
    {"theta", Type::kReal},
    {"factor", Type::kReal, false},
    {"low_freq_factor", Type::kReal, false},
    {"high_freq_factor", Type::kReal, false},
    {"original_max_position_embeddings", Type::kInteger, false},
    {"beta_fast", Type::kReal, false},
    {"beta_slow", Type::kReal, false},
    {"attention_factor", Type::kReal, false},
    {"truncate", Type::kFlag, false},
    {"out", Type::kWord, false, "f64"}};
constexpr AttributeSpec kRotaryAttributes[] = {{"heads", Type::kInteger}, {"inverse", Type::kFlag}};
constexpr AttributeSpec kAttentionAttributes[] = {{"heads", Type::kInteger},
                                                  {"kv_heads", Type::kInteger},
                                                  {"scale", Type::kReal},
                                                  {"dropout", Type::kReal},
                                                  {"stream", Type::kInteger, false}};
constexpr AttributeSpec kGeluAttributes[] = {{"approximate", Type::kWord, true, kApproximations}};
constexpr AttributeSpec kMlpAttributes[] = {{"activation", Type::kWord, true, kMlpActivations},
                                            {"weight", Type::kWord, true, kWeightOrders},
                                            {"bias", Type::kFlag},
                                            {"chunk", Type::kInteger}};
constexpr AttributeSpec kDropoutAttributes[] = {{"probability", Type::kReal}, {"stream", Type::kInteger}};
constexpr AttributeSpec kFp8EncodeAttributes[] = {{"block", Type::kInteger},
                                                  {"format", Type::kWord, true, "e4m3|e5m2"}};
constexpr AttributeSpec kFp8DecodeAttributes[] = {{"block", Type::kInteger},
                                                  {"format", Type::kWord, true, "e4m3|e5m2"},
                                                  {"out", Type::kWord, true, "f32|bf16|f16"}};
constexpr AttributeSpec kHeadLossAttributes[] = {{"chunk", Type::kInteger}};

Aliases may_first(const Attributes&, Inputs) { return {{0, 0, false}}; }
Aliases may_first_two(const Attributes&, Inputs) { return {{0, 0, false}, {0, 1, false}}; }

Types infer_embedding(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("embedding", attributes, inputs);
  const OperandType& indices = reader.of_rank("indices", DType::kI32, 2);
  const OperandType& table = reader.floating("table", 2);
  reader.done();
  return {{table.dtype, {indices.shape.dim(0), indices.shape.dim(1), table.shape.dim(1)}}};
}

Types infer_add(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("add", attributes, inputs);
  const OperandType& a = reader.floating("a");
  reader.exactly("b", a.dtype, a.shape);
  reader.done();
  return {a};
}

// Reads x, w and the bias of a product; the output in x's type.
OperandType read_linear(OperandReader& reader, const Attributes& attributes) {
  const OperandType& x = reader.floating("x");
  const OperandType& w = reader.floating("w", 2);
  const bool output_first = attributes.word("weight") == "oi";
  reader.expect(w.dtype == x.dtype, "operand w: found {}, expected {} as x", w, dtype_name(x.dtype));
  reader.expect(w.shape.dim(output_first ? 1 : 0) == x.shape.last(),
                "operand w: found {}, expected {} input features as x {} has (weight={})", w, x.shape.last(),
                x, attributes.word("weight"));
  const int64_t outputs = w.shape.dim(output_first ? 0 : 1);
  if (attributes.integer("bias") == 1) reader.exactly("bias", x.dtype, {outputs});
  return {x.dtype, with_last(x.shape, outputs)};
}

Types infer_linear(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("linear", attributes, inputs);
  OperandType y = read_linear(reader, attributes);
  reader.done();
  if (attributes.has("out")) y.dtype = wide(y.dtype);
  return {y};
}

Types infer_linear_gelu(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("linear_gelu", attributes, inputs);
  const OperandType u = read_linear(reader, attributes);
  reader.done();
  return {u, u};
}

Types infer_linear_add(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("linear_add", attributes, inputs);
  const OperandType y = read_linear(reader, attributes);
  reader.exactly("r", y.dtype, y.shape);
  reader.done();
  return {y};
}

Aliases linear_add_aliases(const Attributes& attributes, Inputs) {
  return {{0, attributes.integer("bias") == 1 ? 3 : 2, false}};
}

double linear_flops(const Attributes&, Inputs inputs) {
  return 2.0 * static_cast<double>(inputs[0].shape.rows()) * static_cast<double>(inputs[1].shape.elements());
}

Types infer_layer_norm(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("layer_norm", attributes, inputs);
  const OperandType& x = reader.floating("x");
  reader.exactly("w", x.dtype, {x.shape.last()});
  reader.exactly("b", x.dtype, {x.shape.last()});
  reader.done();
  const OperandType statistic{wide(x.dtype), without_last(x.shape)};
  return {x, statistic, statistic};
}

Types infer_rms_norm(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("rms_norm", attributes, inputs);
  const OperandType& x = reader.floating("x");
  reader.exactly("w", x.dtype, {x.shape.last()});
  reader.done();
  return {x, {wide(x.dtype), without_last(x.shape)}};
}

Types infer_rotary_table(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("rotary_table", attributes, inputs);
  const OperandType& positions = reader.of_rank("positions", DType::kI32, 2);
  reader.done();
  const int64_t head_dim = attributes.integer("head_dim");
  reader.expect(head_dim >= 2 && head_dim % 2 == 0,
                "attribute head_dim: found {}, expected an even number from 2", head_dim);
  // Each scaling has its own keys; a key that its type ignores would hide a mistake.
  const std::string& type = attributes.word("type");
  const std::vector<std::string_view> needed =
      type == "linear"   ? std::vector<std::string_view>{"factor"}
      : type == "llama3" ? std::vector<std::string_view>{"factor", "low_freq_factor", "high_freq_factor",
                                                         "original_max_position_embeddings"}
      : type == "yarn" ? std::vector<std::string_view>{"factor",           "original_max_position_embeddings",
                                                       "beta_fast",        "beta_slow",
                                                       "attention_factor", "truncate"}
                       : std::vector<std::string_view>{};
  for (const AttributeSpec& spec : kRotaryTableAttributes) {
    if (spec.required || spec.name == "out") continue;
    const bool expected = std::find(needed.begin(), needed.end(), spec.name) != needed.end();
    reader.expect(attributes.has(spec.name) == expected, "attribute {} is {}: type={} {} it", spec.name,
                  expected ? "missing" : "unexpected", type, expected ? "needs" : "does not take");
  }
  const DType dtype = attributes.has("out") ? DType::kF64 : DType::kF32;
  const OperandType table{dtype, {positions.shape.dim(0), positions.shape.dim(1), head_dim / 2}};
  return {table, table};
}

Types infer_rotary(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("rotary", attributes, inputs);
  const OperandType& x = reader.floating("x", 3);
  const int64_t heads = attributes.integer("heads");
  reader.expect(heads >= 1 && x.shape.last() % heads == 0 && x.shape.last() / heads % 2 == 0,
                "operand x: found {}, expected a last dimension of {} heads of even size", x, heads);
  const Shape table{x.shape.dim(0), x.shape.dim(1), x.shape.last() / heads / 2};
  reader.exactly("cos", wide(x.dtype), table);
  reader.exactly("sin", wide(x.dtype), table);
  reader.done();
  return {x};
}

// Checks the attributes of attention; returns {heads, kv_heads}.
std::pair<int64_t, int64_t> attention_heads(const OperandReader& reader, const Attributes& attributes) {
  const int64_t heads = attributes.integer("heads"), kv_heads = attributes.integer("kv_heads");
  reader.expect(heads >= 1 && kv_heads >= 1 && heads % kv_heads == 0,
                "attributes heads={} kv_heads={}: expected heads to be a multiple of kv_heads", heads,
                kv_heads);
  const double dropout = attributes.real("dropout");
  reader.expect(dropout >= 0 && dropout < 1, "attribute dropout: found {}, expected 0 <= dropout < 1",
                dropout);
  reader.expect(attributes.has("stream") == (dropout > 0),
                "attribute stream is {}: expected it with dropout > 0",
                attributes.has("stream") ? "unexpected" : "missing");
  return {heads, kv_heads};
}

// document_starts and, with dropout, randomness.
void read_attention_data(OperandReader& reader, const Attributes& attributes, const Shape& rows) {
  reader.exactly("document_starts", DType::kI32, {rows.dim(0), rows.dim(1)});
  if (attributes.real("dropout") > 0) reader.exactly("randomness", DType::kU32, {rows.dim(0), 4});
}

Types infer_attention(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("attention", attributes, inputs);
  const auto [heads, kv_heads] = attention_heads(reader, attributes);
  const OperandType& q = reader.floating("q", 3);
  reader.expect(q.shape.last() % heads == 0, "operand q: found {}, expected a last dimension of {} heads", q,
                heads);
  const Shape kv = with_last(q.shape, q.shape.last() / heads * kv_heads);
  reader.exactly("k", q.dtype, kv);
  reader.exactly("v", q.dtype, kv);
  read_attention_data(reader, attributes, q.shape);
  reader.done();
  return {q, {wide(q.dtype), {q.shape.dim(0), heads, q.shape.dim(1)}}};
}

double flops_of_attention(const Attributes&, Inputs inputs) {
  const Shape& q = inputs[0].shape;
  return attention_flops(q.dim(0), q.dim(1), q.last());
}

Types infer_attention_qkv(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("attention_qkv", attributes, inputs);
  const auto [heads, kv_heads] = attention_heads(reader, attributes);
  const OperandType& qkv = reader.floating("qkv", 3);
  const int64_t all_heads = checked_add(heads, checked_mul(2, kv_heads));
  reader.expect(qkv.shape.last() % all_heads == 0,
                "operand qkv: found {}, expected a last dimension of {} heads", qkv, all_heads);
  read_attention_data(reader, attributes, qkv.shape);
  reader.done();
  const OperandType y{qkv.dtype, with_last(qkv.shape, qkv.shape.last() / all_heads * heads)};
  return {y, {wide(qkv.dtype), {qkv.shape.dim(0), heads, qkv.shape.dim(1)}}};
}

double flops_of_attention_qkv(const Attributes& attributes, Inputs inputs) {
  const Shape& qkv = inputs[0].shape;
  const int64_t heads = attributes.integer("heads");
  return attention_flops(qkv.dim(0), qkv.dim(1),
                         qkv.last() / (heads + 2 * attributes.integer("kv_heads")) * heads);
}

Types infer_gelu(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("gelu", attributes, inputs);
  const OperandType& u = reader.floating("u");
  reader.done();
  return {u};
}

Types infer_swiglu(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("swiglu", attributes, inputs);
  const OperandType& gate = reader.floating("gate");
  reader.exactly("up", gate.dtype, gate.shape);
  reader.done();
  return {gate};
}

Types infer_mlp(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("mlp", attributes, inputs);
  const MlpTypes types = read_mlp(reader, attributes);
  reader.done();
  return {types.y};
}

double mlp_flops(const Attributes& attributes, Inputs inputs) {
  const MlpOperands operands(attributes);
  double elements = 0;
  for (size_t product = 0; product < operands.products(); ++product)
    elements += static_cast<double>(inputs[operands.weight(product)].shape.elements());
  return 2.0 * static_cast<double>(inputs[0].shape.rows()) * elements;
}

Types infer_dropout(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("dropout", attributes, inputs);
  const double probability = attributes.real("probability");
  reader.expect(probability >= 0 && probability < 1,
                "attribute probability: found {}, expected 0 <= probability < 1", probability);
  const OperandType& x = reader.floating("x", 3);
  reader.exactly("randomness", DType::kU32, {x.shape.dim(0), 4});
  reader.done();
  return {x};
}

Types infer_head_loss(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("head_loss", attributes, inputs);
  reader.expect(attributes.integer("chunk") >= 1, "attribute chunk: found {}, expected rows from 1",
                attributes.integer("chunk"));
  const OperandType& x = reader.floating("x", 3);
  const OperandType& w = reader.floating("w", 2);
  reader.expect(w.dtype == x.dtype && w.shape.dim(1) == x.shape.last(),
                "operand w: found {}, expected {} with {} input features", w, dtype_name(x.dtype),
                x.shape.last());
  reader.exactly("targets", DType::kI32, {x.shape.dim(0), x.shape.dim(1)});
  reader.exactly("inverse_tokens", wide(x.dtype), {1});
  reader.done();
  return {{wide(x.dtype), {1}}};
}

Types infer_cross_entropy(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("cross_entropy", attributes, inputs);
  const OperandType& logits = reader.floating("logits", 3);
  reader.expect(logits.dtype == wide(logits.dtype), "operand logits: found {}, expected f32", logits);
  reader.exactly("targets", DType::kI32, {logits.shape.dim(0), logits.shape.dim(1)});
  reader.exactly("inverse_tokens", logits.dtype, {1});
  reader.done();
  return {{logits.dtype, {1}}};
}

Types infer_last_logits(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("last_logits", attributes, inputs);
  const OperandType& x = reader.floating("x", 3);
  const OperandType& w = reader.floating("w", 2);
  reader.expect(w.dtype == x.dtype && w.shape.dim(1) == x.shape.last(),
                "operand w: found {}, expected {} with {} input features", w, dtype_name(x.dtype),
                x.shape.last());
  reader.exactly("position", DType::kI32, {1});
  reader.done();
  return {{wide(x.dtype), {x.shape.dim(0), w.shape.dim(0)}}};
}

double last_logits_flops(const Attributes&, Inputs inputs) {
  return 2.0 * static_cast<double>(inputs[0].shape.dim(0)) * static_cast<double>(inputs[1].shape.elements());
}

// One f32 a block of `block` elements.
OperandType fp8_scales(const OperandReader& reader, const Attributes& attributes, const Shape& shape) {
  const int64_t block = attributes.integer("block");
  reader.expect(block >= 1, "attribute block: found {}, expected a number from 1", block);
  return {DType::kF32, {ceil_div(shape.elements(), block)}};
}

Types infer_fp8_encode(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("fp8_encode", attributes, inputs);
  const OperandType& x = reader.floating("x");
  reader.expect(x.dtype != DType::kF64, "operand x: found {}, expected an activation that is stored", x);
  reader.done();
  return {{DType::kU8, x.shape}, fp8_scales(reader, attributes, x.shape)};
}

Types infer_fp8_decode(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("fp8_decode", attributes, inputs);
  const size_t rank = inputs.empty() ? 1 : inputs[0].shape.rank();
  const OperandType& codes = reader.of_rank("codes", DType::kU8, static_cast<int>(rank));
  reader.exactly("scales", DType::kF32, fp8_scales(reader, attributes, codes.shape).shape);
  reader.done();
  return {{parse_dtype(attributes.word("out")).value(), codes.shape}};
}

const OperationInfo kForward[] = {
    {"embedding", {}, infer_embedding, no_aliases, no_flops, gradient_of_embedding, nullptr},
    {"add", {}, infer_add, may_first_two, no_flops, gradient_of_add, nullptr},
    {"linear", kLinearAttributes, infer_linear, no_aliases, linear_flops, gradient_of_linear, nullptr},
    {"linear_gelu", kLinearGeluAttributes, infer_linear_gelu, no_aliases, linear_flops,
     gradient_of_linear_gelu, decompose_linear_gelu},
    {"linear_add", kLinearAddAttributes, infer_linear_add, linear_add_aliases, linear_flops,
     gradient_of_linear_add, decompose_linear_add},
    {"layer_norm", kNormAttributes, infer_layer_norm, may_first, no_flops, gradient_of_layer_norm, nullptr},
    {"rms_norm", kNormAttributes, infer_rms_norm, may_first, no_flops, gradient_of_rms_norm, nullptr},
    {"rotary_table", kRotaryTableAttributes, infer_rotary_table, no_aliases, no_flops, nullptr, nullptr},
    {"rotary", kRotaryAttributes, infer_rotary, may_first, no_flops, gradient_of_rotary, nullptr},
    {"attention", kAttentionAttributes, infer_attention, no_aliases, flops_of_attention,
     gradient_of_attention, nullptr},
    {"attention_qkv", kAttentionAttributes, infer_attention_qkv, no_aliases, flops_of_attention_qkv,
     gradient_of_attention_qkv, nullptr},
    {"gelu", kGeluAttributes, infer_gelu, may_first, no_flops, gradient_of_gelu, nullptr},
    {"swiglu", {}, infer_swiglu, may_first_two, no_flops, gradient_of_swiglu, nullptr},
    {"mlp", kMlpAttributes, infer_mlp, may_first, mlp_flops, gradient_of_mlp, decompose_mlp},
    {"dropout", kDropoutAttributes, infer_dropout, may_first, no_flops, gradient_of_dropout, nullptr},
    {"head_loss", kHeadLossAttributes, infer_head_loss, no_aliases, linear_flops, gradient_of_head_loss,
     decompose_head_loss},
    {"cross_entropy", {}, infer_cross_entropy, no_aliases, no_flops, gradient_of_cross_entropy, nullptr},
    {"last_logits", {}, infer_last_logits, no_aliases, last_logits_flops, nullptr, nullptr},
    {"fp8_encode", kFp8EncodeAttributes, infer_fp8_encode, no_aliases, no_flops, nullptr, nullptr},
    {"fp8_decode", kFp8DecodeAttributes, infer_fp8_decode, no_aliases, no_flops, nullptr, nullptr},
};

}  // namespace

std::span<const OperationInfo> forward_operations() { return kForward; }

std::vector<AliasRule> no_aliases(const Attributes&, std::span<const OperandType>) { return {}; }
double no_flops(const Attributes&, std::span<const OperandType>) { return 0; }

MlpTypes read_mlp(OperandReader& reader, const Attributes& attributes) {
  const int64_t chunk = attributes.integer("chunk");
  reader.expect(chunk >= 1, "attribute chunk: found {}, expected rows from 1", chunk);
  const MlpOperands positions(attributes);
  const bool output_first = attributes.word("weight") == "oi";
  MlpTypes types;
  types.operands.push_back(reader.floating("x"));
  const DType dtype = types.operands[0].dtype;
  const int64_t in = types.operands[0].shape.last();
  int64_t inner = 0, out = 0;
  for (size_t product = 0; product < positions.products(); ++product) {
    const bool is_down = product == positions.down();
    const std::string_view name = is_down ? "w_down" : positions.gated && product == 0 ? "w_gate" : "w_up";
    const OperandType& w = reader.floating(name, 2);
    const int64_t features = is_down ? inner : in;
    reader.expect(w.dtype == dtype, "operand {}: found {}, expected {} as x", name, w, dtype_name(dtype));
    reader.expect(w.shape.dim(output_first ? 1 : 0) == features,
                  "operand {}: found {}, expected {} input features (weight={})", name, w, features,
                  attributes.word("weight"));
    out = w.shape.dim(output_first ? 0 : 1);
    if (product == 0) inner = out;
    reader.expect(is_down || out == inner, "operand {}: found {}, expected {} output features as w_gate has",
                  name, w, inner);
    types.operands.push_back(w);
    if (positions.bias) types.operands.push_back(reader.exactly("bias", dtype, {out}));
  }
  types.y = {dtype, with_last(types.operands[0].shape, out)};
  return types;
}

double attention_flops(int64_t batch, int64_t length, int64_t width) {
  return 2.0 * static_cast<double>(batch) * static_cast<double>(length) * static_cast<double>(length) *
         static_cast<double>(width);
}

}  // namespace snug
