#include "passes/decompose.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ir/operations.h"

namespace snug {

bool decompose(Graph& graph) {
  const auto is_fused = [](const Op& op) { return operation(op.kind).decompose != nullptr; };
  bool changed = false;
  while (std::any_of(graph.ops.begin(), graph.ops.end(), is_fused)) {
    const std::vector<Op> ops = std::move(graph.ops);
    graph.ops.clear();
    for (const Op& op : ops) {
      if (is_fused(op))
        operation(op.kind).decompose(graph, op);  // appends to the list that is being rebuilt
      else
        graph.ops.push_back(op);
    }
    changed = true;
  }
  if (changed) canonicalize(graph);
  return changed;
}

}  // namespace snug
