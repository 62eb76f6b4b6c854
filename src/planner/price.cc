#include "planner/price.h"

#include <algorithm>
#include <numeric>
#include <utility>

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

// The same with other ends for the gradients of parameters: end(the operation that makes their last part).
template <typename End>
Buffers with_gradients_until(const Graph& graph, Buffers buffers, End end) {
  std::vector<int64_t> made(graph.tensors.size(), -1);
  for (size_t op_idx = 0; op_idx < graph.ops.size(); ++op_idx)
    for (TensorId output : graph.ops[op_idx].outputs)
      made[buffers.root[output.index()]] = static_cast<int64_t>(op_idx);
  for (TensorId result : graph.results) {
    const size_t root = buffers.root[result.index()];
    if (graph.tensor(result).category == Category::kGradients && made[root] >= 0)
      buffers.last[root] = end(made[root]);
  }
  return buffers;
}

// What a slice holds itself: a gradient counts to the end of its own block's backward, for after that it
// belongs to what lives anyway.
Buffers own_buffers(const Graph& graph, OpPrices& prices) {
  const std::vector<int32_t> blocks = serving_blocks(graph);
  std::vector<int64_t> ends(graph.ops.size());
  for (size_t op_idx = graph.ops.size(); op_idx-- > 0;) {
    const bool last = op_idx + 1 == graph.ops.size() || blocks[op_idx + 1] != blocks[op_idx];
    ends[op_idx] = last ? static_cast<int64_t>(op_idx) + 1 : ends[op_idx + 1];
  }
  return with_gradients_until(graph, buffers_of(graph, prices),
                              [&](int64_t made) { return ends[static_cast<size_t>(made)]; });
}

// The same in a backward for the norm alone: a gradient dies as soon as it is complete.
Buffers norm_buffers(const Graph& graph, OpPrices& prices) {
  return with_gradients_until(graph, buffers_of(graph, prices), [](int64_t made) { return made + 1; });
}

size_t turn_of(const Graph& graph) {
  const auto turn =
      std::find_if(graph.ops.begin(), graph.ops.end(), [](const Op& op) { return op.name == kTurn; });
  require(turn != graph.ops.end(), "planner: the slice's turn is gone");
  return static_cast<size_t>(turn - graph.ops.begin());
}

// A slice whose values that are held at its turn are results: they die nowhere, and nothing takes their
// place.
Graph holding_what_is_saved(Graph graph) {
  const size_t turn = turn_of(graph);
  std::vector<bool> made(graph.tensors.size(), false);
  for (size_t op_idx = 0; op_idx < turn; ++op_idx)
    for (TensorId output : graph.ops[op_idx].outputs) made[output.index()] = true;
  for (size_t op_idx = turn + 1; op_idx < graph.ops.size(); ++op_idx)
    for (TensorId input : graph.ops[op_idx].inputs)
      if (made[input.index()]) {
        made[input.index()] = false;
        graph.results.push_back(input);
      }
  return graph;
}

Sweep sweep_of(const Graph& graph, const Buffers& buffers, OpPrices& prices) {
  Sweep sweep{.held = {}, .seconds = {}, .always = buffers.always, .all_seconds = 0};
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
    sweep.seconds.push_back(op_price.seconds);
    sweep.all_seconds += op_price.seconds;
  }
  return sweep;
}

// Calls use(block of the slice, after the turn, bytes held) for each operation.
template <typename Use>
void for_each_moment(const Slice& slice, const Graph& graph, const Sweep& swept, size_t turn,
                     const Use& use) {
  const std::vector<int32_t> blocks = serving_blocks(graph);
  for (size_t op_idx = 0; op_idx < graph.ops.size(); ++op_idx) {
    if (graph.ops[op_idx].name == kEnter || op_idx == turn) continue;
    // The source of the first block's input counts as the first block's.
    const int64_t block = std::max<int64_t>(blocks[op_idx] - static_cast<int64_t>(slice.first), 0);
    use(static_cast<size_t>(block), op_idx > turn, swept.held[op_idx]);
  }
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
        op.part == Part::kRecompute &&
        (op.kind == "fp8_decode" || op.name.find(".recompute") != std::string::npos);
    if (!repeats_forward) next = op.block;
    blocks[op_idx] = next;
  }
  return blocks;
}

SlicePrice price(const Slice& slice, const Retentions& retentions, const Finish& finish, OpPrices& prices) {
  Graph graph = slice.graph;
  recompute(graph, retentions);
  finish(graph);
  const Buffers buffers = own_buffers(graph, prices);
  const Sweep swept = sweep_of(graph, buffers, prices);
  const size_t turn = turn_of(graph);

  SlicePrice result;
  for (size_t op_idx = 0; op_idx < graph.ops.size(); ++op_idx)
    (op_idx < turn ? result.forward_seconds : result.backward_seconds) += swept.seconds[op_idx];
  result.moments.assign(slice.count, Moments{});
  const auto turn_moment = static_cast<int64_t>(turn);
  for (size_t tensor = 0; tensor < graph.tensors.size(); ++tensor)
    if (buffers.first[tensor] >= 0 && buffers.first[tensor] < turn_moment &&
        buffers.last[tensor] > turn_moment + 1)
      result.saved += buffers.bytes[tensor];
  for_each_moment(slice, graph, swept, turn, [&](size_t block, bool backward, Bytes held) {
    Bytes& most = backward ? result.moments.at(block).backward : result.moments.at(block).forward;
    most = std::max(most, held);
  });
  return result;
}

std::vector<Bytes> norm_moments(const Slice& slice, const Retentions& retentions, const Finish& finish,
                                OpPrices& prices) {
  Graph graph = slice.graph;
  recompute(graph, retentions);
  graph = holding_what_is_saved(std::move(graph));
  finish(graph);
  std::vector<Bytes> moments(slice.count);
  const Sweep swept = sweep_of(graph, norm_buffers(graph, prices), prices);
  for_each_moment(slice, graph, swept, turn_of(graph), [&](size_t block, bool backward, Bytes held) {
    if (backward) moments.at(block) = std::max(moments.at(block), held);
  });
  return moments;
}

}  // namespace snug::planner
