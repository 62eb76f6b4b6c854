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

OpCase adamw_with(std::string name, Shape shape, bool narrow, Values control) {
  OpCase result{std::move(name),
                {{"weight", kS, shape},
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
                  .outputs = {{"weight_next", kS, shape},
                              {"m_next", kS, shape},
                              {"v_next", kS, shape},
                              {"moved", Element::kIndex, {1}}},
                  .must_alias = {{0, 0}, {1, 1}, {2, 2}},
                  .tolerance_bf16 = 2e-5}},
                {},
                {narrow ? DType::kBF16 : DType::kF32}};
  if (narrow) {
    result.given.push_back({"copy", kA, shape});
    Call& call = result.calls[0];
    call.inputs.push_back("copy");
    call.outputs.push_back({"copy_next", kA, shape});
    call.must_alias.push_back({4, 6});
  }
  return result;
}

}  // namespace

OpCase adamw_case(std::string name, Shape shape, bool narrow) {
  return adamw_with(std::move(name), std::move(shape), narrow,
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
  for (const bool narrow : {false, true}) {
    const std::string suffix = narrow ? "_narrow" : "";
    cases.push_back(adamw_case("adamw_one" + suffix, {1}, narrow));
    cases.push_back(adamw_case("adamw_ragged" + suffix, {7, 37}, narrow));
    cases.push_back(adamw_case("adamw_large" + suffix, {129, 513}, narrow));
    cases.push_back(
        adamw_with("adamw_skipped" + suffix, {7, 37}, narrow, {.kind = Kind::kList, .list = {1, 0, 2.5, 0}}));
  }
}

}  // namespace snug::conformance
