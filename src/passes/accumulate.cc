#include "passes/accumulate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/errors.h"
#include "ir/operations.h"

namespace snug {
namespace {

// The input whose storage output `position` of `op` takes over, or -1.
int32_t aliased_input(const Op& op, int32_t position) {
  for (const Op::Alias& alias : op.aliases)
    if (alias.output == position) return alias.input;
  return -1;
}

int32_t output_position(const Op& op, TensorId tensor) {
  return static_cast<int32_t>(std::find(op.outputs.begin(), op.outputs.end(), tensor) - op.outputs.begin());
}

// Per tensor: the last gradient of the chain of accumulators that starts there; itself where no accumulator
// follows.
std::vector<TensorId> ends_of_chains(const Graph& graph) {
  std::vector<TensorId> end(graph.tensors.size());
  for (size_t op_idx = graph.ops.size(); op_idx-- > 0;) {
    const Op& op = graph.ops[op_idx];
    for (size_t output_idx = 0; output_idx < op.outputs.size(); ++output_idx) {
      TensorId& own = end[op.outputs[output_idx].index()];
      if (!own.valid()) own = op.outputs[output_idx];
      const int32_t input = aliased_input(op, static_cast<int32_t>(output_idx));
      if (input >= 0) end[op.inputs[static_cast<size_t>(input)].index()] = own;
    }
  }
  return end;
}

}  // namespace

bool accumulate(Graph& graph) {
  const std::vector<TensorId> end = ends_of_chains(graph);
  bool changed = false;
  for (size_t op_idx = 0; op_idx < graph.ops.size(); ++op_idx) {
    Op op = graph.ops[op_idx];  // a copy: adding tensors is safe, but keep one rule for all passes
    std::vector<TensorId> starts;
    for (size_t output_idx = 0; output_idx < op.outputs.size(); ++output_idx)
      if (graph.tensor(op.outputs[output_idx]).category == Category::kGradients &&
          aliased_input(op, static_cast<int32_t>(output_idx)) < 0)
        starts.push_back(op.outputs[output_idx]);
    if (starts.empty()) continue;

    for (TensorId start : starts) {
      const TensorId last_id = end[start.index()];
      const std::string name = graph.tensor(last_id).name;
      graph.rename(last_id, name + ".next");
      const Tensor& last = graph.tensor(last_id);
      const TensorId carried = graph.add_tensor({.name = name,
                                                 .dtype = last.dtype,
                                                 .shape = last.shape,
                                                 .storage = Storage::kCarried,
                                                 .category = Category::kGradients,
                                                 .parameter = {}});
      op.inputs.push_back(carried);
    }
    op.attributes.set("accumulate", int64_t{1});
    op.attributes.set("overwrite_first", int64_t{1});
    op.aliases.clear();
    for (const AliasRule& rule : operation(op.kind).aliases(op.attributes, operand_types(graph, op.inputs)))
      if (rule.must) op.aliases.push_back({.output = rule.output, .input = rule.input});
    for (TensorId start : starts)
      require(aliased_input(op, output_position(op, start)) >= 0,
              "accumulate: {} has no rule for its accumulator", op.kind);
    graph.ops[op_idx] = std::move(op);
    changed = true;
  }
  if (changed) canonicalize(graph);
  return changed;
}

}  // namespace snug
