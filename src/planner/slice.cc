#include "planner/slice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/errors.h"
#include "passes/uses.h"

namespace snug::planner {
namespace {

constexpr int32_t kOutside = -1;

// The blocks that read each tensor (kOutside for operations of none), each once, in no order.
std::vector<std::vector<int32_t>> reading_blocks(const Graph& graph) {
  std::vector<std::vector<int32_t>> blocks(graph.tensors.size());
  for (const Op& op : graph.ops)
    for (TensorId input : op.inputs) {
      std::vector<int32_t>& readers = blocks[input.index()];
      if (std::find(readers.begin(), readers.end(), op.block) == readers.end()) readers.push_back(op.block);
    }
  for (TensorId result : graph.results) blocks[result.index()].push_back(kOutside);
  return blocks;
}

// All that matters of a block, in words: what its operations are, how they are wired, what comes from where.
std::string signature(const Graph& graph, const Anatomy& anatomy, const Anatomy::Block& block) {
  std::string text;
  std::unordered_map<int32_t, size_t> numbers;  // tensors in the order in which they are met
  const auto operand = [&](TensorId id) {
    const auto [found, is_new] = numbers.try_emplace(id.value, numbers.size());
    text += fmt::format(" {}", found->second);
    if (!is_new) return;
    const Tensor& tensor = graph.tensor(id);
    text += fmt::format(":{}{}{}{}", dtype_name(tensor.dtype), to_string(tensor.shape),
                        storage_name(tensor.storage), anatomy.shared[id.index()] ? "s" : "");
  };
  const auto describe = [&](const std::vector<size_t>& ops) {
    for (size_t op_idx : ops) {
      const Op& op = graph.ops[op_idx];
      text += op.kind;
      for (const auto& [name, value] : op.attributes.entries())
        if (name != "stream")
          std::visit([&text, &name = name](const auto& of) { text += fmt::format(" {}={}", name, of); },
                     value);
      for (TensorId input : op.inputs) operand(input);
      text += " >";
      for (TensorId output : op.outputs) operand(output);
      text += part_name(op.part);
    }
  };
  describe(block.forward);
  describe(block.backward);
  for (size_t value = 0; value < block.values.size(); ++value)
    text += anatomy.shared[block.values[value].index()] ? 's' : block.leaving[value] ? 'l' : '.';
  return text;
}

}  // namespace

Anatomy anatomy(const Graph& graph) {
  Anatomy anatomy;
  anatomy.producer = producers(graph);
  for (size_t op_idx = 0; op_idx < graph.ops.size(); ++op_idx) {
    const Op& op = graph.ops[op_idx];
    if (op.block < 0) continue;
    const auto block_idx = static_cast<size_t>(op.block);
    if (anatomy.blocks.size() <= block_idx) anatomy.blocks.resize(block_idx + 1);
    Anatomy::Block& block = anatomy.blocks[block_idx];
    if (op.part == Part::kForward) {
      block.forward.push_back(op_idx);
      block.values.insert(block.values.end(), op.outputs.begin(), op.outputs.end());
    } else {
      block.backward.push_back(op_idx);
    }
  }
  const std::vector<std::vector<int32_t>> readers = reading_blocks(graph);
  const auto maker = [&](size_t tensor_idx) {
    return graph.ops[static_cast<size_t>(anatomy.producer[tensor_idx])].block;
  };
  const auto is_forward = [&](size_t tensor_idx) {
    return anatomy.producer[tensor_idx] >= 0 &&
           graph.ops[static_cast<size_t>(anatomy.producer[tensor_idx])].part == Part::kForward;
  };

  // The blocks besides its maker that read a forward value decide what it is.
  anatomy.shared.assign(graph.tensors.size(), false);
  std::vector<bool> boundary(graph.tensors.size(), false), leaving(graph.tensors.size(), false);
  for (size_t tensor_idx = 0; tensor_idx < graph.tensors.size(); ++tensor_idx) {
    if (!is_forward(tensor_idx)) continue;
    std::vector<int32_t> others = readers[tensor_idx];
    std::erase(others, maker(tensor_idx));
    if (others.empty()) continue;
    leaving[tensor_idx] = true;
    const int32_t next = maker(tensor_idx) + 1;
    boundary[tensor_idx] = others.size() == 1 && others[0] == next && next >= 0;
    anatomy.shared[tensor_idx] =
        !boundary[tensor_idx] &&
        std::any_of(others.begin(), others.end(), [](int32_t block) { return block >= 0; });
  }
  for (Anatomy::Block& block : anatomy.blocks) {
    require(!block.forward.empty(), "planner: a block without operations");
    for (TensorId value : block.values) {
      block.leaving.push_back(leaving[value.index()]);
      block.boundary.push_back(boundary[value.index()]);
    }
  }

  std::unordered_map<std::string, int32_t> alike;
  for (Anatomy::Block& block : anatomy.blocks)
    block.alike =
        alike.try_emplace(signature(graph, anatomy, block), static_cast<int32_t>(alike.size())).first->second;

  // Backwards from the first block's boundary, as long as nobody else reads what an operation makes.
  std::vector<bool> wanted(graph.tensors.size(), false);
  for (size_t tensor_idx = 0; tensor_idx < graph.tensors.size(); ++tensor_idx)
    wanted[tensor_idx] = boundary[tensor_idx] && maker(tensor_idx) == kOutside;
  std::vector<bool> in_source(graph.ops.size(), false);
  for (size_t op_idx = graph.ops.size(); op_idx-- > 0;) {
    const Op& op = graph.ops[op_idx];
    if (op.block != kOutside || op.part != Part::kForward) continue;
    // A value that the source makes for others as well would have to be held beside it.
    const bool makes_wanted = std::any_of(op.outputs.begin(), op.outputs.end(),
                                          [&](TensorId output) { return wanted[output.index()]; });
    const bool makes_shared = std::any_of(op.outputs.begin(), op.outputs.end(),
                                          [&](TensorId output) { return anatomy.shared[output.index()]; });
    if (!makes_wanted || makes_shared) continue;
    in_source[op_idx] = true;
    for (TensorId input : op.inputs)
      if (is_forward(input.index()) && !anatomy.shared[input.index()]) wanted[input.index()] = true;
  }
  for (size_t op_idx = 0; op_idx < graph.ops.size(); ++op_idx)
    if (in_source[op_idx]) {
      anatomy.source.push_back(op_idx);
      anatomy.source_values.insert(anatomy.source_values.end(), graph.ops[op_idx].outputs.begin(),
                                   graph.ops[op_idx].outputs.end());
    }
  return anatomy;
}

Slice slice(const Graph& graph, const Anatomy& anatomy, size_t first, size_t count, bool with_source) {
  require(first + count <= anatomy.blocks.size() && count > 0 && (!with_source || first == 0),
          "planner: no slice of blocks [{}, {})", first, first + count);
  Slice made;
  made.first = first;
  made.count = count;
  made.graph.name = graph.name;

  std::vector<size_t> forward, backward;
  if (with_source) forward = anatomy.source;
  for (size_t block = first; block < first + count; ++block)
    forward.insert(forward.end(), anatomy.blocks[block].forward.begin(), anatomy.blocks[block].forward.end());
  for (size_t block = first + count; block-- > first;)
    backward.insert(backward.end(), anatomy.blocks[block].backward.begin(),
                    anatomy.blocks[block].backward.end());

  std::unordered_map<int32_t, TensorId> copies;  // of the graph's tensors
  std::set<TensorId> own, leaving, taken;        // made here; read outside in the forward; gradients so
  for (const std::vector<size_t>& ops : {forward, backward})
    for (size_t op_idx : ops) own.insert(graph.ops[op_idx].outputs.begin(), graph.ops[op_idx].outputs.end());
  const auto copy = [&](TensorId id) {
    const auto [found, is_new] = copies.try_emplace(id.value);
    if (is_new) found->second = made.graph.add_tensor(graph.tensor(id));
    return found->second;
  };

  Op enter{.kind = "fill", .name = kEnter}, turn{.kind = "fill", .name = kTurn, .part = Part::kBackward};
  std::vector<Op> copied;
  for (const std::vector<size_t>& ops : {forward, backward})
    for (size_t op_idx : ops) {
      Op op = graph.ops[op_idx];
      for (TensorId& input : op.inputs) {
        const bool is_new = !copies.contains(input.value);
        const TensorId original = input;
        input = copy(input);
        Tensor& tensor = made.graph.tensor(input);
        if (!is_new || own.contains(original) || tensor.storage != Storage::kValue) continue;
        const Op& producer = graph.ops[static_cast<size_t>(anatomy.producer[original.index()])];
        if (producer.part != Part::kForward) {
          // Of another category, or `accumulate` would take it for the first part of a parameter's gradient.
          tensor.category = Category::kActivations;
          turn.outputs.push_back(input);
        } else if (anatomy.shared[original.index()]) {
          tensor.storage = Storage::kInput;
        } else {
          enter.outputs.push_back(input);
        }
      }
      for (TensorId& output : op.outputs) output = copy(output);
      copied.push_back(std::move(op));
    }

  // What others read of what is made here.
  const std::set<size_t> chosen_backward(backward.begin(), backward.end());
  for (size_t block = first; block < first + count; ++block)
    for (size_t value = 0; value < anatomy.blocks[block].values.size(); ++value) {
      const TensorId id = anatomy.blocks[block].values[value];
      const bool inside = anatomy.blocks[block].boundary[value] && block + 1 < first + count;
      if (anatomy.blocks[block].leaving[value] && !inside) turn.inputs.push_back(copies.at(id.value));
    }
  std::set<int32_t> results;
  for (TensorId result : graph.results) results.insert(result.value);
  for (size_t op_idx : backward)
    for (TensorId output : graph.ops[op_idx].outputs)
      if (results.contains(output.value)) made.graph.results.push_back(copies.at(output.value));
  for (size_t op_idx = 0; op_idx < graph.ops.size(); ++op_idx) {
    const Op& op = graph.ops[op_idx];
    if (op.part == Part::kForward || chosen_backward.contains(op_idx)) continue;
    for (TensorId input : op.inputs) {
      const auto found = copies.find(input.value);
      if (found == copies.end() || !own.contains(input)) continue;
      const auto producer = static_cast<size_t>(anatomy.producer[input.index()]);
      if (graph.ops[producer].part == Part::kForward) continue;
      std::vector<TensorId>& out = made.graph.results;
      if (std::find(out.begin(), out.end(), found->second) == out.end()) out.push_back(found->second);
    }
  }

  made.graph.ops.push_back(std::move(enter));
  for (size_t op_idx = 0; op_idx < copied.size(); ++op_idx) {
    if (op_idx == forward.size()) made.graph.ops.push_back(turn);
    made.graph.ops.push_back(std::move(copied[op_idx]));
  }
  if (backward.empty()) made.graph.ops.push_back(turn);

  for (size_t block = first; block < first + count; ++block) {
    made.values.emplace_back();
    for (TensorId value : anatomy.blocks[block].values) made.values.back().push_back(copies.at(value.value));
  }
  if (with_source)
    for (TensorId value : anatomy.source_values) made.source_values.push_back(copies.at(value.value));
  return made;
}

}  // namespace snug::planner
