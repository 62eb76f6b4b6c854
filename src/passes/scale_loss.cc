#include "passes/scale_loss.h"

#include <optional>

namespace snug {
namespace {

// The position of the operand loss_scale; none for operations that make no loss's gradient.
std::optional<int32_t> scale_position(const Op& op) {
  if (op.kind == "head_loss_gradient") return 4;
  if (op.kind == "cross_entropy_backward") return 3;
  return std::nullopt;
}

}  // namespace

TensorId add_loss_scale(Graph& graph) {
  return graph.add_tensor({.name = "loss_scale",
                           .dtype = DType::kF32,
                           .shape = {1},
                           .storage = Storage::kInput,
                           .category = Category::kData,
                           .parameter = {}});
}

bool scale_loss(Graph& graph) {
  TensorId scale;
  for (Op& op : graph.ops) {
    const std::optional<int32_t> position = scale_position(op);
    if (!position) continue;
    if (!scale.valid()) scale = add_loss_scale(graph);
    op.inputs.insert(op.inputs.begin() + *position, scale);
    op.attributes.set("scaled", int64_t{1});
    for (Op::Alias& alias : op.aliases)
      if (alias.input >= *position) ++alias.input;
  }
  if (scale.valid()) canonicalize(graph);
  return scale.valid();
}

}  // namespace snug
