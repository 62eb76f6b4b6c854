#include "planner/price.h"

#include <algorithm>
#include <numeric>

#include "analysis/cost.h"
#include "base/errors.h"
#include "ir/operations.h"

namespace snug::planner {
namespace {

// Buffers of one graph: the first tensor that shares a storage stands for all.
struct Buffers {
  std::vector<size_t> root;          // per tensor
  std::vector<int64_t> first, last;  // per root: operations [first, last)
  std::vector<Bytes> bytes;          // per root, rounded; 0 for what is held all the time
  Bytes always;
};

Buffers buffers_of(const Graph& graph, OpPrices& prices) {
  const size_t count = graph.tensors.size();
  Buffers buffers{.root = std::vector<size_t>(count),
                  .first = std::vector<int64_t>(count, -1),
                  .last = std::vector<int64_t>(count, -1),
                  .bytes = std::vector<Bytes>(count),
                  .always = Bytes(0)};
  std::vector<size_t>& root = buffers.root;
  std::iota(root.begin(), root.end(), size_t{0});
  const auto find = [&](size_t tensor) {
    while (root[tensor] != tensor) tensor = root[tensor] = root[root[tensor]];
    return tensor;
  };
  for (size_t op_idx = 0; op_idx < graph.ops.size(); ++op_idx) {
    const Op& op = graph.ops[op_idx];
    const auto moment = static_cast<int64_t>(op_idx);
    for (TensorId input : op.inputs) buffers.last[input.index()] = moment + 1;
    for (TensorId output : op.outputs) {
      buffers.first[output.index()] = moment;
      buffers.last[output.index()] = std::max(buffers.last[output.index()], moment + 1);
    }
    for (const Op::Alias& alias : op.aliases)
      root[find(op.outputs.at(static_cast<size_t>(alias.output)).index())] =
          find(op.inputs.at(static_cast<size_t>(alias.input)).index());
  }
  for (TensorId result : graph.results) buffers.last[result.index()] = static_cast<int64_t>(graph.ops.size());

  std::vector<bool> always(count, false);
  for (size_t tensor = 0; tensor < count; ++tensor) {
    const size_t to = root[tensor] = find(tensor);
    if (graph.tensors[tensor].storage != Storage::kValue) always[to] = true;
    buffers.bytes[to] = std::max(
        buffers.bytes[to], prices.round(graph.tensors[tensor].shape.bytes(graph.tensors[tensor].dtype)));
    if (to == tensor) continue;
    if (buffers.first[to] < 0 || (buffers.first[tensor] >= 0 && buffers.first[tensor] < buffers.first[to]))
      buffers.first[to] = buffers.first[tensor];
    buffers.last[to] = std::max(buffers.last[to], buffers.last[tensor]);
  }
  for (size_t tensor = 0; tensor < count; ++tensor) {
    if (root[tensor] != tensor) {
      buffers.bytes[tensor] = Bytes(0);
    } else if (always[tensor]) {
      buffers.always += buffers.bytes[tensor];
      buffers.bytes[tensor] = Bytes(0);
    }
  }
  return buffers;
}

Sweep sweep_of(const Graph& graph, const Buffers& buffers, OpPrices& prices) {
  Sweep sweep{.held = {}, .always = buffers.always, .seconds = 0};
  std::vector<int64_t> change(graph.ops.size() + 1, 0);
  for (size_t tensor = 0; tensor < graph.tensors.size(); ++tensor) {
    if (buffers.bytes[tensor].value == 0 || buffers.first[tensor] < 0) continue;
    change[static_cast<size_t>(buffers.first[tensor])] += buffers.bytes[tensor].value;
    change[static_cast<size_t>(buffers.last[tensor])] -= buffers.bytes[tensor].value;
  }
  int64_t held = 0;
  for (size_t op_idx = 0; op_idx < graph.ops.size(); ++op_idx) {
    held += change[op_idx];
    const OpPrices::OpPrice op_price = prices(graph, graph.ops[op_idx]);
    sweep.held.push_back(Bytes(held) + op_price.scratch);
    sweep.seconds += op_price.seconds;
  }
  return sweep;
}

}  // namespace

OpPrices::OpPrice OpPrices::operator()(const Graph& graph, const Op& op) {
  if (operation(op.kind).by_host || op.name == kEnter || op.name == kTurn) return {};
  key_.assign(op.kind);
  for (const std::vector<TensorId>* operands : {&op.inputs, &op.outputs}) {
    key_ += '|';
    for (TensorId id : *operands) {
      const Tensor& tensor = graph.tensor(id);
      key_ += static_cast<char>('a' + static_cast<int>(tensor.dtype));
      for (int64_t dim : tensor.shape.dims()) key_.append(reinterpret_cast<const char*>(&dim), sizeof dim);
    }
  }
  for (const auto& [name, value] : op.attributes.entries()) {
    if (name == "stream") continue;  // which numbers are drawn costs nothing
    key_ += name;
    std::visit(
        [&](const auto& of) {
          if constexpr (std::is_same_v<std::decay_t<decltype(of)>, std::string>)
            key_ += of;
          else
            key_.append(reinterpret_cast<const char*>(&of), sizeof of);
        },
        value);
  }
  const auto found = known_.find(key_);
  if (found != known_.end()) return found->second;
  const std::vector<OperandType> inputs = operand_types(graph, op.inputs);
  const std::vector<OperandType> outputs = operand_types(graph, op.outputs);
  const OpPrice made{.seconds = cost(graph, op, target_).seconds,
                     .scratch = round(target_.scratch_bytes({op.kind, inputs, outputs, op.attributes}))};
  return known_.emplace(key_, made).first->second;
}

Sweep sweep(const Graph& graph, OpPrices& prices) {
  return sweep_of(graph, buffers_of(graph, prices), prices);
}

std::vector<int32_t> serving_blocks(const Graph& graph) {
  std::vector<int32_t> blocks(graph.ops.size());
  int32_t next = -1;
  for (size_t op_idx = graph.ops.size(); op_idx-- > 0;) {
    const Op& op = graph.ops[op_idx];
    const bool repeats_forward =
        op.part == Part::kRecompute && op.name.find(".recompute") != std::string::npos;
    if (!repeats_forward) next = op.block;
    blocks[op_idx] = next;
  }
  return blocks;
}

SlicePrice price(const Slice& slice, const Retentions& retentions, const Finish& finish, OpPrices& prices) {
  Graph graph = slice.graph;
  // The pass takes retentions in the order of the tensors that it finds.
  recompute(graph, retentions);
  finish(graph);
  const Buffers buffers = buffers_of(graph, prices);
  const Sweep swept = sweep_of(graph, buffers, prices);
  const std::vector<int32_t> blocks = serving_blocks(graph);

  SlicePrice result;
  result.seconds = swept.seconds;
  result.moments.assign(slice.count, Moments{});
  const auto turn =
      std::find_if(graph.ops.begin(), graph.ops.end(), [](const Op& op) { return op.name == kTurn; });
  require(turn != graph.ops.end(), "planner: the slice's turn is gone");
  const auto turn_idx = static_cast<int64_t>(turn - graph.ops.begin());
  for (size_t tensor = 0; tensor < graph.tensors.size(); ++tensor)
    if (buffers.first[tensor] >= 0 && buffers.first[tensor] < turn_idx && buffers.last[tensor] > turn_idx + 1)
      result.saved += buffers.bytes[tensor];
  for (size_t op_idx = 0; op_idx < graph.ops.size(); ++op_idx) {
    const Op& op = graph.ops[op_idx];
    if (op.name == kEnter || op.name == kTurn) continue;
    // The source of the first block's input counts as the first block's.
    const int64_t block = std::max<int64_t>(blocks[op_idx] - static_cast<int64_t>(slice.first), 0);
    Moments& moments = result.moments.at(static_cast<size_t>(block));
    Bytes& most = static_cast<int64_t>(op_idx) < turn_idx ? moments.forward : moments.backward;
    most = std::max(most, swept.held[op_idx]);
  }
  return result;
}

}  // namespace snug::planner
