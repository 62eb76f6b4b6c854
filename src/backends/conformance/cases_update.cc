#include <limits>

#include "backends/conformance/case_families.h"
#include "base/errors.h"

namespace snug::conformance {
namespace {

using Kind = Values::Kind;
constexpr Element kA = Element::kActivation, kS = Element::kStatistic;

// learning rate, 1−β₁ᵗ, 1−β₂ᵗ, loss is finite
const Values kThirdStep{.kind = Kind::kList, .list = {1e-3, 0.271, 0.002997001, 1}};

OpCase sum_squares_case(std::string name, Shape shape) {
  return {std::move(name),
          {{"g", kS, shape}},
          {{.op = "sum_squares",
            .attributes = {},
            .inputs = {"g"},
            .outputs = {{"s", Element::kDouble, {1}}},
            .tolerance_f32 = 0}},
          {},
          {DType::kF32}};
}

OpCase control_case(std::string name, double limit, std::vector<double> sums, double loss_is_finite) {
  OpCase result{
      std::move(name),
      {{"hyperparameters", kS, {4}, {.kind = Kind::kList, .list = {1e-3, 0.1, 0.001, loss_is_finite}}}},
      {{.op = "update_control",
        .attributes = {{"max_grad_norm", limit}},
        .inputs = {"hyperparameters"},
        .outputs = {{"control", kS, {4}}}}},
      {},
      {DType::kF32}};
  for (size_t i = 0; i < sums.size(); ++i) {
    const std::string sum = fmt::format("s{}", i);
    result.given.push_back({sum, Element::kDouble, {1}, {.kind = Kind::kList, .list = {sums[i]}}});
    result.calls[0].inputs.push_back(sum);
  }
  return result;
}

// `before` empty: the first gate.
OpCase gate_case(std::string name, std::string after, double loss, std::vector<double> before,
                 std::vector<double> sums) {
  OpCase result{std::move(name),
                {{"loss", kS, {1}, {.kind = Kind::kList, .list = {loss}}}},
                {{.op = "update_gate",
                  .attributes = {{"after", std::move(after)}},
                  .inputs = {"loss"},
                  .outputs = {{"gate", kS, {4}}},
                  .tolerance_f32 = 0}},
                {},
                {DType::kF32}};
  if (!before.empty()) {
    result.given.push_back({"before", kS, {4}, {.kind = Kind::kList, .list = std::move(before)}});
    result.calls[0].inputs.push_back("before");
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const std::string sum = fmt::format("s{}", i);
    result.given.push_back({sum, Element::kDouble, {1}, {.kind = Kind::kList, .list = {sums[i]}}});
    result.calls[0].inputs.push_back(sum);
  }
  return result;
}

OpCase adamw_with(std::string name, Shape shape, AdamwWeight form, Values control) {
  const bool narrow = form == AdamwWeight::kNarrow, split = form == AdamwWeight::kSplit;
  const Element weight = split ? kA : kS;
  OpCase result{std::move(name),
                {{"weight", weight, shape},
                 {"m", kS, shape, {.scale = 0.1}},
                 {"v", kS, shape, {.kind = Kind::kPositive, .scale = 0.01}},
                 {"g", kS, shape},
                 {"hyperparameters", kS, {4}, kThirdStep},
                 {"control", kS, {4}, std::move(control)}},
                {{.op = "adamw",
                  .attributes = {{"beta1", 0.9},
                                 {"beta2", 0.999},
                                 {"eps", 1e-8},
                                 {"narrow", int64_t{narrow}},
                                 {"weight_decay", 0.1}},
                  .inputs = {"weight", "m", "v", "g", "hyperparameters", "control"},
                  .outputs = {{"weight_next", weight, shape},
                              {"m_next", kS, shape},
                              {"v_next", kS, shape},
                              {"moved", Element::kIndex, {1}}},
                  .must_alias = {{0, 0}, {1, 1}, {2, 2}},
                  .tolerance_bf16 = 2e-5}},
                {},
                {narrow || split ? DType::kBF16 : DType::kF32}};
  Call& call = result.calls[0];
  if (narrow) {
    result.given.push_back({"copy", kA, shape});
    call.inputs.push_back("copy");
    call.outputs.push_back({"copy_next", kA, shape});
  }
  if (split) {
    std::vector<int64_t> halves = shape.dims();
    halves.push_back(2);
    call.attributes.set("split", int64_t{1});
    result.given.push_back({"low", Element::kByte, Shape(halves), {.kind = Kind::kIndices, .bound = 256}});
    call.inputs.push_back("low");
    call.outputs.push_back({"low_next", Element::kByte, Shape(halves)});
    // A bit of the master shows in its low half, so this arithmetic is exact up to the one division, however products and sums
    // are fused: few-digit moments, rates and coefficients that are powers of two.
    call.tolerance_bf16 = 0;
    call.attributes.set("beta1", 0.5);
    call.attributes.set("beta2", 0.75);
    call.attributes.set("weight_decay", 0.0);
    const auto list = [&](size_t given, std::vector<double> values) {
      result.given[given].values = {.kind = Kind::kList, .list = std::move(values)};
    };
    list(1, {0.25, -0.5, 0.125, 0, -0.375});
    list(2, {0.5, 0.25, 1, 0.125});
    list(3, {1, -0.5, 0.25, 2, -1.5, 0, 0.75});
    list(4, {0x1p-10, 0.5, 0.4375, 1});
    if (result.given[5].values.list[1] != 0) list(5, {0.5, 1, 2.5, -1});
  }
  if (narrow || split) call.must_alias.push_back({4, 6});
  return result;
}

}  // namespace

OpCase adamw_case(std::string name, Shape shape, AdamwWeight form) {
  return adamw_with(std::move(name), std::move(shape), form,
                    {.kind = Kind::kList, .list = {0.75, 1, 2.5, -1}});
}

void append_update_cases(std::vector<OpCase>& cases) {
  cases.push_back(sum_squares_case("sum_squares_one", {1}));
  cases.push_back(sum_squares_case("sum_squares_ragged", {7, 37}));
  cases.push_back(sum_squares_case("sum_squares_block", {4096}));
  cases.push_back(sum_squares_case("sum_squares_blocks", {129, 513}));
  const double infinity = std::numeric_limits<double>::infinity();
  cases.push_back(control_case("update_control_clips", 1.0, {4.0, 5.0, 16.0}, 1));
  cases.push_back(control_case("update_control_small", 1.0, {0.01}, 1));
  cases.push_back(control_case("update_control_unlimited", 0.0, {4.0, 5.0}, 1));
  cases.push_back(control_case("update_control_overflow", 1.0, {4.0, infinity}, 1));
  cases.push_back(control_case("update_control_loss", 1.0, {4.0, 5.0}, 0));
  cases.push_back(gate_case("update_gate_first", "nothing", 2.5, {}, {4.0, 9.0}));
  cases.push_back(gate_case("update_gate_open", "gate", 2.5, {1, 1, 3, -1}, {4.0}));
  cases.push_back(gate_case("update_gate_closed", "gate", 2.5, {1, 0, 3, -1}, {4.0}));
  cases.push_back(gate_case("update_gate_overflow", "gate", 2.5, {1, 1, 3, -1}, {4.0, infinity}));
  cases.push_back(gate_case("update_gate_loss", "nothing", infinity, {}, {4.0}));
  cases.push_back(gate_case("update_gate_clips", "control", 2.5, {0.25, 1, 7.5, -1}, {}));
  cases.push_back(gate_case("update_gate_skips", "control", 2.5, {0.25, 0, 7.5, 2}, {}));
  const std::pair<AdamwWeight, std::string> kForms[] = {
      {AdamwWeight::kWhole, ""}, {AdamwWeight::kNarrow, "_narrow"}, {AdamwWeight::kSplit, "_split"}};
  for (const auto& [form, suffix] : kForms) {
    cases.push_back(adamw_case("adamw_one" + suffix, {1}, form));
    cases.push_back(adamw_case("adamw_ragged" + suffix, {7, 37}, form));
    cases.push_back(adamw_case("adamw_large" + suffix, {129, 513}, form));
    cases.push_back(
        adamw_with("adamw_skipped" + suffix, {7, 37}, form, {.kind = Kind::kList, .list = {1, 0, 2.5, 0}}));
  }
}

}  // namespace snug::conformance
