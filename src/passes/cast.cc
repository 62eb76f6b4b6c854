#include "passes/cast.h"

#include <algorithm>
#include <vector>

#include "base/errors.h"
#include "base/float16.h"
#include "ir/operations.h"

namespace snug {
namespace {

// An operation without floating inputs (rotary_table) is told its type by the attribute `out`.
bool takes_out_f64(const OperationInfo& info) {
  return std::any_of(info.attributes.begin(), info.attributes.end(), [](const AttributeSpec& attribute) {
    return attribute.name == "out" && attribute.choices == "f64";
  });
}

}  // namespace

bool cast(Graph& graph, DType type) {
  require(is_floating(type), "cast: no training in {}", dtype_name(type));
  if (type == DType::kF32) return false;

  bool changed = false;
  for (Tensor& tensor : graph.tensors) {
    if (tensor.storage == Storage::kValue || tensor.dtype != DType::kF32) continue;
    if (is_half(type) && tensor.category != Category::kWeights) continue;
    tensor.dtype = type;
    changed = true;
  }
  if (!changed) return false;

  for (Op& op : graph.ops) {
    if (type == DType::kF64 && takes_out_f64(operation(op.kind))) op.attributes.set("out", "f64");
    const std::vector<OperandType> inputs = operand_types(graph, op.inputs);
    const std::vector<OperandType> outputs = operation(op.kind).infer(op.attributes, inputs);
    require(outputs.size() == op.outputs.size(), "cast: '{}' ({}) has {} outputs instead of {}", op.name,
            op.kind, op.outputs.size(), outputs.size());
    for (size_t output_idx = 0; output_idx < outputs.size(); ++output_idx)
      graph.tensor(op.outputs[output_idx]).dtype = outputs[output_idx].dtype;
  }
  return true;
}

}  // namespace snug
