#include <cfloat>
#include <cmath>
#include <limits>

#include "backends/conformance/case_families.h"

namespace snug::conformance {
namespace {

using Kind = Values::Kind;

Values listed(std::vector<double> list) { return {.kind = Kind::kList, .list = std::move(list)}; }

}  // namespace

// There and back in blocks of 128: codes, scales and what they are read as.
OpCase fp8_case(std::string name, Shape shape, const std::string& format, DType activation, Values values) {
  const Shape scales{ceil_div(shape.elements(), int64_t{128})};
  return {std::move(name),
          {{"x", Element::kActivation, shape, std::move(values)}},
          {{.op = "fp8_encode",
            .attributes = {{"block", int64_t{128}}, {"format", format}},
            .inputs = {"x"},
            .outputs = {{"codes", Element::kByte, shape}, {"scales", Element::kStatistic, scales}},
            .tolerance_f32 = 0,
            .tolerance_bf16 = 0},
           {.op = "fp8_decode",
            .attributes = {{"block", int64_t{128}},
                           {"format", format},
                           {"out", std::string(dtype_name(activation))}},
            .inputs = {"codes", "scales"},
            .outputs = {{"y", Element::kActivation, shape}},
            .tolerance_f32 = 0,
            .tolerance_bf16 = 0}},
          {},
          {activation}};
}

void append_fp8_cases(std::vector<OpCase>& cases) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                   kNaN = std::numeric_limits<double>::quiet_NaN();
  // Halves between codes, at a scale of 1 in both formats where the largest number is in the block; and below the smallest code.
  std::vector<double> ties{448, 57344};
  for (int exponent = -18; exponent < 9; ++exponent)
    for (int sixteenths = 16; sixteenths < 32; ++sixteenths)
      ties.push_back(std::ldexp(sixteenths, exponent - 4));
  // Seven halves and their neighbours: where the scale grows, and where rounding up passes the largest number of the type.
  std::vector<double> edges{0.0, -0.0};
  for (int exponent = -149; exponent < 128; exponent += 23)
    for (double digits : {1.0, 1.5, 1.75, 1.75 + 0x1p-7, 2 - 0x1p-7})
      edges.push_back(-std::ldexp(digits, exponent));
  for (const char* format : {"e4m3", "e5m2"})
    for (const DType activation : {DType::kF32, DType::kBF16}) {
      const auto add = [&](const char* name, Shape shape, Values values) {
        cases.push_back(fp8_case(fmt::format("fp8_{}_{}_{}", name, format, dtype_name(activation)),
                                 std::move(shape), format, activation, std::move(values)));
      };
      add("one", {1}, {});
      add("ragged", {2, 7, 37}, {.scale = 3});
      add("large", {3, 129, 257}, {.scale = 1e-3});
      add("ties", {2, 217}, listed(ties));
      add("edges", {3, 641}, listed(edges));
      add("zero", {130}, listed({0.0, -0.0}));
      add("tiny", {130}, listed({0x1p-149, -0x1p-140, 0x1p-133, 0x1p-126, 0}));
      add("largest", {130}, listed({FLT_MAX, -FLT_MAX, 0x1.FEp127, 1, 0x1p120}));
      add("not_finite", {300}, listed({1.5, kInfinity, -kInfinity, kNaN, -448, 0.01, 3}));
    }
}

}  // namespace snug::conformance
