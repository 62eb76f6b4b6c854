#include "passes/in_place.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "ir/operations.h"

namespace snug {

bool in_place(Graph& graph) {
  std::vector<int32_t> last_use(graph.tensors.size(), -1);
  for (size_t op_idx = 0; op_idx < graph.ops.size(); ++op_idx)
    for (TensorId input : graph.ops[op_idx].inputs) last_use[input.index()] = static_cast<int32_t>(op_idx);
  for (TensorId result : graph.results) last_use[result.index()] = std::numeric_limits<int32_t>::max();

  bool changed = false;
  for (size_t op_idx = 0; op_idx < graph.ops.size(); ++op_idx) {
    Op& op = graph.ops[op_idx];
    for (const AliasRule& rule : operation(op.kind).aliases(op.attributes, operand_types(graph, op.inputs))) {
      if (rule.must) continue;
      const TensorId output = op.outputs.at(static_cast<size_t>(rule.output));
      const TensorId input = op.inputs.at(static_cast<size_t>(rule.input));
      const Tensor& to = graph.tensor(output);
      const Tensor& from = graph.tensor(input);
      const bool taken = std::any_of(op.aliases.begin(), op.aliases.end(), [&](Op::Alias alias) {
        return alias.output == rule.output || alias.input == rule.input;
      });
      if (taken || from.storage != Storage::kValue || from.dtype != to.dtype || from.shape != to.shape)
        continue;
      if (last_use[input.index()] != static_cast<int32_t>(op_idx)) continue;
      if (std::count(op.inputs.begin(), op.inputs.end(), input) != 1) continue;
      op.aliases.push_back({.output = rule.output, .input = rule.input});
      changed = true;
    }
  }
  return changed;
}

}  // namespace snug
