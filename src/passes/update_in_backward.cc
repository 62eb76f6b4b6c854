#include "passes/update_in_backward.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "ir/operations.h"

namespace snug {
namespace {

class UpdateInBackward {
 public:
  UpdateInBackward(Graph& graph, const OptimizerOptions& optimizer, MasterWeights master)
      : graph_(graph), optimizer_(optimizer) {
    for (PlannedParameter& p : planned_parameters(graph, true, master, optimizer)) {
      if (!p.trainable) continue;
      const TensorId gradient = graph.find("d." + p.parameter);
      if (!gradient.valid()) continue;
      require(graph.tensor(gradient).storage == Storage::kValue,
              "update_in_backward: {} is summed over several micro-steps", graph.tensor(gradient).name);
      updates_.push_back({.weight = graph.find(p.name), .gradient = gradient, .parameter = std::move(p)});
    }
  }

  bool run() {
    if (updates_.empty()) return false;
    loss_ = graph_.find("loss");
    require(loss_.valid(), "update_in_backward: graph {} has no loss", graph_.name);
    std::vector<Op> ops = std::exchange(graph_.ops, {});
    find_groups(ops);
    std::erase_if(graph_.results, [&](TensorId result) {
      return std::any_of(updates_.begin(), updates_.end(),
                         [&](const Update& update) { return update.gradient == result; });
    });
    hyperparameters_ = add_hyperparameters(graph_);

    const bool clips = optimizer_.max_grad_norm > 0;
    const auto backward =
        std::find_if(ops.begin(), ops.end(), [](const Op& op) { return op.part != Part::kForward; });
    const auto first_backward = static_cast<size_t>(backward - ops.begin());
    for (size_t op_idx = 0; op_idx < ops.size(); ++op_idx) {
      if (clips && op_idx == first_backward) backward_for_the_norm(ops, first_backward);
      graph_.ops.push_back(std::move(ops[op_idx]));
      if (!clips)
        for (size_t update_idx : completed_[op_idx]) append_sum(update_idx, updates_[update_idx].gradient);
      for (const Group& group : groups_)
        if (group.moment == op_idx) update_group(group);
    }
    if (!clips) append_control();
    graph_.results.push_back(control_);
    graph_.rename(gate_, "gate");
    graph_.results.push_back(gate_);
    for (const Update& update : updates_) graph_.results.push_back(update.moved);
    canonicalize(graph_);
    return true;
  }

 private:
  struct Update {
    TensorId weight, gradient;
    PlannedParameter parameter;
    TensorId sum = {}, moved = {};
  };
  // What one gate lets through.
  struct Group {
    int32_t block = -1;
    size_t moment = 0;  // all gradients are complete and no weight is read after this operation
    std::vector<size_t> updates = {};
  };

  void find_groups(const std::vector<Op>& ops) {
    std::vector<size_t> completed(graph_.tensors.size(), 0), last_use(graph_.tensors.size(), 0);
    for (size_t op_idx = 0; op_idx < ops.size(); ++op_idx) {
      for (TensorId input : ops[op_idx].inputs) last_use[input.index()] = op_idx;
      for (TensorId output : ops[op_idx].outputs) completed[output.index()] = op_idx;
    }
    completed_.resize(ops.size());
    std::map<std::pair<int32_t, size_t>, size_t> known;  // (block, operation outside blocks) → group
    for (size_t update_idx = 0; update_idx < updates_.size(); ++update_idx) {
      const Update& update = updates_[update_idx];
      const size_t at = completed[update.gradient.index()];
      completed_[at].push_back(update_idx);
      const int32_t block = ops[at].block;
      const auto [found, is_new] = known.try_emplace({block, block < 0 ? at : size_t{0}}, groups_.size());
      if (is_new) groups_.push_back({.block = block});
      Group& group = groups_[found->second];
      group.moment = std::max({group.moment, at, last_use[update.weight.index()]});
      group.updates.push_back(update_idx);
    }
  }

  void append_sum(size_t update_idx, TensorId gradient) {
    Update& update = updates_[update_idx];
    update.sum = append_sum_squares(graph_, update.parameter, gradient, graph_.ops.back().block);
  }

  // The norm over all gradients, in the order of the parameters.
  void append_control() {
    std::vector<TensorId> inputs{hyperparameters_};
    for (const Update& update : updates_) inputs.push_back(update.sum);
    control_ = append(graph_, "update_control", "update_control", std::move(inputs),
                      {{"max_grad_norm", optimizer_.max_grad_norm}}, scalar("control"))
                   .at(0);
  }

  void append_gate(TensorId loss, TensorId before, const char* after, std::vector<TensorId> sums) {
    std::vector<TensorId> inputs{loss};
    if (before.valid()) inputs.push_back(before);
    inputs.insert(inputs.end(), sums.begin(), sums.end());
    const std::string name = fmt::format("update_gate.{}", gates_++);
    gate_ =
        append(graph_, "update_gate", name, std::move(inputs), {{"after", std::string(after)}}, scalar(name))
            .at(0);
  }

  static AppendOptions scalar(std::string name) {
    return {.part = Part::kUpdate,
            .block = -1,
            .category = Category::kData,
            .output_names = {std::move(name)},
            .existing_outputs = {}};
  }

  void update_group(const Group& group) {
    if (optimizer_.max_grad_norm == 0) {
      std::vector<TensorId> sums;
      for (size_t update_idx : group.updates) sums.push_back(updates_[update_idx].sum);
      append_gate(loss_, gate_, gate_.valid() ? "gate" : "nothing", std::move(sums));
    }
    for (size_t update_idx : group.updates) {
      Update& update = updates_[update_idx];
      update.moved = append_adamw(graph_, update.parameter, optimizer_, update.weight, update.gradient,
                                  hyperparameters_, gate_, group.block);
    }
  }

  // A copy of operations [first, end), of which only the sums of the gradients and the loss are used.
  void backward_for_the_norm(const std::vector<Op>& ops, size_t first) {
    std::vector<TensorId> copy(graph_.tensors.size());
    for (size_t i = 0; i < copy.size(); ++i) copy[i] = TensorId(i);
    for (size_t op_idx = first; op_idx < ops.size(); ++op_idx) {
      Op op = ops[op_idx];
      op.name += ".norm";
      op.part = Part::kRecompute;
      for (TensorId& input : op.inputs) input = copy[input.index()];
      for (TensorId& output : op.outputs) {
        Tensor tensor = graph_.tensor(output);
        tensor.name = graph_.unique_name(tensor.name + ".norm");
        const TensorId made = graph_.add_tensor(std::move(tensor));
        copy[output.index()] = made;
        output = made;
      }
      graph_.ops.push_back(std::move(op));
      for (size_t update_idx : completed_[op_idx])
        append_sum(update_idx, copy[updates_[update_idx].gradient.index()]);
    }
    append_control();
    append_gate(copy[loss_.index()], control_, "control", {});
  }

  Graph& graph_;
  const OptimizerOptions& optimizer_;
  std::vector<Update> updates_;  // in the order of the parameters
  std::vector<Group> groups_;
  std::vector<std::vector<size_t>> completed_;  // per operation: updates whose gradient it completes
  TensorId loss_, hyperparameters_, control_, gate_;
  int32_t gates_ = 0;
};

}  // namespace

bool update_in_backward(Graph& graph, const OptimizerOptions& optimizer, MasterWeights master) {
  return UpdateInBackward(graph, optimizer, master).run();
}

}  // namespace snug
