// ir/operation_rules.h — the pieces of the operation table (ir/operations.cc puts them together)
//
// One list a kind of operation, in the order of docs/operations.md; gradient rules and decompositions are
// functions that the forward list refers to.
#pragma once

#include <span>
#include <vector>

#include "ir/operand_reader.h"
#include "ir/operations.h"

namespace snug {

std::span<const OperationInfo> forward_operations();
std::span<const OperationInfo> backward_operations();
std::span<const OperationInfo> update_operations();  // update and load

// Gradient rules (ir/gradients.cc): the contract is GradientRequest's.
std::vector<TensorId> gradient_of_embedding(GradientRequest& request);
std::vector<TensorId> gradient_of_add(GradientRequest& request);
std::vector<TensorId> gradient_of_linear(GradientRequest& request);
std::vector<TensorId> gradient_of_linear_gelu(GradientRequest& request);
std::vector<TensorId> gradient_of_linear_add(GradientRequest& request);
std::vector<TensorId> gradient_of_layer_norm(GradientRequest& request);
std::vector<TensorId> gradient_of_rms_norm(GradientRequest& request);
std::vector<TensorId> gradient_of_rotary(GradientRequest& request);
std::vector<TensorId> gradient_of_attention(GradientRequest& request);
std::vector<TensorId> gradient_of_attention_qkv(GradientRequest& request);
std::vector<TensorId> gradient_of_gelu(GradientRequest& request);
std::vector<TensorId> gradient_of_swiglu(GradientRequest& request);
std::vector<TensorId> gradient_of_mlp(GradientRequest& request);
std::vector<TensorId> gradient_of_dropout(GradientRequest& request);
std::vector<TensorId> gradient_of_head_loss(GradientRequest& request);
std::vector<TensorId> gradient_of_cross_entropy(GradientRequest& request);

// Decompositions (ir/decompose.cc): the contract is OperationInfo::decompose's.
void decompose_linear_gelu(Graph& graph, const Op& op);
void decompose_linear_add(Graph& graph, const Op& op);
void decompose_mlp(Graph& graph, const Op& op);
void decompose_mlp_gradient(Graph& graph, const Op& op);
void decompose_head_loss(Graph& graph, const Op& op);
void decompose_head_loss_gradient(Graph& graph, const Op& op);

// Shape rules that more than one file needs.
std::vector<AliasRule> no_aliases(const Attributes& attributes, std::span<const OperandType> inputs);
double no_flops(const Attributes& attributes, std::span<const OperandType> inputs);
// Reads x and the products of an MLP; the types of all its operands (base/mlp_operands.h) and of y.
struct MlpTypes {
  std::vector<OperandType> operands;
  OperandType y;
};
MlpTypes read_mlp(OperandReader& reader, const Attributes& attributes);
// FLOPs of causal attention's two products forward: 2 B T² (heads · head_dim), the half below the diagonal of
// 4 B T² H D.
double attention_flops(int64_t batch, int64_t length, int64_t width);

}  // namespace snug
