// The plain decompositions of fused operations: tests compare bits against them, and plans can be made of
// them.
#include "base/errors.h"
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
