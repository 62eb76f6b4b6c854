#include "passes/recompute.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/errors.h"
#include "passes/uses.h"

namespace snug {
namespace {

class Recompute {
 public:
  Recompute(Graph& graph, std::span<const TensorId> dropped)
      : graph_(graph),
        producer_(producers(graph)),
        dropped_(graph.tensors.size(), false),
        clone_(graph.tensors.size()) {
    for (TensorId tensor : dropped) {
      require(producer_.at(tensor.index()) >= 0, "recompute: '{}' is not computed here",
              graph.tensor(tensor).name);
      require(producer_op(tensor).part == Part::kForward, "recompute: '{}' is no forward value",
              graph.tensor(tensor).name);
      dropped_[tensor.index()] = true;
    }
  }

  bool run() {
    for (const Op& op : graph_.ops)
      if (op.part == Part::kBackward)
        for (TensorId input : op.inputs)
          if (dropped_[input.index()]) wanted_[producer_op(input).block].push_back(input);
    if (wanted_.empty()) return false;

    // Clones are appended to `ops_`, which becomes the graph's list at the end: producer_ keeps indexing the
    // old one.
    ops_.reserve(2 * graph_.ops.size());
    for (const Op& original : graph_.ops) {
      Op op = original;
      if (op.part == Part::kBackward)
        for (TensorId& input : op.inputs) {
          if (input.index() >= dropped_.size() || !dropped_[input.index()]) continue;
          if (!clone_[input.index()].valid()) recompute_block(producer_op(input).block);
          input = clone_[input.index()];
        }
      ops_.push_back(std::move(op));
    }
    graph_.ops = std::move(ops_);
    canonicalize(graph_);
    return true;
  }

 private:
  const Op& producer_op(TensorId tensor) const {
    return graph_.ops[static_cast<size_t>(producer_[tensor.index()])];
  }

  void recompute_block(int32_t block) {
    std::set<int32_t> repeated;  // forward operations, in execution order
    std::vector<TensorId> open = wanted_.at(block);
    while (!open.empty()) {
      const TensorId tensor = open.back();
      open.pop_back();
      if (clone_[tensor.index()].valid() || !repeated.insert(producer_[tensor.index()]).second) continue;
      for (TensorId input : producer_op(tensor).inputs)
        if (dropped_[input.index()]) open.push_back(input);
    }
    for (int32_t op_idx : repeated) clone(graph_.ops[static_cast<size_t>(op_idx)]);
  }

  void clone(const Op& op) {
    require(op.aliases.empty(), "recompute: '{}' already works in place", op.name);
    Op again = op;
    again.name += ".recompute";
    again.part = Part::kRecompute;
    for (TensorId& input : again.inputs)
      if (clone_[input.index()].valid()) input = clone_[input.index()];
    for (TensorId& output : again.outputs) {
      Tensor tensor = graph_.tensor(output);
      tensor.name += ".recompute";
      const TensorId copy = graph_.add_tensor(std::move(tensor));
      clone_[output.index()] = copy;
      output = copy;
    }
    ops_.push_back(std::move(again));
  }

  Graph& graph_;
  std::vector<int32_t> producer_;
  std::vector<bool> dropped_;
  std::vector<TensorId> clone_;                      // per original tensor
  std::map<int32_t, std::vector<TensorId>> wanted_;  // per block: dropped values that the backward reads
  std::vector<Op> ops_;
};

}  // namespace

std::vector<TensorId> dropped_values(const Graph& graph, RecomputePolicy policy) {
  std::vector<TensorId> dropped;
  if (policy == RecomputePolicy::kNone) return dropped;
  std::vector<bool> kept(graph.tensors.size(), false);
  const std::vector<int32_t> producer = producers(graph);
  for (const Op& op : graph.ops) {
    for (TensorId input : op.inputs) {
      const int32_t producer_idx = producer[input.index()];
      if (producer_idx >= 0 && graph.ops[static_cast<size_t>(producer_idx)].block != op.block)
        kept[input.index()] = true;
    }
  }
  for (TensorId result : graph.results) kept[result.index()] = true;
  for (const Op& op : graph.ops)
    if (op.part == Part::kForward && op.block >= 0)
      for (TensorId output : op.outputs)
        if (!kept[output.index()]) dropped.push_back(output);
  return dropped;
}

bool recompute(Graph& graph, std::span<const TensorId> dropped) { return Recompute(graph, dropped).run(); }

}  // namespace snug
