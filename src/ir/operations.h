// ir/operations.h — the one operation table: all that the compile side knows about an operation, in one entry
//
// docs/operations.md says in words what each operation means; this table says it to the passes: arity,
// shapes, which outputs share storage with which inputs, its gradient, and what it costs. A pass never
// switches on an operation's name to learn one of these.
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

// What a gradient rule works on. d of an operation that makes the loss (head_loss, cross_entropy) is 1 and no
// tensor: d_outputs is then invalid, and such an operation must be the last. A rule appends backward
// operations to `graph` (part kBackward, block of the forward operation) and returns, per input of the
// forward operation, the tensor of its gradient (invalid where needs[i] is false or the input has none).
struct GradientRequest {
  Graph& graph;
  Op op;                            // the forward operation (a copy: appending may move the graph's own)
  std::vector<TensorId> d_outputs;  // per output; invalid where nothing flows back
  std::vector<bool> needs;          // per input: a gradient is wanted
  // Per input: a parameter's gradient so far, to be taken as `into`; invalid if none. Always invalid for
  // activations (differentiate adds those with `add`).
  std::vector<TensorId> partial;
  // Set by a rule whose backward operation makes the forward's outputs as well, under the same ids
  // (head_loss_gradient makes the loss): the caller then removes the forward operation.
  bool replaces_forward = false;
};

// What one attribute may be. A word is one of `choices` (separated by '|'); a flag is 0 or 1.
struct AttributeSpec {
  enum class Type : uint8_t { kInteger, kReal, kFlag, kWord };
  std::string_view name;
  Type type = Type::kInteger;
  bool required = true;
  std::string_view choices = {};
};

struct OperationInfo {
  std::string_view kind;
  // Every attribute it may carry. Conditions between attributes ("stream if dropout > 0") are checked by
  // `infer`.
  std::span<const AttributeSpec> attributes;
  // Checks arity, attributes and operand types; returns output types. Throws UserError(kBadFile) naming
  // operation, operand, found and expected. `activation` dtype rules follow docs/operations.md. An operation
  // with `outputs_given` returns no types.
  std::vector<OperandType> (*infer)(const Attributes&, std::span<const OperandType> inputs);
  // The alias rules that hold for these operands (depends on attributes: optional operands shift positions).
  std::vector<AliasRule> (*aliases)(const Attributes&, std::span<const OperandType> inputs);
  // Needed FLOPs of products: multiply and add count as two, causal attention counts half of its products
  // forward and twice that backward (recomputing scores is not needed work). Work outside products is bound
  // by its bytes, the operands', and counts 0.
  double (*flops)(const Attributes&, std::span<const OperandType> inputs);
  // Appends the backward operations. nullptr: the operation has no gradient (update, load, integer inputs
  // only).
  std::vector<TensorId> (*gradient)(GradientRequest&);
  // Replaces the fused operation by its plain decomposition, appending to `graph` the operations that define
  // exactly the output ids of `op` (not an element of graph.ops: appending moves those). nullptr: the
  // operation is plain.
  void (*decompose)(Graph& graph, const Op& op);
  // Carried out by the host (read_tensor, write_tensor), not by a backend.
  bool by_host = false;
  // The operands do not tell the outputs' types (read_tensor, fill): `infer` gives none; the operation
  // defines existing tensors.
  bool outputs_given = false;
  // FLOPs of the forward's products that it makes again because nothing of them was saved: on top of the needed ones. nullptr: none.
  double (*repeated_flops)(const Attributes&, std::span<const OperandType> inputs) = nullptr;
};

// The entry of `kind`; throws UserError(kBadFile) for an unknown operation, suggesting the nearest name.
const OperationInfo& operation(std::string_view kind);
// All entries in the order of docs/operations.md.
std::span<const OperationInfo> all_operations();

// What is wrong with the attributes alone: an unknown one, one missing, one of the wrong type. Throws like
// `infer`, which calls it.
void check_attributes(const OperationInfo& info, const Attributes& attributes);

// Shape of the scales of 8-bit moments: one for every block of 256 elements of a tensor of `shape`, in index order.
Shape moment_scales_shape(const Shape& shape);

// Types of an operation's operands in `graph`.
std::vector<OperandType> operand_types(const Graph& graph, std::span<const TensorId> tensors);

// Appends an operation: checks it and makes its output tensors, named after `name` (first output NAME,
// further NAME.1, … unless `output_names` says otherwise; a taken name gets a number), or defines
// `existing_outputs` where given (an invalid one is made; a type that differs from the inferred one is an
// InternalError). An output that must share an input's storage gets the input's category. Errors name the
// operation.
struct AppendOptions {
  Part part = Part::kForward;
  int32_t block = -1;
  Category category = Category::kActivations;
  std::vector<std::string> output_names = {};
  std::vector<TensorId> existing_outputs = {};
};
std::vector<TensorId> append(Graph& graph, std::string_view kind, std::string_view name,
                             std::vector<TensorId> inputs, Attributes attributes = {},
                             const AppendOptions& options = {});

}  // namespace snug
