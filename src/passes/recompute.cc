#include "passes/recompute.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "ir/operations.h"
#include "passes/uses.h"

namespace snug {
namespace {

bool is_compressed(Retention retention) {
  return retention == Retention::kCompress || retention == Retention::kCompressWide;
}

// What fp8_decode makes.
bool is_activation_type(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

class Recompute {
 public:
  Recompute(Graph& graph, const Retentions& retentions)
      : graph_(graph),
        retentions_(retentions),
        producer_(producers(graph)),
        copies_(graph.tensors.size()),
        held_(graph.tensors.size()),
        clones_(graph.ops.size(), 0),
        collected_(graph.ops.size(), 0) {
    require(retentions.size() == graph.tensors.size(), "recompute: {} retentions for {} tensors",
            retentions.size(), graph.tensors.size());
    for (size_t tensor_idx = 0; tensor_idx < retentions.size(); ++tensor_idx) {
      if (retentions[tensor_idx] == Retention::kKeep) continue;
      require(producer_[tensor_idx] >= 0, "recompute: '{}' is not computed here",
              graph.tensors[tensor_idx].name);
      require(producer_op(TensorId(tensor_idx)).part == Part::kForward, "recompute: '{}' is no forward value",
              graph.tensors[tensor_idx].name);
      const DType dtype = graph.tensors[tensor_idx].dtype;
      require(!is_compressed(retentions[tensor_idx]) || is_activation_type(dtype),
              "recompute: '{}' is {} and cannot be compressed", graph.tensors[tensor_idx].name,
              dtype_name(dtype));
    }
  }

  bool run() {
    const auto reads_dropped = [&](const Op& op) {
      return op.part == Part::kBackward &&
             std::any_of(op.inputs.begin(), op.inputs.end(), [&](TensorId input) { return dropped(input); });
    };
    if (std::none_of(graph_.ops.begin(), graph_.ops.end(), reads_dropped)) return false;

    // Clones are appended to `ops_`, which becomes the graph's list at the end: producer_ keeps indexing the
    // old one.
    ops_.reserve(2 * graph_.ops.size());
    const Op* last_backward = nullptr;
    for (const Op& original : graph_.ops) {
      Op op = original;
      if (op.part == Part::kBackward) {
        if (last_backward == nullptr || last_backward->block != op.block) ++block_run_;
        last_backward = &original;
        make_available(op.inputs);
        for (TensorId& input : op.inputs)
          if (dropped(input)) input = copies_[input.index()].tensor;
      }
      ops_.push_back(std::move(op));
    }
    graph_.ops = std::move(ops_);
    insert_encodes();
    canonicalize(graph_);
    return true;
  }

 private:
  // The latest copy of a dropped or compressed value; `tensor` is invalid before the first.
  struct Copy {
    TensorId tensor;
    int32_t block_run = 0;  // in which it was made
  };
  // What is held of a compressed value; invalid until something reads it.
  struct Codes {
    TensorId codes, scales;
    int32_t block = -1, decodes = 0;
  };

  bool dropped(TensorId tensor) const { return retentions_[tensor.index()] != Retention::kKeep; }

  bool compressed(TensorId tensor) const { return is_compressed(retentions_[tensor.index()]); }

  bool available(TensorId tensor) const {
    const Copy& copy = copies_[tensor.index()];
    return copy.tensor.valid() &&
           (retentions_[tensor.index()] == Retention::kRecompute || copy.block_run == block_run_);
  }

  int32_t producer_idx(TensorId tensor) const { return producer_[tensor.index()]; }
  const Op& producer_op(TensorId tensor) const {
    return graph_.ops[static_cast<size_t>(producer_idx(tensor))];
  }

  // Clones whatever it takes that every dropped one of `wanted` has a valid copy.
  void make_available(const std::vector<TensorId>& wanted) {
    ++collection_;
    std::vector<size_t> repeated;
    std::vector<TensorId> open = wanted;
    while (!open.empty()) {
      const TensorId tensor = open.back();
      open.pop_back();
      if (!dropped(tensor) || compressed(tensor) || available(tensor)) continue;
      const auto op_idx = static_cast<size_t>(producer_idx(tensor));
      if (std::exchange(collected_[op_idx], collection_) == collection_) continue;
      repeated.push_back(op_idx);
      const std::vector<TensorId>& inputs = graph_.ops[op_idx].inputs;
      open.insert(open.end(), inputs.begin(), inputs.end());
    }
    std::sort(repeated.begin(), repeated.end());
    for (size_t op_idx : repeated) {
      decode(graph_.ops[op_idx].inputs);
      clone(op_idx);
    }
    decode(wanted);
  }

  // Decodes what is compressed among `operands` and has no valid copy.
  void decode(const std::vector<TensorId>& operands) {
    for (TensorId tensor : operands) {
      if (!compressed(tensor) || available(tensor)) continue;
      const std::string name = graph_.tensor(tensor).name;
      const DType dtype = graph_.tensor(tensor).dtype;
      Codes& held = held_[tensor.index()];
      if (!held.codes.valid()) {
        const auto add = [&](const char* suffix, const OperandType& type) {
          return graph_.add_tensor({.name = name + suffix, .dtype = type.dtype, .shape = type.shape});
        };
        const std::vector<OperandType> types =
            operation("fp8_encode").infer(attributes(tensor), operand_types(graph_, {&tensor, 1}));
        held.codes = add(".codes", types.at(0));
        held.scales = add(".scales", types.at(1));
        held.block = producer_op(tensor).block;
      }
      const int32_t times = ++held.decodes;
      const std::string suffix = times == 1 ? ".decode" : fmt::format(".decode.{}", times);
      Tensor copy = graph_.tensor(tensor);
      copy.name += suffix;
      Op op{.kind = "fp8_decode",
            .name = name + suffix,
            .inputs = {held.codes, held.scales},
            .outputs = {graph_.add_tensor(std::move(copy))},
            .attributes = attributes(tensor),
            .part = Part::kRecompute,
            .block = held.block};
      op.attributes.set("out", std::string(dtype_name(dtype)));
      copies_[tensor.index()] = {op.outputs[0], block_run_};
      ops_.push_back(std::move(op));
    }
  }

  Attributes attributes(TensorId tensor) const {
    const bool wide = retentions_[tensor.index()] == Retention::kCompressWide;
    return {{"block", kFp8Block}, {"format", wide ? "e5m2" : "e4m3"}};
  }

  // Behind each compressed value's last reader in the forward, or its producer.
  void insert_encodes() {
    std::vector<std::vector<TensorId>> behind(graph_.ops.size());
    std::vector<size_t> last(retentions_.size(), 0);
    for (size_t op_idx = 0; op_idx < graph_.ops.size(); ++op_idx) {
      if (graph_.ops[op_idx].part != Part::kForward) continue;
      for (const std::vector<TensorId>* operands : {&graph_.ops[op_idx].inputs, &graph_.ops[op_idx].outputs})
        for (TensorId tensor : *operands) last[tensor.index()] = op_idx;
    }
    for (size_t tensor_idx = 0; tensor_idx < held_.size(); ++tensor_idx)
      if (held_[tensor_idx].codes.valid()) behind[last[tensor_idx]].push_back(TensorId(tensor_idx));
    std::vector<Op> ops;
    ops.reserve(graph_.ops.size());
    for (size_t op_idx = 0; op_idx < behind.size(); ++op_idx) {
      ops.push_back(std::move(graph_.ops[op_idx]));
      for (TensorId tensor : behind[op_idx])
        ops.push_back({.kind = "fp8_encode",
                       .name = graph_.tensor(tensor).name + ".encode",
                       .inputs = {tensor},
                       .outputs = {held_[tensor.index()].codes, held_[tensor.index()].scales},
                       .attributes = attributes(tensor),
                       .block = held_[tensor.index()].block});
    }
    graph_.ops = std::move(ops);
  }

  void clone(size_t op_idx) {
    const int32_t times = ++clones_[op_idx];
    const std::string suffix = times == 1 ? ".recompute" : fmt::format(".recompute.{}", times);
    Op again = graph_.ops[op_idx];
    require(again.aliases.empty(), "recompute: '{}' already works in place", again.name);
    again.name += suffix;
    again.part = Part::kRecompute;
    for (TensorId& input : again.inputs)
      if (dropped(input)) input = copies_[input.index()].tensor;
    for (TensorId& output : again.outputs) {
      Tensor tensor = graph_.tensor(output);
      tensor.name += suffix;
      const TensorId made = graph_.add_tensor(std::move(tensor));
      // A value that is held, or whose earlier copy is still valid, is not replaced: this one dies at once.
      if (dropped(output) && !compressed(output) && !available(output))
        copies_[output.index()] = {made, block_run_};
      output = made;
    }
    ops_.push_back(std::move(again));
  }

  Graph& graph_;
  const Retentions& retentions_;
  std::vector<int32_t> producer_;
  std::vector<Copy> copies_;        // per original tensor
  std::vector<Codes> held_;         // per original tensor
  std::vector<int32_t> clones_;     // per original operation: how many so far
  std::vector<int64_t> collected_;  // per original operation: the last collection that it was part of
  int64_t collection_ = 0;          // counts calls of make_available
  int32_t block_run_ = 0;           // counts runs of backward operations of one block
  std::vector<Op> ops_;
};

}  // namespace

bool compressible(const Graph& graph, const Op& producer, size_t output) {
  const Tensor& tensor = graph.tensor(producer.outputs.at(output));
  return producer.part == Part::kForward && producer.block >= 0 && output == 0 &&
         is_activation_type(tensor.dtype) && tensor.shape.elements() >= kFp8Block;
}

bool recompute(Graph& graph, const Retentions& retentions) { return Recompute(graph, retentions).run(); }

}  // namespace snug
