#include "backends/conformance/case_families.h"
#include "base/mlp_operands.h"

namespace snug::conformance {

OpCase mlp_case(std::string name, int64_t samples, int64_t positions, int64_t channels, int64_t features,
                const std::string& activation, const std::string& layout, bool bias, int64_t chunk) {
  constexpr Element kA = Element::kActivation, kS = Element::kStatistic;
  // Where a processor multiplies bf16, and wherever a hidden value lies between two bf16 numbers, products see another one.
  constexpr double kBf16 = 2e-2;
  const Attributes attributes{
      {"activation", activation}, {"bias", int64_t{bias}}, {"chunk", chunk}, {"weight", layout}};
  const MlpOperands operands(attributes);
  const Shape x{samples, positions, channels};
  std::vector<CaseTensor> of_mlp{{"x", kA, x}};
  for (size_t product = 0; product < operands.products(); ++product) {
    const bool is_down = product == operands.down();
    const std::string suffix = is_down ? "_down" : operands.gated && product == 0 ? "_gate" : "_up";
    const int64_t in = is_down ? features : channels, out = is_down ? channels : features;
    of_mlp.push_back({"w" + suffix, kA, layout == "oi" ? Shape{out, in} : Shape{in, out}, {.scale = 0.3}});
    if (bias) of_mlp.push_back({"bias" + suffix, kA, {out}});
  }
  OpCase result{std::move(name), of_mlp, {}};
  result.given.push_back({"d_y", kA, x});
  std::vector<std::string> forward, backward{"d_y"};
  for (const CaseTensor& tensor : of_mlp) {
    forward.push_back(tensor.name);
    backward.push_back(tensor.name);
    result.given.push_back({"into_" + tensor.name, kS, tensor.shape, {.scale = 0.1}});
  }
  const double product_flops = 2.0 * static_cast<double>(samples * positions * channels * features);
  result.calls.push_back({.op = "mlp",
                          .attributes = attributes,
                          .inputs = forward,
                          .outputs = {{"y", kA, x}},
                          .may_alias = {{0, 0}},
                          .tolerance_bf16 = kBf16,
                          .flops = product_flops * static_cast<double>(operands.products())});
  // The gradients of the operands in `gradients`, with `accumulate` of its parameters' added to what is there.
  const auto add = [&](int64_t gradients, bool accumulate, const std::string& suffix) {
    Attributes of = attributes;
    of.set("gradients", gradients);
    if (accumulate) of.set("accumulate", int64_t{1});
    const MlpOperands made(of);
    Call call{.op = "mlp_gradient", .attributes = of, .inputs = backward, .outputs = {}};
    for (size_t operand = 0; operand < of_mlp.size(); ++operand) {
      if (!made.makes(operand)) continue;
      const std::string output = "d_" + of_mlp[operand].name + suffix;
      call.outputs.push_back({output, operand == 0 ? kA : kS, of_mlp[operand].shape});
      if (!accumulate || operand == 0) continue;
      call.must_alias.push_back(
          {static_cast<int>(call.outputs.size()) - 1, static_cast<int>(call.inputs.size())});
      call.inputs.push_back("into_" + of_mlp[operand].name);
    }
    if (made.makes(0)) call.may_alias = {{0, 0}, {0, 1}};
    call.tolerance_bf16 = kBf16;
    call.flops = product_flops * static_cast<double>(made.needed_products());
    result.calls.push_back(std::move(call));
  };
  const int64_t all = (int64_t{1} << operands.count()) - 1;
  const int64_t down = int64_t{1} << operands.weight(operands.down());
  add(all, false, "");
  add(all, true, "_sum");
  add(1, false, "_alone");       // frozen parameters
  add(down, false, "_alone");    // the last product alone is trained: no gradient goes through the activation
  add(all - 1, true, "_later");  // nothing in front depends on a parameter
  if (bias) {
    add(int64_t{1} << operands.bias_of(operands.down()), false, "_alone");  // needs no product
    add(int64_t{1} << operands.bias_of(0), true, "_alone");
  }
  result.gradient = {"y", "d_y", {}};
  for (const CaseTensor& tensor : of_mlp)
    result.gradient.gradients.push_back({tensor.name, "d_" + tensor.name});
  return result;
}

void append_mlp_cases(std::vector<OpCase>& cases) {
  // One chunk, chunks without a rest, with a rest, of one row, and more rows than there are.
  cases.push_back(mlp_case("mlp_one", 1, 1, 1, 1, "gelu_tanh", "io", true, 1));
  cases.push_back(mlp_case("mlp_ragged", 2, 7, 12, 21, "gelu_tanh", "io", true, 4));
  cases.push_back(mlp_case("mlp_even", 2, 6, 12, 21, "gelu_none", "oi", true, 3));
  cases.push_back(mlp_case("mlp_whole", 1, 7, 9, 16, "gelu_tanh", "oi", false, 64));
  cases.push_back(mlp_case("mlp_large", 1, 129, 24, 40, "gelu_none", "io", false, 50));
  cases.push_back(mlp_case("mlp_gated_ragged", 2, 7, 12, 21, "swiglu", "oi", false, 5));
  cases.push_back(mlp_case("mlp_gated_narrow", 1, 5, 20, 6, "swiglu", "io", true,
                           1));  // x is wider than what lies between
  cases.push_back(mlp_case("mlp_gated_large", 1, 129, 24, 40, "swiglu", "oi", false, 64));
}

}  // namespace snug::conformance
