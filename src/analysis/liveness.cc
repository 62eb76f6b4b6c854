#include "analysis/liveness.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "base/errors.h"
#include "ir/operations.h"

namespace snug {
namespace {

class Liveness {
 public:
  Liveness(const Program& program, const Target& target, Bytes staging)
      : program_(program), target_(target), staging_(staging) {
    for (const Phase& phase : program.phases) {
      timeline_.first_moment.push_back(timeline_.moments);
      timeline_.moments += static_cast<int64_t>(phase.graph.ops.size());
      base_.push_back(parent_.size());
      parent_.resize(parent_.size() + phase.graph.tensors.size());
    }
    std::iota(parent_.begin(), parent_.end(), size_t{0});
  }

  Timeline run() {
    for (size_t phase_idx = 0; phase_idx < program_.phases.size(); ++phase_idx) live_within(phase_idx);
    share_by_aliases();
    share_by_names();
    make_buffers();
    add_scratch();
    return std::move(timeline_);
  }

 private:
  const Graph& graph(size_t phase_idx) const { return program_.phases[phase_idx].graph; }
  size_t node(size_t phase_idx, size_t tensor_idx) const { return base_[phase_idx] + tensor_idx; }
  Lifetime& lifetime(TensorRef ref) {
    return timeline_.lifetimes[static_cast<size_t>(ref.phase)][ref.tensor.index()];
  }

  size_t root(size_t node) {
    while (parent_[node] != node) node = parent_[node] = parent_[parent_[node]];
    return node;
  }
  // The earlier node stays the root: it is the tensor that a buffer is charged to.
  void unite(size_t a, size_t b) {
    a = root(a);
    b = root(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

  // Lifetimes from the phase alone.
  void live_within(size_t phase_idx) {
    const Graph& g = graph(phase_idx);
    const int64_t begin = timeline_.first_moment[phase_idx];
    const int64_t end = begin + static_cast<int64_t>(g.ops.size());
    std::vector<Lifetime> lives(g.tensors.size(), Lifetime{begin, begin});
    for (size_t op_idx = 0; op_idx < g.ops.size(); ++op_idx) {
      const int64_t moment = begin + static_cast<int64_t>(op_idx);
      for (TensorId output : g.ops[op_idx].outputs) lives[output.index()] = {moment, moment + 1};
      for (TensorId input : g.ops[op_idx].inputs) lives[input.index()].last = moment + 1;
    }
    for (TensorId result : g.results) lives[result.index()].last = end;
    for (size_t tensor_idx = 0; tensor_idx < g.tensors.size(); ++tensor_idx) {
      if (g.tensors[tensor_idx].storage == Storage::kState) lives[tensor_idx] = {0, timeline_.moments};
      // An input that nobody reads is written all the same.
      if (g.tensors[tensor_idx].storage == Storage::kInput)
        lives[tensor_idx].last = std::max(lives[tensor_idx].last, std::min(begin + 1, end));
    }
    timeline_.lifetimes.push_back(std::move(lives));
  }

  void share_by_aliases() {
    for (size_t phase_idx = 0; phase_idx < program_.phases.size(); ++phase_idx)
      for (const Op& op : graph(phase_idx).ops)
        for (const Op::Alias& alias : op.aliases)
          unite(node(phase_idx, op.outputs.at(static_cast<size_t>(alias.output)).index()),
                node(phase_idx, op.inputs.at(static_cast<size_t>(alias.input)).index()));
  }

  void share_by_names() {
    std::unordered_map<std::string_view, TensorRef> state;  // the first phase's tensor of that name
    std::unordered_map<std::string_view, TensorRef> results;  // the latest result or carried one of it
    for (size_t phase_idx = 0; phase_idx < program_.phases.size(); ++phase_idx)
      for (size_t tensor_idx = 0; tensor_idx < graph(phase_idx).tensors.size(); ++tensor_idx) {
        const Tensor& tensor = graph(phase_idx).tensors[tensor_idx];
        if (tensor.storage == Storage::kState)
          state.try_emplace(tensor.name, TensorRef{static_cast<int32_t>(phase_idx), TensorId(tensor_idx)});
      }
    for (size_t phase_idx = 0; phase_idx < program_.phases.size(); ++phase_idx) {
      const Graph& g = graph(phase_idx);
      for (size_t tensor_idx = 0; tensor_idx < g.tensors.size(); ++tensor_idx) {
        const Tensor& tensor = g.tensors[tensor_idx];
        const TensorRef own{static_cast<int32_t>(phase_idx), TensorId(tensor_idx)};
        if (tensor.storage == Storage::kState) share(own, state.at(tensor.name));
        if (tensor.storage != Storage::kCarried) continue;
        const auto producer = results.find(tensor.name);
        if (producer != results.end())
          carry(producer->second, own);
        else
          accumulate(own);
        results.insert_or_assign(tensor.name, own);
      }
      for (TensorId result : g.results) {
        const TensorRef own{static_cast<int32_t>(phase_idx), result};
        results.insert_or_assign(g.tensor(result).name, own);
      }
    }
  }

  void share(TensorRef a, TensorRef b) {
    const Tensor& left = graph(static_cast<size_t>(a.phase)).tensor(a.tensor);
    const Tensor& right = graph(static_cast<size_t>(b.phase)).tensor(b.tensor);
    if (left.dtype != right.dtype || left.shape != right.shape)
      throw_internal("liveness: '{}' is {}{} in phase {} and {}{} in phase {}", left.name,
                     dtype_name(left.dtype), to_string(left.shape), graph(static_cast<size_t>(a.phase)).name,
                     dtype_name(right.dtype), to_string(right.shape),
                     graph(static_cast<size_t>(b.phase)).name);
    unite(node(static_cast<size_t>(a.phase), a.tensor.index()),
          node(static_cast<size_t>(b.phase), b.tensor.index()));
  }

  // A phase reads what an earlier one left: the value is held from there on.
  void carry(TensorRef from, TensorRef to) {
    share(from, to);
    Lifetime& source = lifetime(from);
    Lifetime& reader = lifetime(to);
    source.last = std::max(source.last, reader.last);
    reader.first = source.first;
    reader.last = source.last;
  }

  // Only an accumulator may be read before it is produced: an operation that overwrites on the first
  // repetition takes its storage.
  void accumulate(TensorRef own) {
    const Graph& g = graph(static_cast<size_t>(own.phase));
    const bool overwritten = std::any_of(g.ops.begin(), g.ops.end(), [&](const Op& op) {
      return op.attributes.integer_or("overwrite_first", 0) == 1 &&
             std::any_of(op.aliases.begin(), op.aliases.end(), [&](Op::Alias alias) {
               return op.inputs.at(static_cast<size_t>(alias.input)) == own.tensor;
             });
    });
    require(overwritten, "liveness: phase {} reads '{}', which no earlier phase makes", g.name,
            g.tensor(own.tensor).name);
    const int64_t begin = timeline_.first_moment[static_cast<size_t>(own.phase)];
    lifetime(own) = {begin, begin + static_cast<int64_t>(g.ops.size())};
  }

  void make_buffers() {
    std::unordered_map<size_t, int32_t> buffer_of_root;
    for (size_t phase_idx = 0; phase_idx < program_.phases.size(); ++phase_idx) {
      const Graph& g = graph(phase_idx);
      std::vector<int32_t> numbers;
      numbers.reserve(g.tensors.size());
      for (size_t tensor_idx = 0; tensor_idx < g.tensors.size(); ++tensor_idx) {
        const Tensor& tensor = g.tensors[tensor_idx];
        const Lifetime life = timeline_.lifetimes[phase_idx][tensor_idx];
        const auto [found, is_new] = buffer_of_root.try_emplace(
            root(node(phase_idx, tensor_idx)), static_cast<int32_t>(timeline_.buffers.size()));
        if (is_new) {
          timeline_.buffers.emplace_back();
          timeline_.buffers.back().first = life.first;
          timeline_.buffers.back().category = tensor.category;
        }
        TimelineBuffer& buffer = timeline_.buffers[static_cast<size_t>(found->second)];
        buffer.first = std::min(buffer.first, life.first);
        buffer.last = std::max(buffer.last, life.last);
        buffer.bytes = std::max(buffer.bytes, tensor.shape.bytes(tensor.dtype));
        // A value that takes over the storage of state or of an accumulator is charged to that.
        if (tensor.storage == Storage::kState || tensor.storage == Storage::kCarried)
          buffer.category = tensor.category;
        buffer.persistent = buffer.persistent || tensor.storage == Storage::kState;
        buffer.tensors.push_back({static_cast<int32_t>(phase_idx), TensorId(tensor_idx)});
        numbers.push_back(found->second);
      }
      timeline_.buffer_of.push_back(std::move(numbers));
    }
  }

  void add_scratch() {
    for (size_t phase_idx = 0; phase_idx < program_.phases.size(); ++phase_idx) {
      const Graph& g = graph(phase_idx);
      std::vector<int32_t> numbers(g.ops.size(), -1);
      for (size_t op_idx = 0; op_idx < g.ops.size(); ++op_idx) {
        const Bytes bytes = scratch_bytes(g, g.ops[op_idx]);
        if (bytes.value == 0) continue;
        numbers[op_idx] = static_cast<int32_t>(timeline_.buffers.size());
        const int64_t moment = timeline_.first_moment[phase_idx] + static_cast<int64_t>(op_idx);
        timeline_.buffers.push_back({.first = moment,
                                     .last = moment + 1,
                                     .bytes = bytes,
                                     .category = Category::kScratch,
                                     .persistent = false,
                                     .tensors = {}});
      }
      timeline_.scratch_of.push_back(std::move(numbers));
    }
  }

  Bytes scratch_bytes(const Graph& g, const Op& op) const {
    if (operation(op.kind).by_host) return staging_;
    const std::vector<OperandType> inputs = operand_types(g, op.inputs);
    const std::vector<OperandType> outputs = operand_types(g, op.outputs);
    return target_.scratch_bytes({op.kind, inputs, outputs, op.attributes});
  }

  const Program& program_;
  const Target& target_;
  Bytes staging_;
  std::vector<size_t> base_;    // per phase: the node of its first tensor
  std::vector<size_t> parent_;  // union-find over all tensors of all phases
  Timeline timeline_;
};

}  // namespace

Timeline liveness(const Program& program, const Target& target, Bytes staging) {
  return Liveness(program, target, staging).run();
}

}  // namespace snug
