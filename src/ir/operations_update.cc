// Update and load operations: shape rules and alias rules, in the order of docs/operations.md. None is a
// product: all cost 0 FLOPs.
#include "base/checked.h"
#include "base/errors.h"
#include "base/float16.h"
#include "ir/operand_reader.h"
#include "ir/operation_rules.h"

namespace snug {
namespace {

using Type = AttributeSpec::Type;
using Types = std::vector<OperandType>;
using Inputs = std::span<const OperandType>;
using Aliases = std::vector<AliasRule>;

constexpr AttributeSpec kControlAttributes[] = {{"max_grad_norm", Type::kReal},
                                                {"scaled", Type::kFlag, false}};
constexpr AttributeSpec kGateAttributes[] = {
    {.name = "after", .type = Type::kWord, .choices = "nothing|gate|control"}};
constexpr AttributeSpec kAdamwAttributes[] = {
    {"beta1", Type::kReal},
    {"beta2", Type::kReal},
    {"eps", Type::kReal},
    {"weight_decay", Type::kReal},
    {"narrow", Type::kFlag},
    {"split", Type::kFlag, false},
    {.name = "rounding", .type = Type::kWord, .required = false, .choices = "nearest|stochastic"},
    {"stream", Type::kInteger, false}};
constexpr AttributeSpec kNarrowAttributes[] = {{"out", Type::kWord, false, "f16"}};
constexpr AttributeSpec kWriteAttributes[] = {{"split", Type::kFlag, false}};
constexpr AttributeSpec kFillAttributes[] = {{"value", Type::kReal}};

// What the gradient of a parameter may be stored as when it is updated.
bool is_gradient(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

Types infer_sum_squares(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("sum_squares", attributes, inputs);
  const OperandType& g = reader.floating("g");
  reader.expect(is_gradient(g.dtype), "operand g: found {}, expected f32 or bf16", g);
  reader.done();
  return {{DType::kF64, {1}}};
}

Types infer_narrow_gradient(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("narrow_gradient", attributes, inputs);
  const OperandType& g = reader.floating("g");
  reader.expect(g.dtype == DType::kF32, "operand g: found {}, expected f32", g);
  reader.done();
  return {{DType::kBF16, g.shape}};
}

Types infer_update_control(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("update_control", attributes, inputs);
  const double limit = attributes.real("max_grad_norm");
  reader.expect(limit >= 0, "attribute max_grad_norm: found {}, expected a number from 0", limit);
  reader.exactly("hyperparameters", DType::kF32, {4});
  if (attributes.integer_or("scaled", 0) == 1) reader.exactly("loss_scale", DType::kF32, {1});
  do reader.exactly("s", DType::kF64, {1});
  while (reader.more());
  return {{DType::kF32, {4}}};
}

Types infer_update_gate(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("update_gate", attributes, inputs);
  reader.exactly("loss", DType::kF32, {1});
  const std::string& after = attributes.word("after");
  if (after != "nothing") reader.exactly("before", DType::kF32, {4});
  if (after != "control") do
      reader.exactly("s", DType::kF64, {1});
    while (reader.more());
  reader.done();
  return {{DType::kF32, {4}}};
}

// The 16 low bits of a split master, least significant byte first.
const OperandType& read_low(OperandReader& reader, const Shape& weight) {
  std::vector<int64_t> dims = weight.dims();
  dims.push_back(2);
  return reader.exactly("low", DType::kU8, Shape(std::move(dims)));
}

Types infer_adamw(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("adamw", attributes, inputs);
  const bool narrow = attributes.integer("narrow") == 1, split = attributes.integer_or("split", 0) == 1;
  const bool rounded = attributes.has("rounding");
  reader.expect(narrow + split + rounded <= 1,
                "attributes narrow, split and rounding: found several, expected at most one");
  const OperandType& weight = reader.floating("weight");
  const DType dtype = split || rounded ? DType::kBF16 : DType::kF32;
  reader.expect(weight.dtype == dtype, "operand weight: found {}, expected {}", weight, dtype_name(dtype));
  const DType moment_dtype = reader.more() ? inputs[1].dtype : DType::kF32;
  const bool coded = moment_dtype == DType::kU8;
  reader.expect(coded || moment_dtype == DType::kF32 || moment_dtype == DType::kBF16,
                "operand m: found {}, expected f32, bf16 or u8", dtype_name(moment_dtype));
  for (std::string_view name : {"m", "v"}) reader.exactly(name, moment_dtype, weight.shape);
  const OperandType& g = reader.floating("g");
  reader.expect(is_gradient(g.dtype) && g.shape == weight.shape,
                "operand g: found {}, expected f32 or bf16{}", g, to_string(weight.shape));
  reader.exactly("hyperparameters", DType::kF32, {4});
  reader.exactly("control", DType::kF32, {4});
  const OperandType moment{moment_dtype, weight.shape};
  Types outputs{weight, moment, moment, {DType::kI32, {1}}};
  if (narrow) {
    const OperandType& copy = reader.floating("copy");
    reader.expect(is_half(copy.dtype) && copy.shape == weight.shape,
                  "operand copy: found {}, expected bf16 or f16 in the shape of weight {}", copy, weight);
    outputs.push_back(copy);
  }
  if (split) outputs.push_back(read_low(reader, weight.shape));
  if (coded)
    for (std::string_view name : {"m_scale", "v_scale"})
      outputs.push_back(reader.exactly(name, DType::kF32, moment_scales_shape(weight.shape)));
  const bool draws =
      moment_dtype == DType::kBF16 || attributes.word_or("rounding", "nearest") == "stochastic";
  reader.expect(attributes.has("stream") == draws,
                "attribute stream: {} although {} is rounded stochastically", draws ? "not found" : "found",
                draws ? "something" : "nothing");
  if (draws) reader.exactly("randomness", DType::kU32, {4});
  reader.done();
  return outputs;
}

// weight′, m′, v′ lie where weight, m, v lie; from output 4 on, copy′ or low′ and the scales′ where input 6 and those
// after it lie.
Aliases adamw_aliases(const Attributes& attributes, Inputs inputs) {
  Aliases rules{{0, 0, true}, {1, 1, true}, {2, 2, true}};
  int32_t more = attributes.integer("narrow") == 1 || attributes.integer_or("split", 0) == 1 ? 1 : 0;
  if (inputs.size() > 1 && inputs[1].dtype == DType::kU8) more += 2;
  for (int32_t i = 0; i < more; ++i) rules.push_back({4 + i, 6 + i, true});
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
  return {{attributes.has("out") ? DType::kF16 : DType::kBF16, master.shape}};
}

Types infer_write_tensor(const Attributes& attributes, Inputs inputs) {
  OperandReader reader("write_tensor", attributes, inputs);
  const OperandType& parameter = reader.floating("parameter");
  if (attributes.integer_or("split", 0) == 1) {
    reader.expect(parameter.dtype == DType::kBF16, "operand parameter: found {}, expected bf16", parameter);
    read_low(reader, parameter.shape);
  }
  reader.done();
  return {};
}

const OperationInfo kUpdate[] = {
    {"narrow_gradient", {}, infer_narrow_gradient, no_aliases, no_flops, nullptr, nullptr},
    {"sum_squares", {}, infer_sum_squares, no_aliases, no_flops, nullptr, nullptr},
    {"update_control", kControlAttributes, infer_update_control, no_aliases, no_flops, nullptr, nullptr},
    {"update_gate", kGateAttributes, infer_update_gate, no_aliases, no_flops, nullptr, nullptr},
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
    {"narrow_weight", kNarrowAttributes, infer_narrow_weight, no_aliases, no_flops, nullptr, nullptr},
    {.kind = "write_tensor",
     .attributes = kWriteAttributes,
     .infer = infer_write_tensor,
     .aliases = no_aliases,
     .flops = no_flops,
     .gradient = nullptr,
     .decompose = nullptr,
     .by_host = true},
};

}  // namespace

std::span<const OperationInfo> update_operations() { return kUpdate; }

Shape moment_scales_shape(const Shape& shape) {
  constexpr int64_t kBlock = 256;
  return {ceil_div(shape.elements(), kBlock)};
}

}  // namespace snug
