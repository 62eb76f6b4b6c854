#include "backends/conformance/case_families.h"

namespace snug::conformance {
namespace {

constexpr Element kA = Element::kActivation, kS = Element::kStatistic;

}  // namespace

OpCase layer_norm_case(std::string name, int64_t samples, int64_t positions, int64_t channels) {
  const Shape x{samples, positions, channels}, rows{samples, positions}, w{channels};
  return {std::move(name),
          {{"x", kA, x, {.scale = 2}},
           {"w", kA, w},
           {"b", kA, w},
           {"d_y", kA, x},
           {"into_w", kS, w},
           {"into_b", kS, w}},
          {{.op = "layer_norm",
            .attributes = {{"eps", 1e-5}},
            .inputs = {"x", "w", "b"},
            .outputs = {{"y", kA, x}, {"mean", kS, rows}, {"rstd", kS, rows}},
            .may_alias = {{0, 0}}},
           {.op = "layer_norm_dx",
            .attributes = {},
            .inputs = {"d_y", "x", "w", "mean", "rstd"},
            .outputs = {{"d_x", kA, x}},
            .may_alias = {{0, 0}, {0, 1}}},
           {.op = "layer_norm_dweight",
            .attributes = {},
            .inputs = {"d_y", "x", "mean", "rstd"},
            .outputs = {{"d_w", kS, w}, {"d_b", kS, w}}},
           {.op = "layer_norm_dweight",
            .attributes = {{"accumulate", int64_t{1}}},
            .inputs = {"d_y", "x", "mean", "rstd", "into_w", "into_b"},
            .outputs = {{"d_w_sum", kS, w}, {"d_b_sum", kS, w}},
            .must_alias = {{0, 4}, {1, 5}}}},
          {"y", "d_y", {{"x", "d_x"}, {"w", "d_w"}, {"b", "d_b"}}}};
}

OpCase rms_norm_case(std::string name, int64_t samples, int64_t positions, int64_t channels) {
  const Shape x{samples, positions, channels}, rows{samples, positions}, w{channels};
  return {std::move(name),
          {{"x", kA, x, {.scale = 2}}, {"w", kA, w}, {"d_y", kA, x}, {"into", kS, w}},
          {{.op = "rms_norm",
            .attributes = {{"eps", 1e-6}},
            .inputs = {"x", "w"},
            .outputs = {{"y", kA, x}, {"rstd", kS, rows}},
            .may_alias = {{0, 0}},
            // an inner rounding may fall to the other side
            .tolerance_bf16 = 1.6e-2},
           {.op = "rms_norm_dx",
            .attributes = {},
            .inputs = {"d_y", "x", "w", "rstd"},
            .outputs = {{"d_x", kA, x}},
            .may_alias = {{0, 0}, {0, 1}}},
           {.op = "rms_norm_dweight",
            .attributes = {},
            .inputs = {"d_y", "x", "rstd"},
            .outputs = {{"d_w", kS, w}}},
           {.op = "rms_norm_dweight",
            .attributes = {{"accumulate", int64_t{1}}},
            .inputs = {"d_y", "x", "rstd", "into"},
            .outputs = {{"d_w_sum", kS, w}},
            .must_alias = {{0, 3}}}},
          {"y", "d_y", {{"x", "d_x"}, {"w", "d_w"}}}};
}

void append_norm_cases(std::vector<OpCase>& cases) {
  cases.push_back(layer_norm_case("layer_norm_token", 1, 1, 5));
  cases.push_back(layer_norm_case("layer_norm_ragged", 2, 7, 37));
  cases.push_back(layer_norm_case("layer_norm_large", 1, 129, 200));
  // More than 64 blocks of 32 rows.
  cases.push_back(layer_norm_case("layer_norm_blocks", 3, 700, 9));
  cases.push_back(rms_norm_case("rms_norm_token", 1, 1, 5));
  cases.push_back(rms_norm_case("rms_norm_ragged", 2, 7, 37));
  cases.push_back(rms_norm_case("rms_norm_large", 1, 129, 200));
}

}  // namespace snug::conformance
