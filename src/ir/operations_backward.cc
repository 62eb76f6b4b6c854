// Backward operations: shape rules, alias rules and costs, in the order of docs/operations.md.
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

constexpr AttributeSpec kAccumulate{"accumulate", Type::kFlag};
constexpr AttributeSpec kOverwriteFirst{"overwrite_first", Type::kFlag, false};
constexpr AttributeSpec kScaled{"scaled", Type::kFlag, false};
constexpr AttributeSpec kWeight{"weight", Type::kWord, true, "oi|io"};

constexpr AttributeSpec kAccumulateAttributes[] = {kAccumulate, kOverwriteFirst};
constexpr AttributeSpec kTableAttributes[] = {{"rows", Type::kInteger}, kAccumulate, kOverwriteFirst};
constexpr AttributeSpec kLinearDxAttributes[] = {kWeight};
constexpr AttributeSpec kLinearDweightAttributes[] = {kWeight, kAccumulate, kOverwriteFirst};
constexpr AttributeSpec kMlpGradientAttributes[] = {
    {"activation", Type::kWord, true, "gelu_tanh|gelu_none|swiglu"},
    kWeight,
    {"bias", Type::kFlag},
    {"chunk", Type::kInteger},
    {"gradients", Type::kInteger},
    kAccumulate,
    kOverwriteFirst};
constexpr AttributeSpec kAttentionAttributes[] = {{"heads", Type::kInteger},
                                                  {"kv_heads", Type::kInteger},
                                                  {"scale", Type::kReal},
                                                  {"dropout", Type::kReal},
                                                  {"stream", Type::kInteger, false}};
constexpr AttributeSpec kGeluAttributes[] = {{"approximate", Type::kWord, true, "tanh|none"}};
constexpr AttributeSpec kHeadAttributes[] = {
    {"chunk", Type::kInteger}, {"dweight", Type::kFlag}, kAccumulate, kOverwriteFirst, kScaled};
constexpr AttributeSpec kCrossEntropyAttributes[] = {kScaled, {"out", Type::kWord, false, "bf16"}};

// Reads the accumulators, one per type, when accumulate=1.
void read_accumulators(OperandReader& reader, const Attributes& attributes, const Types& gradients) {
  const bool accumulate = attributes.integer("accumulate") == 1;
  reader.expect(accumulate || !attributes.has("overwrite_first"),
                "attribute overwrite_first is unexpected: expected it with accumulate=1");
  if (!accumulate) return;
  for (const OperandType& gradient : gradients) reader.exactly("into", gradient.dtype, gradient.shape);
}

// The last `count` inputs are accumulators of outputs [first_output, first_output + count).
Aliases accumulators(const Attributes& attributes, Inputs inputs, int32_t count, int32_t first_output = 0) {
  Aliases rules;
  if (attributes.integer("accumulate") != 1) return rules;
  const auto first_input = static_cast<int32_t>(inputs.size()) - count;
  for (int32_t i = 0; i < count; ++i) rules.push_back({first_output + i, first_input + i, true});
  return rules;
}
Aliases one_accumulator(const Attributes& attributes, Inputs inputs) {
  return accumulators(attributes, inputs, 1);
}
Aliases two_accumulators(const Attributes& attributes, Inputs inputs) {
  return accumulators(attributes, inputs, 2);
}
Aliases may_first_two(const Attributes&, Inputs) { return {{0, 0, false}, {0, 1, false}}; }

Types infer_embedding_dtable(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("embedding_dtable", attributes, inputs);
  const OperandType& indices = reader.of_rank("indices", DType::kI32, 2);
  const OperandType& d_y = reader.floating("d_y", 3);
  reader.expect(d_y.shape.dim(0) == indices.shape.dim(0) && d_y.shape.dim(1) == indices.shape.dim(1),
                "operand d_y: found {}, expected one row for each of indices {}", d_y, indices);
  const int64_t rows = attributes.integer("rows");
  reader.expect(rows >= 1, "attribute rows: found {}, expected a number from 1", rows);
  const OperandType d_table{wide(d_y.dtype), {rows, d_y.shape.last()}};
  read_accumulators(reader, attributes, {d_table});
  reader.done();
  return {d_table};
}

// The output of the backward products is in the type of x and w; d_y may be the wide type where the product's
// output was.
bool is_gradient_of(DType d_y, DType activation) { return d_y == activation || d_y == wide(activation); }

Types infer_linear_dx(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("linear_dx", attributes, inputs);
  const OperandType& d_y = reader.floating("d_y");
  const OperandType& w = reader.floating("w", 2);
  reader.done();
  const bool output_first = attributes.word("weight") == "oi";
  reader.expect(is_gradient_of(d_y.dtype, w.dtype), "operand d_y: found {}, expected {} or {}", d_y,
                dtype_name(w.dtype), dtype_name(wide(w.dtype)));
  reader.expect(w.shape.dim(output_first ? 0 : 1) == d_y.shape.last(),
                "operand w: found {}, expected {} output features as d_y {} has (weight={})", w,
                d_y.shape.last(), d_y, attributes.word("weight"));
  return {{w.dtype, with_last(d_y.shape, w.shape.dim(output_first ? 1 : 0))}};
}

double linear_dx_flops(const Attributes&, Inputs inputs) {
  return 2.0 * static_cast<double>(inputs[0].shape.rows()) * static_cast<double>(inputs[1].shape.elements());
}

Types infer_linear_dweight(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("linear_dweight", attributes, inputs);
  const OperandType& x = reader.floating("x");
  const OperandType& d_y = reader.floating("d_y");
  reader.expect(is_gradient_of(d_y.dtype, x.dtype), "operand d_y: found {}, expected {} or {}", d_y,
                dtype_name(x.dtype), dtype_name(wide(x.dtype)));
  reader.expect(without_last(x.shape) == without_last(d_y.shape),
                "operand d_y: found {}, expected the rows of x {}", d_y, x);
  const int64_t in = x.shape.last(), out = d_y.shape.last();
  const OperandType d_w{wide(x.dtype), attributes.word("weight") == "oi" ? Shape{out, in} : Shape{in, out}};
  read_accumulators(reader, attributes, {d_w});
  reader.done();
  return {d_w};
}

double linear_dweight_flops(const Attributes&, Inputs inputs) {
  return 2.0 * static_cast<double>(inputs[0].shape.elements()) * static_cast<double>(inputs[1].shape.last());
}

Types infer_linear_dbias(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("linear_dbias", attributes, inputs);
  const OperandType& d_y = reader.floating("d_y");
  const OperandType d_bias{wide(d_y.dtype), {d_y.shape.last()}};
  read_accumulators(reader, attributes, {d_bias});
  reader.done();
  return {d_bias};
}

Types infer_layer_norm_dx(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("layer_norm_dx", attributes, inputs);
  const OperandType& d_y = reader.floating("d_y");
  reader.exactly("x", d_y.dtype, d_y.shape);
  reader.exactly("w", d_y.dtype, {d_y.shape.last()});
  reader.exactly("mean", wide(d_y.dtype), without_last(d_y.shape));
  reader.exactly("rstd", wide(d_y.dtype), without_last(d_y.shape));
  reader.done();
  return {d_y};
}

Types infer_layer_norm_dweight(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("layer_norm_dweight", attributes, inputs);
  const OperandType& d_y = reader.floating("d_y");
  reader.exactly("x", d_y.dtype, d_y.shape);
  reader.exactly("mean", wide(d_y.dtype), without_last(d_y.shape));
  reader.exactly("rstd", wide(d_y.dtype), without_last(d_y.shape));
  const OperandType gradient{wide(d_y.dtype), {d_y.shape.last()}};
  read_accumulators(reader, attributes, {gradient, gradient});
  reader.done();
  return {gradient, gradient};
}

Types infer_rms_norm_dx(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("rms_norm_dx", attributes, inputs);
  const OperandType& d_y = reader.floating("d_y");
  reader.exactly("x", d_y.dtype, d_y.shape);
  reader.exactly("w", d_y.dtype, {d_y.shape.last()});
  reader.exactly("rstd", wide(d_y.dtype), without_last(d_y.shape));
  reader.done();
  return {d_y};
}

Types infer_rms_norm_dweight(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("rms_norm_dweight", attributes, inputs);
  const OperandType& d_y = reader.floating("d_y");
  reader.exactly("x", d_y.dtype, d_y.shape);
  reader.exactly("rstd", wide(d_y.dtype), without_last(d_y.shape));
  const OperandType d_w{wide(d_y.dtype), {d_y.shape.last()}};
  read_accumulators(reader, attributes, {d_w});
  reader.done();
  return {d_w};
}

// Everything of an attention backward but q, k, v: the attributes are the forward's own, so only operands are
// checked here.
void read_attention_saved(OperandReader& reader, const Attributes& attributes, const OperandType& d_y) {
  reader.exactly("y", d_y.dtype, d_y.shape);
  reader.exactly("lse", wide(d_y.dtype), {d_y.shape.dim(0), attributes.integer("heads"), d_y.shape.dim(1)});
  reader.exactly("document_starts", DType::kI32, {d_y.shape.dim(0), d_y.shape.dim(1)});
  if (attributes.real("dropout") > 0) reader.exactly("randomness", DType::kU32, {d_y.shape.dim(0), 4});
  reader.done();
}

// Reads d_y; returns it and its head size.
std::pair<OperandType, int64_t> read_attention_gradient(OperandReader& reader, const Attributes& attributes) {
  const int64_t heads = attributes.integer("heads"), kv_heads = attributes.integer("kv_heads");
  reader.expect(heads >= 1 && kv_heads >= 1 && heads % kv_heads == 0,
                "attributes heads={} kv_heads={}: expected heads to be a multiple of kv_heads", heads,
                kv_heads);
  reader.expect(attributes.has("stream") == (attributes.real("dropout") > 0),
                "attribute stream is {}: expected it with dropout > 0",
                attributes.has("stream") ? "unexpected" : "missing");
  const OperandType& d_y = reader.floating("d_y", 3);
  reader.expect(d_y.shape.last() % heads == 0, "operand d_y: found {}, expected a last dimension of {} heads",
                d_y, heads);
  return {d_y, d_y.shape.last() / heads};
}

Types infer_attention_backward(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("attention_backward", attributes, inputs);
  const auto [d_y, head_dim] = read_attention_gradient(reader, attributes);
  const Shape kv = with_last(d_y.shape, checked_mul(attributes.integer("kv_heads"), head_dim));
  reader.exactly("q", d_y.dtype, d_y.shape);
  reader.exactly("k", d_y.dtype, kv);
  reader.exactly("v", d_y.dtype, kv);
  read_attention_saved(reader, attributes, d_y);
  return {d_y, {d_y.dtype, kv}, {d_y.dtype, kv}};
}

Types infer_attention_qkv_backward(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("attention_qkv_backward", attributes, inputs);
  const auto [d_y, head_dim] = read_attention_gradient(reader, attributes);
  const int64_t all_heads = attributes.integer("heads") + 2 * attributes.integer("kv_heads");
  const OperandType d_qkv{d_y.dtype, with_last(d_y.shape, checked_mul(all_heads, head_dim))};
  reader.exactly("qkv", d_qkv.dtype, d_qkv.shape);
  read_attention_saved(reader, attributes, d_y);
  return {d_qkv};
}

double attention_backward_flops(const Attributes&, Inputs inputs) {
  const Shape& d_y = inputs[0].shape;
  return 2 * attention_flops(d_y.dim(0), d_y.dim(1), d_y.last());
}

Types infer_gelu_backward(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("gelu_backward", attributes, inputs);
  const OperandType& d_h = reader.floating("d_h");
  reader.exactly("u", d_h.dtype, d_h.shape);
  reader.done();
  return {d_h};
}

Types infer_swiglu_backward(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("swiglu_backward", attributes, inputs);
  const OperandType& d_h = reader.floating("d_h");
  reader.exactly("gate", d_h.dtype, d_h.shape);
  reader.exactly("up", d_h.dtype, d_h.shape);
  reader.done();
  return {d_h, d_h};
}

Aliases swiglu_backward_aliases(const Attributes&, Inputs) {
  return {{0, 0, false}, {0, 1, false}, {1, 2, false}};
}

Types infer_mlp_gradient(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("mlp_gradient", attributes, inputs);
  const OperandType& d_y = reader.floating("d_y");
  const MlpTypes types = read_mlp(reader, attributes);
  reader.expect(d_y == types.y, "operand d_y: found {}, expected {}", d_y, types.y);
  const MlpOperands operands(attributes);
  const int64_t most = (int64_t{1} << operands.count()) - 1, made = attributes.integer("gradients");
  reader.expect(made >= 1 && made <= most,
                "attribute gradients: found {}, expected 1 to {}, a bit an operand of mlp", made, most);
  Types outputs, parameters;
  if (operands.makes(0)) outputs.push_back(types.operands[0]);
  for (size_t operand = 1; operand < operands.count(); ++operand)
    if (operands.makes(operand)) parameters.push_back({wide(d_y.dtype), types.operands[operand].shape});
  reader.expect(!parameters.empty() || attributes.integer("accumulate") == 0,
                "accumulate=1: expected it with a parameter's gradient");
  read_accumulators(reader, attributes, parameters);
  reader.done();
  outputs.insert(outputs.end(), parameters.begin(), parameters.end());
  return outputs;
}

// A chunk's d_y and x are read before its d_x is written.
Aliases mlp_gradient_aliases(const Attributes& attributes, Inputs inputs) {
  const MlpOperands operands(attributes);
  Aliases rules = accumulators(attributes, inputs, static_cast<int32_t>(operands.parameters()),
                               static_cast<int32_t>(operands.first_parameter()));
  if (operands.makes(0)) rules.insert(rules.end(), {{0, 0, false}, {0, 1, false}});
  return rules;
}

// Products of these `elements` weights in all, over the rows of d_y.
double mlp_product_flops(Inputs inputs, double elements) {
  return 2.0 * static_cast<double>(inputs[0].shape.rows()) * elements;
}

// What it makes again of the forward is no needed work.
double mlp_gradient_flops(const Attributes& attributes, Inputs inputs) {
  const MlpOperands operands(attributes);
  const auto elements = [&](size_t product) {
    return static_cast<double>(inputs[1 + operands.weight(product)].shape.elements());
  };
  double products = operands.passes_down() ? elements(operands.down()) : 0;
  for (size_t product = 0; product < operands.products(); ++product) {
    if (operands.makes(operands.weight(product))) products += elements(product);
    if (operands.makes(0) && product != operands.down()) products += elements(product);
  }
  return mlp_product_flops(inputs, products);
}

double mlp_gradient_repeated_flops(const Attributes& attributes, Inputs inputs) {
  const MlpOperands operands(attributes);
  double elements = 0;
  for (size_t product = 0; product < operands.repeated_products(); ++product)
    elements += static_cast<double>(inputs[1 + operands.weight(product)].shape.elements());
  return mlp_product_flops(inputs, elements);
}

// What the loss's gradient is multiplied by, with scaled=1.
void read_loss_scale(OperandReader& reader, const Attributes& attributes, DType type) {
  if (attributes.integer_or("scaled", 0) == 1) reader.exactly("loss_scale", type, {1});
}

Types infer_head_loss_gradient(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("head_loss_gradient", attributes, inputs);
  reader.expect(attributes.integer("chunk") >= 1, "attribute chunk: found {}, expected rows from 1",
                attributes.integer("chunk"));
  const OperandType& x = reader.floating("x", 3);
  const OperandType& w = reader.floating("w", 2);
  reader.expect(w.dtype == x.dtype && w.shape.dim(1) == x.shape.last(),
                "operand w: found {}, expected {} with {} input features", w, dtype_name(x.dtype),
                x.shape.last());
  reader.exactly("targets", DType::kI32, {x.shape.dim(0), x.shape.dim(1)});
  reader.exactly("inverse_tokens", wide(x.dtype), {1});
  read_loss_scale(reader, attributes, wide(x.dtype));
  const bool dweight = attributes.integer("dweight") == 1;
  reader.expect(dweight || attributes.integer("accumulate") == 0, "accumulate=1: expected it with dweight=1");
  Types outputs{{wide(x.dtype), {1}}, x};
  if (dweight) outputs.push_back({wide(x.dtype), w.shape});
  read_accumulators(reader, attributes, {outputs.back()});
  reader.done();
  return outputs;
}

Aliases head_loss_gradient_aliases(const Attributes& attributes, Inputs inputs) {
  return accumulators(attributes, inputs, 1, 2);
}

double head_loss_gradient_flops(const Attributes& attributes, Inputs inputs) {
  const double product =
      2.0 * static_cast<double>(inputs[0].shape.rows()) * static_cast<double>(inputs[1].shape.elements());
  return product * (attributes.integer("dweight") == 1 ? 3 : 2);
}

Types infer_cross_entropy_backward(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("cross_entropy_backward", attributes, inputs);
  const OperandType& logits = reader.floating("logits", 3);
  reader.expect(logits.dtype == wide(logits.dtype), "operand logits: found {}, expected f32", logits);
  reader.exactly("targets", DType::kI32, {logits.shape.dim(0), logits.shape.dim(1)});
  reader.exactly("inverse_tokens", logits.dtype, {1});
  read_loss_scale(reader, attributes, logits.dtype);
  reader.done();
  return {{attributes.has("out") ? DType::kBF16 : logits.dtype, logits.shape}};
}

Aliases may_first_of_its_type(const Attributes& attributes, Inputs) {
  if (attributes.has("out")) return {};
  return {{0, 0, false}};
}

const OperationInfo kBackward[] = {
    {"embedding_dtable", kTableAttributes, infer_embedding_dtable, one_accumulator, no_flops, nullptr,
     nullptr},
    {"linear_dx", kLinearDxAttributes, infer_linear_dx, no_aliases, linear_dx_flops, nullptr, nullptr},
    {"linear_dweight", kLinearDweightAttributes, infer_linear_dweight, one_accumulator, linear_dweight_flops,
     nullptr, nullptr},
    {"linear_dbias", kAccumulateAttributes, infer_linear_dbias, one_accumulator, no_flops, nullptr, nullptr},
    {"layer_norm_dx", {}, infer_layer_norm_dx, may_first_two, no_flops, nullptr, nullptr},
    {"layer_norm_dweight", kAccumulateAttributes, infer_layer_norm_dweight, two_accumulators, no_flops,
     nullptr, nullptr},
    {"rms_norm_dx", {}, infer_rms_norm_dx, may_first_two, no_flops, nullptr, nullptr},
    {"rms_norm_dweight", kAccumulateAttributes, infer_rms_norm_dweight, one_accumulator, no_flops, nullptr,
     nullptr},
    {"attention_backward", kAttentionAttributes, infer_attention_backward, no_aliases,
     attention_backward_flops, nullptr, nullptr},
    {"attention_qkv_backward", kAttentionAttributes, infer_attention_qkv_backward, no_aliases,
     attention_backward_flops, nullptr, nullptr},
    {"gelu_backward", kGeluAttributes, infer_gelu_backward, may_first_two, no_flops, nullptr, nullptr},
    {"swiglu_backward", {}, infer_swiglu_backward, swiglu_backward_aliases, no_flops, nullptr, nullptr},
    {"mlp_gradient", kMlpGradientAttributes, infer_mlp_gradient, mlp_gradient_aliases, mlp_gradient_flops,
     nullptr, decompose_mlp_gradient, false, false, mlp_gradient_repeated_flops},
    {"head_loss_gradient", kHeadAttributes, infer_head_loss_gradient, head_loss_gradient_aliases,
     head_loss_gradient_flops, nullptr, decompose_head_loss_gradient},
    {"cross_entropy_backward", kCrossEntropyAttributes, infer_cross_entropy_backward, may_first_of_its_type,
     no_flops, nullptr, nullptr},
};

}  // namespace

std::span<const OperationInfo> backward_operations() { return kBackward; }

}  // namespace snug
