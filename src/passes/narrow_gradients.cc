#include "passes/narrow_gradients.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "ir/operations.h"
#include "passes/update.h"

namespace snug {
namespace {

// A gradient in f32, and what it becomes.
struct Narrowing {
  TensorId wide, narrow;
  std::string name;  // of the operation
};

}  // namespace

bool narrow_gradients(Graph& graph) {
  const OptimizerOptions optimizer{.bf16_gradients = true};
  std::vector<Narrowing> narrowings;
  for (const PlannedParameter& p : planned_parameters(graph, true, MasterWeights::kSplit, optimizer)) {
    const std::string name = "d." + p.parameter;
    const TensorId gradient = graph.find(name);
    if (!p.has_narrow_gradient() || !gradient.valid()) continue;
    require(graph.tensor(gradient).storage == Storage::kValue,
            "narrow_gradients: {} is summed over several micro-steps", name);
    graph.rename(gradient, name + ".f32");
    Tensor narrow = graph.tensor(gradient);
    narrow.name = name;
    narrow.dtype = DType::kBF16;
    narrowings.push_back({gradient, graph.add_tensor(std::move(narrow)), p.parameter + ".narrow_gradient"});
  }
  if (narrowings.empty()) return false;

  std::map<size_t, std::vector<const Narrowing*>> behind;  // operation → what it completes
  for (const Narrowing& narrowing : narrowings) {
    std::replace(graph.results.begin(), graph.results.end(), narrowing.wide, narrowing.narrow);
    const auto made = std::find_if(graph.ops.begin(), graph.ops.end(), [&](const Op& op) {
      return std::find(op.outputs.begin(), op.outputs.end(), narrowing.wide) != op.outputs.end();
    });
    require(made != graph.ops.end(), "narrow_gradients: {} is made by nothing",
            graph.tensor(narrowing.wide).name);
    behind[static_cast<size_t>(made - graph.ops.begin())].push_back(&narrowing);
  }
  std::vector<Op> ops = std::exchange(graph.ops, {});
  for (size_t op_idx = 0; op_idx < ops.size(); ++op_idx) {
    const int32_t block = ops[op_idx].block;
    graph.ops.push_back(std::move(ops[op_idx]));
    for (const Narrowing* narrowing : behind[op_idx])
      append(graph, "narrow_gradient", narrowing->name, {narrowing->wide}, {},
             {.part = Part::kBackward,
              .block = block,
              .category = Category::kGradients,
              .output_names = {},
              .existing_outputs = {narrowing->narrow}});
  }
  canonicalize(graph);
  return true;
}

}  // namespace snug
