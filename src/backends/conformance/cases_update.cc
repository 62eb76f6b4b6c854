#include <limits>

#include "backends/conformance/case_families.h"
#include "base/errors.h"

namespace snug::conformance {
namespace {

using Kind = Values::Kind;
constexpr Element kA = Element::kActivation, kS = Element::kStatistic;

// learning rate, 1−β₁ᵗ, 1−β₂ᵗ, loss is finite
const Values kThirdStep{.kind = Kind::kList, .list = {1e-3, 0.271, 0.002997001, 1}};

OpCase narrow_gradient_case(std::string name, Shape shape) {
  return {std::move(name),
          {{"g", kS, shape}},
          {{.op = "narrow_gradient",
            .attributes = {},
            .inputs = {"g"},
            .outputs = {{"narrow", kA, shape}},
            .tolerance_bf16 = 0}},
          {},
          {DType::kBF16}};
}

OpCase sum_squares_case(std::string name, Shape shape) {
  return {std::move(name),
          {{"g", kA, shape}},
          {{.op = "sum_squares",
            .attributes = {},
            .inputs = {"g"},
            .outputs = {{"s", Element::kDouble, {1}}},
            .tolerance_f32 = 0,
            .tolerance_bf16 = 0}},
          {},
          {DType::kF32, DType::kBF16}};
}

// `scale` 0: gradients are not scaled.
OpCase control_case(std::string name, double limit, std::vector<double> sums, double loss_is_finite,
                    double scale = 0) {
  OpCase result{
      std::move(name),
      {{"hyperparameters", kS, {4}, {.kind = Kind::kList, .list = {1e-3, 0.1, 0.001, loss_is_finite}}}},
      {{.op = "update_control",
        .attributes = {{"max_grad_norm", limit}},
        .inputs = {"hyperparameters"},
        .outputs = {{"control", kS, {4}}}}},
      {},
      {DType::kF32}};
  if (scale > 0) {
    result.calls[0].attributes.set("scaled", int64_t{1});
    result.given.push_back({"loss_scale", kS, {1}, {.kind = Kind::kList, .list = {scale}}});
    result.calls[0].inputs.push_back("loss_scale");
  }
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

// Where the bits of a result show what was rounded before it, the arithmetic is exact up to the one division, however products and
// sums are fused: few-digit moments, rates and coefficients that are powers of two, decays of a half where moments have many digits.
void make_exact(OpCase& op_case, AdamwMoments moments) {
  Call& call = op_case.calls[0];
  call.tolerance_f32 = call.tolerance_bf16 = 0;
  call.attributes.set("beta1", 0.5);
  call.attributes.set("beta2", moments == AdamwMoments::kCoded ? 0.5 : 0.75);
  call.attributes.set("weight_decay", 0.0);
  const auto list = [&](size_t given, std::vector<double> values) {
    op_case.given[given].values = {.kind = Kind::kList, .list = std::move(values)};
  };
  if (moments != AdamwMoments::kCoded) {
    list(1, {0.25, -0.5, 0.125, 0, -0.375});
    list(2, {0.5, 0.25, 1, 0.125});
  }
  list(3, {1, -0.5, 0.25, 2, -1.5, 0, 0.75});
  list(4, {0x1p-10, 0.5, 0.4375, 1});
  if (op_case.given[5].values.list[1] != 0) list(5, {0.5, 1, 2.5, -1});
}

OpCase adamw_with(std::string name, Shape shape, AdamwWeight form, AdamwMoments moments, Values control) {
  const bool narrow = form == AdamwWeight::kNarrow, split = form == AdamwWeight::kSplit;
  const bool alone = form == AdamwWeight::kNearest || form == AdamwWeight::kStochastic;
  const bool half = moments == AdamwMoments::kHalf, coded = moments == AdamwMoments::kCoded;
  const Element weight = split || alone ? kA : kS, moment = half ? kA : coded ? Element::kByte : kS;
  const Values codes{.kind = Kind::kIndices, .bound = 256};
  OpCase result{std::move(name),
                {{"weight", weight, shape},
                 {"m", moment, shape, coded ? codes : Values{.scale = 0.1}},
                 {"v", moment, shape, coded ? codes : Values{.kind = Kind::kPositive, .scale = 0.01}},
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
                              {"m_next", moment, shape},
                              {"v_next", moment, shape},
                              {"moved", Element::kIndex, {1}}},
                  .must_alias = {{0, 0}, {1, 1}, {2, 2}},
                  .tolerance_bf16 = 2e-5}},
                {},
                narrow && !half                    ? std::vector{DType::kBF16, DType::kF16}
                : narrow || split || alone || half ? std::vector{DType::kBF16}
                                                   : std::vector{DType::kF32}};
  Call& call = result.calls[0];
  const auto add_changed = [&](const std::string& state, Element element, const Shape& of, Values values) {
    call.must_alias.push_back({static_cast<int>(call.outputs.size()), static_cast<int>(call.inputs.size())});
    result.given.push_back({state, element, of, std::move(values)});
    call.inputs.push_back(state);
    call.outputs.push_back({state + "_next", element, of});
  };
  if (narrow) add_changed("copy", kA, shape, {});
  if (split) {
    std::vector<int64_t> halves = shape.dims();
    halves.push_back(2);
    call.attributes.set("split", int64_t{1});
    add_changed("low", Element::kByte, Shape(halves), codes);
  }
  if (alone)
    call.attributes.set("rounding", std::string(form == AdamwWeight::kNearest ? "nearest" : "stochastic"));
  if (coded) {
    const Shape blocks{(shape.elements() + 255) / 256};
    for (const char* scales : {"m_scale", "v_scale"})
      add_changed(scales, kS, blocks, {.kind = Kind::kList, .list = {0.5, 2, 0, 0.0625}});
  }
  if (half || form == AdamwWeight::kStochastic) {
    call.attributes.set("stream", int64_t{0x0123456789ABCDEF});
    result.given.push_back({"randomness", Element::kWord, {4}, {.kind = Kind::kRandomBits}});
    call.inputs.push_back("randomness");
  }
  if (split || alone || half || coded) make_exact(result, moments);
  return result;
}

}  // namespace

OpCase adamw_case(std::string name, Shape shape, AdamwWeight weight, AdamwMoments moments) {
  return adamw_with(std::move(name), std::move(shape), weight, moments,
                    {.kind = Kind::kList, .list = {0.75, 1, 2.5, -1}});
}

void append_update_cases(std::vector<OpCase>& cases) {
  cases.push_back(narrow_gradient_case("narrow_gradient_one", {1}));
  cases.push_back(narrow_gradient_case("narrow_gradient_large", {129, 257}));
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
  cases.push_back(control_case("update_control_scaled", 1.0, {4e6, 5e6}, 1, 1024));
  cases.push_back(control_case("update_control_scaled_overflow", 0.0, {4e6, infinity}, 1, 1024));
  cases.push_back(gate_case("update_gate_first", "nothing", 2.5, {}, {4.0, 9.0}));
  cases.push_back(gate_case("update_gate_open", "gate", 2.5, {1, 1, 3, -1}, {4.0}));
  cases.push_back(gate_case("update_gate_closed", "gate", 2.5, {1, 0, 3, -1}, {4.0}));
  cases.push_back(gate_case("update_gate_overflow", "gate", 2.5, {1, 1, 3, -1}, {4.0, infinity}));
  cases.push_back(gate_case("update_gate_loss", "nothing", infinity, {}, {4.0}));
  cases.push_back(gate_case("update_gate_clips", "control", 2.5, {0.25, 1, 7.5, -1}, {}));
  cases.push_back(gate_case("update_gate_skips", "control", 2.5, {0.25, 0, 7.5, 2}, {}));
  const std::pair<AdamwWeight, std::string> kWeights[] = {{AdamwWeight::kWhole, ""},
                                                          {AdamwWeight::kNarrow, "_narrow"},
                                                          {AdamwWeight::kSplit, "_split"},
                                                          {AdamwWeight::kNearest, "_nearest"},
                                                          {AdamwWeight::kStochastic, "_stochastic"}};
  const std::pair<AdamwMoments, std::string> kMoments[] = {
      {AdamwMoments::kWhole, ""}, {AdamwMoments::kHalf, "_half"}, {AdamwMoments::kCoded, "_coded"}};
  // Gradients in bf16.
  for (const AdamwMoments moments : {AdamwMoments::kWhole, AdamwMoments::kHalf}) {
    OpCase narrow = adamw_case(
        moments == AdamwMoments::kWhole ? "adamw_split_narrow_gradient" : "adamw_split_half_narrow_gradient",
        {7, 37}, AdamwWeight::kSplit, moments);
    narrow.given[3].element = kA;
    cases.push_back(std::move(narrow));
  }
  for (const auto& [weight, weight_suffix] : kWeights)
    for (const auto& [moments, moments_suffix] : kMoments) {
      const std::string suffix = weight_suffix + moments_suffix;
      cases.push_back(adamw_case("adamw_one" + suffix, {1}, weight, moments));
      cases.push_back(adamw_case("adamw_ragged" + suffix, {7, 37}, weight, moments));
      cases.push_back(adamw_case("adamw_large" + suffix, {129, 513}, weight, moments));
      cases.push_back(adamw_with("adamw_skipped" + suffix, {7, 37}, weight, moments,
                                 {.kind = Kind::kList, .list = {1, 0, 2.5, 0}}));
    }
}

}  // namespace snug::conformance
