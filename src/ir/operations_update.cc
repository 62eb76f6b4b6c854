// Update and load operations: shape rules and alias rules, in the order of docs/operations.md. None is a
// product: all cost 0 FLOPs.
#include "base/errors.h"
#include "ir/operand_reader.h"
#include "ir/operation_rules.h"

namespace snug {
namespace {

using Type = AttributeSpec::Type;
using Types = std::vector<OperandType>;
using Inputs = std::span<const OperandType>;
using Aliases = std::vector<AliasRule>;

constexpr AttributeSpec kControlAttributes[] = {{"max_grad_norm", Type::kReal}};
constexpr AttributeSpec kAdamwAttributes[] = {{"beta1", Type::kReal},
                                              {"beta2", Type::kReal},
                                              {"eps", Type::kReal},
                                              {"weight_decay", Type::kReal},
                                              {"narrow", Type::kFlag}};
constexpr AttributeSpec kFillAttributes[] = {{"value", Type::kReal}};

Types infer_sum_squares(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("sum_squares", attributes, inputs);
  const OperandType& g = reader.floating("g");
  reader.expect(g.dtype == DType::kF32, "operand g: found {}, expected f32", g);
  reader.done();
  return {{DType::kF64, {1}}};
}

Types infer_update_control(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("update_control", attributes, inputs);
  const double limit = attributes.real("max_grad_norm");
  reader.expect(limit >= 0, "attribute max_grad_norm: found {}, expected a number from 0", limit);
  reader.exactly("hyperparameters", DType::kF32, {4});
  do reader.exactly("s", DType::kF64, {1});
  while (reader.more());
  return {{DType::kF32, {4}}};
}

Types infer_adamw(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("adamw", attributes, inputs);
  const OperandType& weight = reader.floating("weight");
  reader.expect(weight.dtype == DType::kF32, "operand weight: found {}, expected f32", weight);
  for (std::string_view name : {"m", "v", "g"}) reader.exactly(name, DType::kF32, weight.shape);
  reader.exactly("hyperparameters", DType::kF32, {4});
  reader.exactly("control", DType::kF32, {4});
  Types outputs{weight, weight, weight, {DType::kI32, {1}}};
  if (attributes.integer("narrow") == 1)
    outputs.push_back(reader.exactly("copy", DType::kBF16, weight.shape));
  reader.done();
  return outputs;
}

// weight′, m′, v′ lie where weight, m, v lie; copy′ (output 4) where copy (input 6) lies.
Aliases adamw_aliases(const Attributes& attributes, Inputs) {
  Aliases rules{{0, 0, true}, {1, 1, true}, {2, 2, true}};
  if (attributes.integer("narrow") == 1) rules.push_back({4, 6, true});
  return rules;
}

Types infer_read_tensor(const Attributes& attributes, Inputs inputs) {
  OperandReader("read_tensor", attributes, inputs).done();
  return {};
}

Types infer_fill(const Attributes& attributes, Inputs inputs) {
  OperandReader("fill", attributes, inputs).done();
  return {};
}

Types infer_narrow_weight(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("narrow_weight", attributes, inputs);
  const OperandType& master = reader.floating("master");
  reader.expect(master.dtype == DType::kF32, "operand master: found {}, expected f32", master);
  reader.done();
  return {{DType::kBF16, master.shape}};
}

Types infer_write_tensor(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("write_tensor", attributes, inputs);
  reader.floating("parameter");
  reader.done();
  return {};
}

const OperationInfo kUpdate[] = {
    {"sum_squares", {}, infer_sum_squares, no_aliases, no_flops, nullptr, nullptr},
    {"update_control", kControlAttributes, infer_update_control, no_aliases, no_flops, nullptr, nullptr},
    {"adamw", kAdamwAttributes, infer_adamw, adamw_aliases, no_flops, nullptr, nullptr},
    {.kind = "read_tensor",
     .attributes = {},
     .infer = infer_read_tensor,
     .aliases = no_aliases,
     .flops = no_flops,
     .gradient = nullptr,
     .decompose = nullptr,
     .by_host = true,
     .outputs_given = true},
    {.kind = "fill",
     .attributes = kFillAttributes,
     .infer = infer_fill,
     .aliases = no_aliases,
     .flops = no_flops,
     .gradient = nullptr,
     .decompose = nullptr,
     .outputs_given = true},
    {"narrow_weight", {}, infer_narrow_weight, no_aliases, no_flops, nullptr, nullptr},
    {.kind = "write_tensor",
     .attributes = {},
     .infer = infer_write_tensor,
     .aliases = no_aliases,
     .flops = no_flops,
     .gradient = nullptr,
     .decompose = nullptr,
     .by_host = true},
};

}  // namespace

std::span<const OperationInfo> update_operations() { return kUpdate; }

}  // namespace snug
