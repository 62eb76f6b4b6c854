#include "passes/uses.h"

namespace snug {

std::vector<int32_t> use_counts(const Graph& graph) {
  std::vector<int32_t> uses(graph.tensors.size(), 0);
  for (const Op& op : graph.ops)
    for (TensorId input : op.inputs) ++uses.at(input.index());
  for (TensorId result : graph.results) ++uses.at(result.index());
  return uses;
}

std::vector<int32_t> producers(const Graph& graph) {
  std::vector<int32_t> producer(graph.tensors.size(), -1);
  for (size_t op_idx = 0; op_idx < graph.ops.size(); ++op_idx)
    for (TensorId output : graph.ops[op_idx].outputs)
      producer.at(output.index()) = static_cast<int32_t>(op_idx);
  return producer;
}

}  // namespace snug
