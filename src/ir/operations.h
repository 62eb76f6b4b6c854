// ir/operations.h — the one operation table: everything the compile side knows about an operation, in one entry
//
// docs/operations.md says in words what each operation means; this table says it to the passes: arity, shapes, which outputs
// share storage with which inputs, its gradient, and what it costs. A pass never switches on an operation's name to learn
// one of these.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/operand_type.h"
#include "ir/graph.h"

namespace snug {

// Output `output` may or must share storage with input `input`.
struct AliasRule {
  int32_t output = 0, input = 0;
  bool must = false;
};

// What a gradient rule works on. It appends backward operations to `graph` (part kBackward, block of the forward operation) and
// returns, per input of the forward operation, the tensor of its gradient (invalid where needs[i] is false or the input has none).
struct GradientRequest {
  Graph& graph;
  Op op;                                // the forward operation (a copy: appending may move the graph's own)
  std::vector<TensorId> d_outputs;      // per output; invalid where nothing flows back
  std::vector<bool> needs;              // per input: a gradient is wanted
  std::vector<TensorId> partial;        // per input: a parameter's gradient so far, to be taken as `into`; invalid if none.
                                        // Always invalid for activations (differentiate adds those with `add`).
};

struct OperationInfo {
  std::string_view kind;
  // Checks arity, attributes and operand types; returns output types. Throws UserError(kBadFile) naming operation, operand,
  // found and expected. `activation` dtype rules follow docs/operations.md.
  std::vector<OperandType> (*infer)(const Attributes&, std::span<const OperandType> inputs);
  // The alias rules that hold for these operands (depends on attributes: optional operands shift positions).
  std::vector<AliasRule> (*aliases)(const Attributes&, std::span<const OperandType> inputs);
  // Needed FLOPs (multiply and add count as two; causal attention counts half) and bytes read + written.
  double (*flops)(const Attributes&, std::span<const OperandType> inputs);
  // Appends the backward operations. nullptr: the operation has no gradient (update, load, integer inputs only).
  std::vector<TensorId> (*gradient)(GradientRequest&);
  // Replaces the fused operation by its plain decomposition, appending to `graph` the operations that define exactly the output
  // ids of `op`. nullptr: the operation is plain.
  void (*decompose)(Graph& graph, const Op& op);
  // Carried out by the host (read_tensor, write_tensor), not by a backend.
  bool by_host = false;
};

// The entry of `kind`; throws UserError(kBadFile) for an unknown operation, suggesting the nearest name.
const OperationInfo& operation(std::string_view kind);
// All entries in the order of docs/operations.md.
std::span<const OperationInfo> all_operations();

// Types of an operation's operands in `graph`.
std::vector<OperandType> operand_types(const Graph& graph, std::span<const TensorId> tensors);

// Appends an operation: infers output types, makes output tensors named after `name` (first output NAME, further NAME.1, … unless
// `output_names` says otherwise), with category kActivations (kGradients where `gradient_of_parameter`), records must-aliases.
struct AppendOptions {
  Part part = Part::kForward;
  int32_t block = -1;
  Category category = Category::kActivations;
  std::vector<std::string> output_names;
};
std::vector<TensorId> append(Graph& graph, std::string_view kind, std::string_view name, std::vector<TensorId> inputs,
                             Attributes attributes = {}, const AppendOptions& options = {});

}  // namespace snug
