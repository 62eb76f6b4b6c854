#include "ir/verify.h"

#include <algorithm>
#include <unordered_set>

#include "base/errors.h"
#include "ir/operand_reader.h"
#include "ir/operations.h"

namespace snug {
namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, std::string_view context) : graph_(graph), context_(context) {}

  void run() {
    check_tensors();
    check_op_names_and_ids();
    check_results();
    number_definitions_and_uses();
    for (size_t moment = 0; moment < graph_.ops.size(); ++moment) check_op(moment);
  }

 private:
  template <typename... Args>
  void expect(bool holds, fmt::format_string<Args...> format, Args&&... args) const {
    if (!holds) fail(fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void fail(const std::string& what) const {
    const std::string where = op_ == nullptr ? "" : fmt::format("operation {} ({}): ", op_->name, op_->kind);
    throw_internal("after {}: graph {}: {}{}", context_, graph_.name, where, what);
  }

  void check_tensors() {
    std::unordered_set<std::string_view> names;
    for (const Tensor& tensor : graph_.tensors) {
      expect(is_graph_name(tensor.name), "\"{}\" is not a tensor name", tensor.name);
      expect(names.insert(tensor.name).second, "two tensors are named %{}", tensor.name);
      for (int64_t dim : tensor.shape.dims())
        if (dim <= 0) fail(fmt::format("%{} has shape {}", tensor.name, to_string(tensor.shape)));
      try {
        (void)tensor.shape.bytes(tensor.dtype);
      } catch (const UserError& error) {
        fail(fmt::format("%{}: {}", tensor.name, error.what()));
      }
      expect(category_fits(tensor), "%{}: category {} does not go with storage {}", tensor.name,
             category_name(tensor.category), storage_name(tensor.storage));
      const bool is_weight =
          tensor.category == Category::kWeights || tensor.category == Category::kMasterWeights;
      expect(tensor.parameter.empty() || (tensor.storage == Storage::kState && is_weight),
             "%{}: parameter={} on {} {}", tensor.name, tensor.parameter, storage_name(tensor.storage),
             category_name(tensor.category));
      expect(!tensor.parameter.empty() || (!tensor.trainable && !tensor.decay),
             "%{}: trainable or decay without parameter=", tensor.name);
    }
  }

  static bool category_fits(const Tensor& tensor) {
    switch (tensor.storage) {
      case Storage::kState:
        return tensor.category == Category::kWeights || tensor.category == Category::kMasterWeights ||
               tensor.category == Category::kOptimizerState;
      case Storage::kInput:
        return tensor.category == Category::kData;
      case Storage::kCarried:
        return tensor.category != Category::kScratch;
      case Storage::kValue:
        return true;
    }
    return false;
  }

  void check_op_names_and_ids() {
    std::unordered_set<std::string_view> names;
    for (const Op& op : graph_.ops) {
      op_ = &op;
      expect(is_graph_name(op.name), "\"{}\" is not an operation's name", op.name);
      expect(names.insert(op.name).second, "two operations have this name");
      for (const auto* ids : {&op.inputs, &op.outputs})
        for (TensorId id : *ids)
          expect(id.valid() && id.index() < graph_.tensors.size(), "tensor number {} does not exist",
                 id.value);
    }
    op_ = nullptr;
  }

  void check_results() {
    std::unordered_set<TensorId> seen;
    for (TensorId id : graph_.results) {
      expect(id.valid() && id.index() < graph_.tensors.size(), "result number {} does not exist", id.value);
      expect(seen.insert(id).second, "%{} is twice among the results", graph_.tensor(id).name);
      expect(graph_.tensor(id).storage != Storage::kInput, "input %{} is among the results",
             graph_.tensor(id).name);
    }
    results_ = std::move(seen);
  }

  // Where each tensor is defined and last used, and the tensor whose storage it shares.
  void number_definitions_and_uses() {
    definition_.assign(graph_.tensors.size(), kNever);
    last_use_.assign(graph_.tensors.size(), kNever);
    root_.resize(graph_.tensors.size());
    for (size_t i = 0; i < root_.size(); ++i) root_[i] = TensorId(i);
    for (size_t moment = 0; moment < graph_.ops.size(); ++moment) {
      const Op& op = graph_.ops[moment];
      op_ = &op;
      for (TensorId id : op.inputs) last_use_[id.index()] = static_cast<int64_t>(moment);
      for (TensorId id : op.outputs) {
        const Tensor& tensor = graph_.tensor(id);
        expect(definition_[id.index()] == kNever, "%{} is defined twice", tensor.name);
        expect(tensor.storage == Storage::kValue ||
                   (tensor.storage == Storage::kState && op.part == Part::kLoad),
               "{} %{} is defined by an operation of part {}", storage_name(tensor.storage), tensor.name,
               part_name(op.part));
        definition_[id.index()] = static_cast<int64_t>(moment);
      }
    }
    op_ = nullptr;
    for (TensorId id : graph_.results)
      expect(graph_.tensor(id).storage != Storage::kValue || definition_[id.index()] != kNever,
             "result %{} is defined by nothing", graph_.tensor(id).name);
  }

  void check_op(size_t moment) {
    op_ = &graph_.ops[moment];
    for (TensorId id : op_->inputs) {
      const Tensor& tensor = graph_.tensor(id);
      const int64_t defined = definition_[id.index()];
      const bool from_outside = tensor.storage != Storage::kValue && defined == kNever;
      expect(from_outside || defined != kNever, "%{} is defined by nothing", tensor.name);
      expect(from_outside || defined < static_cast<int64_t>(moment), "%{} is used before its definition",
             tensor.name);
    }
    check_types();
    check_aliases(static_cast<int64_t>(moment));
  }

  // The host narrows while it reads where a plan has no f32 master, and then may give the 16 low bits too; a fill is one state:
  // f32, or a moment in bf16 or in codes.
  void check_loaded(const std::vector<OperandType>& found, bool by_host) const {
    expect(op_->part == Part::kLoad, "it defines state in part load");
    for (TensorId id : op_->outputs)
      expect(graph_.tensor(id).storage == Storage::kState, "%{} is not a state", graph_.tensor(id).name);
    const bool is_bf16 = !found.empty() && found[0].dtype == DType::kBF16, narrows = by_host && is_bf16;
    expect(found.size() == 1 || (narrows && found.size() == 2), "it defines {} states", found.size());
    expect(is_bf16 || found[0].dtype == DType::kF32 || found[0].dtype == (by_host ? DType::kF16 : DType::kU8),
           "%{} is {}, expected f32, bf16 or {}", graph_.tensor(op_->outputs[0]).name, found[0],
           by_host ? "f16" : "u8");
    if (found.size() == 1) return;
    std::vector<int64_t> halves = found[0].shape.dims();
    halves.push_back(2);
    expect(found[1] == OperandType{DType::kU8, Shape(std::move(halves))},
           "%{} is {}, expected two bytes an element", graph_.tensor(op_->outputs[1]).name, found[1]);
  }

  void check_types() {
    try {
      const OperationInfo& info = operation(op_->kind);
      std::vector<OperandType> expected = info.infer(op_->attributes, operand_types(graph_, op_->inputs));
      const std::vector<OperandType> found = operand_types(graph_, op_->outputs);
      if (info.outputs_given) {
        check_loaded(found, info.by_host);
        expected = found;
      }
      if (info.by_host)
        expect(op_->part == Part::kLoad || op_->part == Part::kSave, "the host works in load and save only");
      expect(found.size() == expected.size(), "found {} outputs, expected {}", found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i)
        expect(found[i] == expected[i], "output %{} is {}, expected {}", graph_.tensor(op_->outputs[i]).name,
               found[i], expected[i]);
    } catch (const UserError& error) {
      fail(error.what());
    }
  }

  void check_aliases(int64_t moment) {
    const std::vector<AliasRule> rules =
        operation(op_->kind).aliases(op_->attributes, operand_types(graph_, op_->inputs));
    const auto has = [&](const AliasRule& rule) {
      return std::count(op_->aliases.begin(), op_->aliases.end(), Op::Alias{rule.output, rule.input}) > 0;
    };
    for (const AliasRule& rule : rules)
      expect(!rule.must || has(rule), "output {} must share the storage of input {}", rule.output,
             rule.input);
    for (size_t i = 0; i < op_->aliases.size(); ++i) {
      const Op::Alias alias = op_->aliases[i];
      for (size_t j = 0; j < i; ++j)
        expect(op_->aliases[j].output != alias.output && op_->aliases[j].input != alias.input,
               "alias {}:{} and {}:{} share an operand", op_->aliases[j].output, op_->aliases[j].input,
               alias.output, alias.input);
      const auto rule = std::find_if(rules.begin(), rules.end(), [&](const AliasRule& r) {
        return r.output == alias.output && r.input == alias.input;
      });
      expect(rule != rules.end(), "alias {}:{} is not in the table", alias.output, alias.input);
      check_alias(alias, rule->must, moment);
    }
  }

  void check_alias(Op::Alias alias, bool must, int64_t moment) {
    const TensorId input = op_->inputs.at(static_cast<size_t>(alias.input));
    const TensorId output = op_->outputs.at(static_cast<size_t>(alias.output));
    const std::string& name = graph_.tensor(input).name;
    const std::string& output_name = graph_.tensor(output).name;
    const auto bytes = [&](TensorId id) {
      return graph_.tensor(id).shape.bytes(graph_.tensor(id).dtype).value;
    };
    expect(bytes(input) == bytes(output), "%{} and %{} share storage but have {} and {} bytes", output_name,
           name, bytes(output), bytes(input));
    expect(graph_.tensor(output).storage == Storage::kValue, "{} %{} cannot take the storage of %{}",
           storage_name(graph_.tensor(output).storage), output_name, name);
    expect(last_use_[input.index()] <= moment, "%{} gave its storage to %{} but is used later", name,
           output_name);
    expect(std::count(op_->inputs.begin(), op_->inputs.end(), input) == 1,
           "%{} gives its storage to %{} but is another operand too", name, output_name);
    const TensorId root = root_[input.index()];
    if (!must) {
      expect(graph_.tensor(root).storage == Storage::kValue, "%{} cannot take the storage of {} %{}",
             output_name, storage_name(graph_.tensor(root).storage), graph_.tensor(root).name);
      expect(!results_.contains(input), "%{} gave its storage to %{} but is a result", name, output_name);
    }
    root_[output.index()] = root;
  }

  static constexpr int64_t kNever = -1;

  const Graph& graph_;
  std::string_view context_;
  const Op* op_ = nullptr;  // being checked
  std::unordered_set<TensorId> results_;
  std::vector<int64_t> definition_, last_use_;  // moments, or kNever
  std::vector<TensorId> root_;                  // the first tensor of those that share storage
};

}  // namespace

void verify(const Graph& graph, std::string_view context) { Verifier(graph, context).run(); }

}  // namespace snug
