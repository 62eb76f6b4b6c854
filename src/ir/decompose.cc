// The plain decompositions of fused operations: tests compare bits against them, and plans can be made of
// them.
#include <span>

#include "base/errors.h"
#include "base/mlp_operands.h"
#include "ir/operation_rules.h"

namespace snug {
namespace {

// Appends one piece under the fused operation's part and block. `outputs` defines existing tensors.
std::vector<TensorId> piece(Graph& graph, const Op& op, std::string_view kind, std::string_view name,
                            std::vector<TensorId> inputs, Attributes attributes,
                            std::vector<TensorId> outputs = {}) {
  return append(graph, kind, name, std::move(inputs), std::move(attributes),
                {.part = op.part, .block = op.block, .existing_outputs = std::move(outputs)});
}

Attributes linear_attributes(const Op& op) {
  return {{"weight", op.attributes.word("weight")}, {"bias", op.attributes.integer("bias")}};
}

}  // namespace

void decompose_linear_gelu(Graph& graph, const Op& op) {
  piece(graph, op, "linear", op.name, op.inputs, linear_attributes(op), {op.outputs.at(0)});
  piece(graph, op, "gelu", op.name + ".gelu", {op.outputs.at(0)},
        {{"approximate", op.attributes.word("approximate")}}, {op.outputs.at(1)});
}

void decompose_linear_add(Graph& graph, const Op& op) {
  require(!op.inputs.empty(), "{} has no operands", op.name);
  const std::vector<TensorId> product(op.inputs.begin(), op.inputs.end() - 1);
  const TensorId y = piece(graph, op, "linear", op.name, product, linear_attributes(op))[0];
  piece(graph, op, "add", op.name + ".add", {op.inputs.back(), y}, {}, {op.outputs.at(0)});
}

namespace {

Attributes gelu_attributes(const Op& op) {
  return {{"approximate", op.attributes.word("activation") == "gelu_tanh" ? "tanh" : "none"}};
}

// The values that an MLP makes on the way to its last product: what each product before the activation gives, and the activation.
struct MlpInside {
  std::vector<TensorId> before;
  TensorId h;
};

// `operands`: x and the products' operands.
MlpInside mlp_inside(Graph& graph, const Op& op, const MlpOperands& positions,
                     std::span<const TensorId> operands) {
  MlpInside inside;
  for (size_t product = 0; product < positions.down(); ++product) {
    std::vector<TensorId> inputs{operands[0], operands[positions.weight(product)]};
    if (positions.bias) inputs.push_back(operands[positions.bias_of(product)]);
    const char* suffix = positions.gated && product == 0 ? ".gate" : ".up";
    inside.before.push_back(
        piece(graph, op, "linear", op.name + suffix, std::move(inputs), linear_attributes(op))[0]);
  }
  inside.h = positions.gated
                 ? piece(graph, op, "swiglu", op.name + ".act", inside.before, {})[0]
                 : piece(graph, op, "gelu", op.name + ".act", inside.before, gelu_attributes(op))[0];
  return inside;
}

}  // namespace

void decompose_mlp(Graph& graph, const Op& op) {
  const MlpOperands positions(op.attributes);
  require(op.inputs.size() == positions.count(), "{}: {} operands", op.name, op.inputs.size());
  const MlpInside inside = mlp_inside(graph, op, positions, op.inputs);
  std::vector<TensorId> inputs{inside.h, op.inputs[positions.weight(positions.down())]};
  if (positions.bias) inputs.push_back(op.inputs[positions.bias_of(positions.down())]);
  piece(graph, op, "linear", op.name, std::move(inputs), linear_attributes(op), op.outputs);
}

void decompose_mlp_gradient(Graph& graph, const Op& op) {
  const MlpOperands positions(op.attributes);
  require(op.inputs.size() >= 1 + positions.count(), "{}: {} operands", op.name, op.inputs.size());
  const TensorId d_y = op.inputs[0];
  const std::span<const TensorId> operands = std::span(op.inputs).subspan(1, positions.count());
  const bool accumulates = op.attributes.integer("accumulate") == 1;
  const Attributes weight{{"weight", op.attributes.word("weight")}};
  // The gradients of a product's parameters, from its input and its output's gradient.
  const auto parameters = [&](size_t product, const std::string& name, TensorId input, TensorId d_output) {
    const auto gradient = [&](size_t operand, const char* kind, const char* suffix,
                              std::vector<TensorId> inputs, Attributes attributes) {
      if (!positions.makes(operand)) return;
      const size_t output = positions.output(operand);
      attributes.set("accumulate", int64_t{accumulates});
      if (op.attributes.has("overwrite_first"))
        attributes.set("overwrite_first", op.attributes.integer("overwrite_first"));
      if (accumulates) inputs.push_back(op.inputs[op.inputs.size() - op.outputs.size() + output]);
      piece(graph, op, kind, op.name + name + suffix, std::move(inputs), std::move(attributes),
            {op.outputs[output]});
    };
    gradient(positions.weight(product), "linear_dweight", ".dweight", {input, d_output}, weight);
    if (positions.bias) gradient(positions.bias_of(product), "linear_dbias", ".dbias", {d_output}, {});
  };

  MlpInside inside;
  if (positions.repeated_products() > 0) inside = mlp_inside(graph, op, positions, operands);
  parameters(positions.down(), ".down", inside.h, d_y);
  if (!positions.passes_down()) return;
  const TensorId d_h = piece(graph, op, "linear_dx", op.name + ".dh",
                             {d_y, operands[positions.weight(positions.down())]}, weight)[0];
  const std::vector<TensorId> d_before = positions.gated
                                             ? piece(graph, op, "swiglu_backward", op.name + ".act.backward",
                                                     {d_h, inside.before[0], inside.before[1]}, {})
                                             : piece(graph, op, "gelu_backward", op.name + ".act.backward",
                                                     {d_h, inside.before[0]}, gelu_attributes(op));
  for (size_t product = 0; product < positions.down(); ++product)
    parameters(product, positions.gated && product == 0 ? ".gate" : ".up", operands[0], d_before[product]);
  if (!positions.makes(0)) return;
  const auto d_x = [&](size_t product, const char* name, std::vector<TensorId> outputs) {
    return piece(graph, op, "linear_dx", op.name + name,
                 {d_before[product], operands[positions.weight(product)]}, weight, std::move(outputs))[0];
  };
  if (!positions.gated) {
    d_x(0, ".dx", {op.outputs[0]});
    return;
  }
  const TensorId of_up = d_x(1, ".up.dx", {}), of_gate = d_x(0, ".gate.dx", {});
  piece(graph, op, "add", op.name + ".dx", {of_up, of_gate}, {}, {op.outputs[0]});
}

void decompose_head_loss(Graph& graph, const Op& op) {
  const TensorId logits = piece(graph, op, "linear", op.name + ".logits", {op.inputs.at(0), op.inputs.at(1)},
                                {{"weight", "oi"}, {"bias", int64_t{0}}, {"out", "f32"}})[0];
  piece(graph, op, "cross_entropy", op.name, {logits, op.inputs.at(2), op.inputs.at(3)}, {},
        {op.outputs.at(0)});
}

void decompose_head_loss_gradient(Graph& graph, const Op& op) {
  const TensorId x = op.inputs.at(0), w = op.inputs.at(1), targets = op.inputs.at(2),
                 inverse = op.inputs.at(3);
  const TensorId logits = piece(graph, op, "linear", op.name + ".logits", {x, w},
                                {{"weight", "oi"}, {"bias", int64_t{0}}, {"out", "f32"}})[0];
  piece(graph, op, "cross_entropy", op.name, {logits, targets, inverse}, {}, {op.outputs.at(0)});
  const bool scaled = op.attributes.integer_or("scaled", 0) == 1;
  std::vector<TensorId> of_loss{logits, targets, inverse};
  Attributes attributes_of_loss;
  if (scaled) {
    of_loss.push_back(op.inputs.at(4));
    attributes_of_loss.set("scaled", int64_t{1});
  }
  // As any gradient of an activation in bf16. In f16 what the softmax says of most tokens would be 0.
  if (graph.tensor(x).dtype == DType::kBF16) attributes_of_loss.set("out", "bf16");
  const TensorId d_logits =
      piece(graph, op, "cross_entropy_backward", op.name + ".dlogits", std::move(of_loss),
            std::move(attributes_of_loss))[0];
  piece(graph, op, "linear_dx", op.name + ".dx", {d_logits, w}, {{"weight", "oi"}}, {op.outputs.at(1)});
  if (op.attributes.integer("dweight") == 0) return;
  Attributes attributes{{"weight", "oi"}, {"accumulate", op.attributes.integer("accumulate")}};
  if (op.attributes.has("overwrite_first"))
    attributes.set("overwrite_first", op.attributes.integer("overwrite_first"));
  std::vector<TensorId> inputs{x, d_logits};
  if (op.attributes.integer("accumulate") == 1) inputs.push_back(op.inputs.back());
  piece(graph, op, "linear_dweight", op.name + ".dweight", std::move(inputs), std::move(attributes),
        {op.outputs.at(2)});
}

}  // namespace snug
