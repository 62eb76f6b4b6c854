#include "passes/fuse.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "passes/uses.h"

namespace snug {
namespace {

// The fused form of `product` (a linear) followed at once by `next`, or none.
std::optional<Op> fused(const Op& product, const Op& next, const std::vector<int32_t>& uses) {
  if (product.kind != "linear" || product.attributes.has("out")) return std::nullopt;
  if (product.part != next.part || product.block != next.block) return std::nullopt;
  const TensorId y = product.outputs.at(0);

  if (next.kind == "gelu" && next.inputs.at(0) == y && uses[y.index()] > 1) {
    Op op = product;
    op.kind = "linear_gelu";
    op.attributes.set("approximate", next.attributes.word("approximate"));
    op.outputs = {y, next.outputs.at(0)};
    return op;
  }
  if (next.kind == "add" && uses[y.index()] == 1 &&
      std::count(next.inputs.begin(), next.inputs.end(), y) == 1) {
    Op op = product;
    op.kind = "linear_add";
    op.inputs.push_back(next.inputs.at(0) == y ? next.inputs.at(1) : next.inputs.at(0));
    op.outputs = next.outputs;
    return op;
  }
  return std::nullopt;
}

}  // namespace

bool fuse(Graph& graph) {
  const std::vector<int32_t> uses = use_counts(graph);
  std::vector<Op> ops;
  ops.reserve(graph.ops.size());
  for (Op& op : graph.ops) {
    // What `recompute` compresses for the backward there does not come between the two.
    size_t before = ops.size();
    while (before > 0 && ops[before - 1].kind == "fp8_encode") --before;
    std::optional<Op> pair = before == 0 ? std::nullopt : fused(ops[before - 1], op, uses);
    if (pair)
      ops[before - 1] = std::move(*pair);
    else
      ops.push_back(std::move(op));
  }
  const bool changed = ops.size() != graph.ops.size();
  graph.ops = std::move(ops);
  if (changed) canonicalize(graph);
  return changed;
}

}  // namespace snug
