#include "analysis/cost.h"

#include <vector>

#include "ir/operations.h"

namespace snug {

Cost& Cost::operator+=(const Cost& other) {
  flops += other.flops;
  repeated_flops += other.repeated_flops;
  bytes += other.bytes;
  seconds += other.seconds;
  return *this;
}

Cost cost(const Graph& graph, const Op& op, const Target& target) {
  const OperationInfo& info = operation(op.kind);
  const std::vector<OperandType> inputs = operand_types(graph, op.inputs);
  const std::vector<OperandType> outputs = operand_types(graph, op.outputs);
  Cost result;
  result.flops = info.flops(op.attributes, inputs);
  if (info.repeated_flops != nullptr) result.repeated_flops = info.repeated_flops(op.attributes, inputs);
  for (const OperandType& type : inputs) result.bytes += static_cast<double>(type.bytes().value);
  for (const OperandType& type : outputs) result.bytes += static_cast<double>(type.bytes().value);
  if (!info.by_host)
    result.seconds = target.seconds({op.kind, inputs, outputs, op.attributes},
                                    {result.flops, result.bytes, result.repeated_flops});
  return result;
}

Cost cost(const Graph& graph, const Target& target) {
  Cost sum;
  for (const Op& op : graph.ops) sum += cost(graph, op, target);
  return sum;
}

UpdateFlops update_flops(const Program& program) {
  UpdateFlops sum;
  for (const Phase& phase : program.phases)
    for (const Op& op : phase.graph.ops) {
      const OperationInfo& info = operation(op.kind);
      const std::vector<OperandType> inputs = operand_types(phase.graph, op.inputs);
      const auto repeats = static_cast<double>(phase.repeats);
      (op.part == Part::kRecompute ? sum.repeated : sum.needed) +=
          repeats * info.flops(op.attributes, inputs);
      if (info.repeated_flops != nullptr)
        sum.repeated += repeats * info.repeated_flops(op.attributes, inputs);
    }
  return sum;
}

}  // namespace snug
