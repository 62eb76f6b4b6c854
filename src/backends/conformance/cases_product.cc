#include "backends/conformance/case_families.h"

namespace snug::conformance {
namespace {

constexpr Element kA = Element::kActivation, kS = Element::kStatistic;

struct LinearShapes {
  Shape x, y, w;
};
LinearShapes linear_shapes(int64_t rows, int64_t in_features, int64_t out_features,
                           const std::string& layout) {
  return {{1, rows, in_features},
          {1, rows, out_features},
          layout == "oi" ? Shape{out_features, in_features} : Shape{in_features, out_features}};
}

OpCase linear_gelu_case(std::string name, int64_t rows, int64_t in_features, int64_t out_features,
                        const std::string& layout, bool bias, const std::string& approximate) {
  const LinearShapes s = linear_shapes(rows, in_features, out_features, layout);
  const Attributes attributes{{"approximate", approximate}, {"bias", int64_t{bias}}, {"weight", layout}};
  Call call{.op = "linear_gelu",
            .attributes = attributes,
            .inputs = {"x", "w"},
            .outputs = {{"u", kA, s.y}, {"h", kA, s.y}}};
  if (bias) call.inputs.push_back("bias");
  return {std::move(name),
          {{"x", kA, s.x}, {"w", kA, s.w, {.scale = 0.2}}, {"bias", kA, {out_features}}},
          {call}};
}

OpCase linear_add_case(std::string name, int64_t rows, int64_t in_features, int64_t out_features,
                       const std::string& layout, bool bias) {
  const LinearShapes s = linear_shapes(rows, in_features, out_features, layout);
  Call call{.op = "linear_add",
            .attributes = {{"bias", int64_t{bias}}, {"weight", layout}},
            .inputs = {"x", "w"},
            .outputs = {{"y", kA, s.y}},
            .may_alias = {{0, bias ? 3 : 2}}};
  if (bias) call.inputs.push_back("bias");
  call.inputs.push_back("r");
  return {std::move(name),
          {{"x", kA, s.x}, {"w", kA, s.w, {.scale = 0.2}}, {"bias", kA, {out_features}}, {"r", kA, s.y}},
          {call}};
}

// The head without fusion: f32 logits and an f32 gradient of them.
OpCase linear_f32_case(std::string name, int64_t rows, int64_t in_features, int64_t out_features) {
  const LinearShapes s = linear_shapes(rows, in_features, out_features, "oi");
  const Attributes layout{{"weight", "oi"}};
  return {
      std::move(name),
      {{"x", kA, s.x}, {"w", kA, s.w, {.scale = 0.2}}, {"d_y", kS, s.y}},
      {{.op = "linear",
        .attributes = {{"bias", int64_t{0}}, {"out", "f32"}, {"weight", "oi"}},
        .inputs = {"x", "w"},
        .outputs = {{"y", kS, s.y}}},
       {.op = "linear_dx", .attributes = layout, .inputs = {"d_y", "w"}, .outputs = {{"d_x", kA, s.x}}},
       {.op = "linear_dweight", .attributes = layout, .inputs = {"x", "d_y"}, .outputs = {{"d_w", kS, s.w}}}},
      {"y", "d_y", {{"x", "d_x"}, {"w", "d_w"}}}};
}

}  // namespace

OpCase linear_case(std::string name, int64_t rows, int64_t in_features, int64_t out_features,
                   const std::string& layout, bool bias) {
  const LinearShapes s = linear_shapes(rows, in_features, out_features, layout);
  const Attributes weight{{"weight", layout}}, accumulate{{"accumulate", int64_t{1}}, {"weight", layout}};
  OpCase result{
      std::move(name),
      {{"x", kA, s.x},
       {"w", kA, s.w, {.scale = 0.2}},
       {"d_y", kA, s.y},
       {"bias", kA, {out_features}},
       {"into", kS, s.w},
       {"into_bias", kS, {out_features}}},
      {{.op = "linear",
        .attributes = {{"bias", int64_t{bias}}, {"weight", layout}},
        .inputs = {"x", "w"},
        .outputs = {{"y", kA, s.y}}},
       {.op = "linear_dx", .attributes = weight, .inputs = {"d_y", "w"}, .outputs = {{"d_x", kA, s.x}}},
       {.op = "linear_dweight", .attributes = weight, .inputs = {"x", "d_y"}, .outputs = {{"d_w", kS, s.w}}},
       {.op = "linear_dweight",
        .attributes = accumulate,
        .inputs = {"x", "d_y", "into"},
        .outputs = {{"d_w_sum", kS, s.w}},
        .must_alias = {{0, 2}}}},
      {"y", "d_y", {{"x", "d_x"}, {"w", "d_w"}}}};
  for (Call& call : result.calls) call.flops = 2.0 * static_cast<double>(rows * in_features * out_features);
  if (bias) {
    result.calls[0].inputs.push_back("bias");
    result.calls.push_back({.op = "linear_dbias",
                            .attributes = {},
                            .inputs = {"d_y"},
                            .outputs = {{"d_bias", kS, {out_features}}}});
    result.calls.push_back({.op = "linear_dbias",
                            .attributes = {{"accumulate", int64_t{1}}},
                            .inputs = {"d_y", "into_bias"},
                            .outputs = {{"d_bias_sum", kS, {out_features}}},
                            .must_alias = {{0, 1}}});
    result.gradient.gradients.push_back({"bias", "d_bias"});
  }
  return result;
}

void append_product_cases(std::vector<OpCase>& cases) {
  for (const char* layout : {"oi", "io"}) {
    const std::string suffix = std::string("_") + layout;
    cases.push_back(linear_case("linear_one" + suffix, 1, 1, 1, layout, true));
    cases.push_back(linear_case("linear_ragged" + suffix, 7, 37, 29, layout, true));
    cases.push_back(linear_case("linear_no_bias" + suffix, 129, 24, 40, layout, false));
    cases.push_back(linear_gelu_case("linear_gelu" + suffix, 7, 37, 29, layout, true, "tanh"));
    cases.push_back(linear_gelu_case("linear_gelu_exact" + suffix, 129, 24, 40, layout, false, "none"));
    cases.push_back(linear_add_case("linear_add" + suffix, 7, 37, 29, layout, true));
    cases.push_back(linear_add_case("linear_add_no_bias" + suffix, 129, 24, 40, layout, false));
  }
  // More rows than one panel of 512.
  cases.push_back(linear_case("linear_panels", 700, 33, 17, "io", true));
  cases.push_back(linear_gelu_case("linear_gelu_panels", 700, 33, 17, "io", true, "tanh"));
  cases.push_back(linear_f32_case("linear_f32", 7, 37, 29));
}

}  // namespace snug::conformance
