#include "passes/differentiate.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "ir/operations.h"

namespace snug {
namespace {

bool is_parameter(const Tensor& tensor) {
  return tensor.storage == Storage::kState && !tensor.parameter.empty();
}

class ReverseSweep {
 public:
  ReverseSweep(Graph& graph, TensorId loss)
      : graph_(graph), loss_(loss), forward_tensors_(graph.tensors.size()), gradient_(graph.tensors.size()) {}

  // Whether the loss depends on a trainable parameter at all.
  bool mark() {
    depends_.assign(forward_tensors_, false);
    for (size_t tensor_idx = 0; tensor_idx < forward_tensors_; ++tensor_idx) {
      const Tensor& tensor = graph_.tensors[tensor_idx];
      depends_[tensor_idx] = is_parameter(tensor) && tensor.trainable;
    }
    for (const Op& op : graph_.ops) {
      const bool any = std::any_of(op.inputs.begin(), op.inputs.end(),
                                   [&](TensorId input) { return depends_[input.index()]; });
      if (any)
        for (TensorId output : op.outputs) depends_[output.index()] = true;
    }
    return depends_[loss_.index()];
  }

  void run() {
    for (size_t op_idx = graph_.ops.size(); op_idx-- > 0;) visit(op_idx);
    for (size_t op_idx : replaced_)
      graph_.ops.erase(graph_.ops.begin() + static_cast<std::ptrdiff_t>(op_idx));
    name_results();
  }

 private:
  void visit(size_t op_idx) {
    const Op op = graph_.ops[op_idx];
    const bool makes_loss = std::find(op.outputs.begin(), op.outputs.end(), loss_) != op.outputs.end();
    GradientRequest request{
        .graph = graph_, .op = op, .d_outputs = {}, .needs = {}, .partial = {}, .replaces_forward = false};
    bool reached = makes_loss;
    for (TensorId output : op.outputs) {
      request.d_outputs.push_back(gradient_[output.index()]);
      reached = reached || gradient_[output.index()].valid();
    }
    bool needed = false;
    for (TensorId input : op.inputs) {
      const bool need = depends_[input.index()];
      needed = needed || need;
      request.needs.push_back(need);
      request.partial.push_back(need && is_parameter(graph_.tensor(input)) ? gradient_[input.index()]
                                                                           : TensorId());
    }
    if (!reached || !needed) return;

    const OperationInfo& info = operation(op.kind);
    require(info.gradient != nullptr, "differentiate: '{}' ({}) has no gradient rule, but one is needed",
            op.name, op.kind);
    const std::vector<TensorId> d_inputs = info.gradient(request);
    require(d_inputs.size() == op.inputs.size(),
            "differentiate: the gradient rule of {} returned {} gradients for {} inputs", op.kind,
            d_inputs.size(), op.inputs.size());
    if (request.replaces_forward) replaced_.push_back(op_idx);

    for (size_t input_idx = 0; input_idx < d_inputs.size(); ++input_idx)
      if (request.needs[input_idx] && d_inputs[input_idx].valid())
        arrive(op.inputs[input_idx], d_inputs[input_idx], op.block);
  }

  // `d` is one more part of the gradient of `tensor`.
  void arrive(TensorId tensor, TensorId d, int32_t block) {
    TensorId& sum = gradient_[tensor.index()];
    if (is_parameter(graph_.tensor(tensor)) || !sum.valid()) {
      sum = d;  // a parameter's rule has added the earlier parts, as its `into`
      return;
    }
    const std::string stem = fmt::format("d.{}.sum", graph_.tensor(tensor).name);
    const int32_t times = sums_[tensor.value]++;
    const std::string name = times == 0 ? stem : fmt::format("{}.{}", stem, times);
    sum = append(graph_, "add", name, {sum, d}, {}, {.part = Part::kBackward, .block = block}).at(0);
  }

  void name_results() {
    for (size_t tensor_idx = 0; tensor_idx < forward_tensors_; ++tensor_idx) {
      const Tensor& parameter = graph_.tensors[tensor_idx];
      if (!is_parameter(parameter) || !parameter.trainable) continue;
      const TensorId d = gradient_[tensor_idx];
      require(d.valid(), "differentiate: parameter '{}' is trainable but the loss does not depend on it",
              parameter.name);
      name_gradient(d, "d." + parameter.parameter);
      Tensor& gradient = graph_.tensor(d);
      if (gradient.shape != parameter.shape)
        throw_internal("differentiate: the gradient of '{}' is {} instead of {}", parameter.name,
                       to_string(gradient.shape), to_string(parameter.shape));
      gradient.category = Category::kGradients;
      graph_.results.push_back(d);
    }
    canonicalize(graph_);
  }

  // Where a parameter is used twice, the part that was made first may have the name.
  void name_gradient(TensorId d, const std::string& name) {
    const TensorId holder = graph_.find(name);
    if (holder.valid() && holder != d) graph_.rename(holder, graph_.unique_name(name + ".part"));
    graph_.rename(d, name);
  }

  Graph& graph_;
  TensorId loss_;
  size_t forward_tensors_;
  std::vector<TensorId> gradient_;  // per forward tensor, so far
  std::vector<bool> depends_;       // per forward tensor: on a trainable parameter
  std::vector<size_t> replaced_;    // forward operations whose outputs the backward makes itself
  std::unordered_map<int32_t, int32_t> sums_;
};

}  // namespace

bool differentiate(Graph& graph) {
  const auto loss = std::find_if(graph.results.begin(), graph.results.end(),
                                 [&](TensorId result) { return graph.tensor(result).name == "loss"; });
  if (loss == graph.results.end()) return false;
  ReverseSweep sweep(graph, *loss);
  if (!sweep.mark()) return false;
  sweep.run();
  return true;
}

}  // namespace snug
