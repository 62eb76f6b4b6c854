#include <fmt/format.h>

#include "backends/conformance/case_families.h"

namespace snug::conformance {
namespace {

using Kind = Values::Kind;
constexpr Element kA = Element::kActivation, kS = Element::kStatistic;

// Any whole 64-bit value will do; the real ones are hashes.
constexpr int64_t kStream = -6510615555426900571;

CaseTensor randomness(int64_t samples) {
  return {"randomness", Element::kWord, {samples, 4}, {.kind = Kind::kRandomBits}};
}

OpCase fill_case(std::string name, Shape shape, double value) {
  return {std::move(name), {}, {{"fill", {{"value", value}}, {}, {{"y", kA, shape}}}}};
}

// Codes of moments.
OpCase fill_bytes_case(std::string name, Shape shape, double value) {
  return {std::move(name),
          {},
          {{"fill", {{"value", value}}, {}, {{"y", Element::kByte, shape}}}},
          {},
          {DType::kF32}};
}

OpCase narrow_case(std::string name, Shape shape, DType type) {
  return {std::move(name),
          {{"master", kS, shape}},
          {{.op = "narrow_weight",
            .attributes = type == DType::kF16 ? Attributes{{"out", "f16"}} : Attributes(),
            .inputs = {"master"},
            .outputs = {{"w", kA, shape}},
            .tolerance_f32 = 0,
            .tolerance_bf16 = 0}},
          {},
          {type}};
}

}  // namespace

OpCase add_case(std::string name, Shape shape) {
  return {std::move(name),
          {{"a", kA, shape}, {"b", kA, shape}, {"d_y", kA, shape}},
          {{.op = "add",
            .attributes = {},
            .inputs = {"a", "b"},
            .outputs = {{"y", kA, shape}},
            .may_alias = {{0, 0}, {0, 1}}}}};
}

OpCase gelu_case(std::string name, Shape shape, const std::string& approximate) {
  const Attributes attributes{{"approximate", approximate}};
  return {std::move(name),
          {{"u", kA, shape, {.scale = 3}}, {"d_h", kA, shape}},
          {{.op = "gelu",
            .attributes = attributes,
            .inputs = {"u"},
            .outputs = {{"h", kA, shape}},
            .may_alias = {{0, 0}}},
           {.op = "gelu_backward",
            .attributes = attributes,
            .inputs = {"d_h", "u"},
            .outputs = {{"d_u", kA, shape}},
            .may_alias = {{0, 0}, {0, 1}}}},
          {"h", "d_h", {{"u", "d_u"}}}};
}

OpCase swiglu_case(std::string name, Shape shape) {
  return {std::move(name),
          {{"gate", kA, shape, {.scale = 3}}, {"up", kA, shape}, {"d_h", kA, shape}},
          {{.op = "swiglu",
            .attributes = {},
            .inputs = {"gate", "up"},
            .outputs = {{"h", kA, shape}},
            .may_alias = {{0, 0}, {0, 1}}},
           {.op = "swiglu_backward",
            .attributes = {},
            .inputs = {"d_h", "gate", "up"},
            .outputs = {{"d_gate", kA, shape}, {"d_up", kA, shape}},
            .may_alias = {{0, 0}, {0, 1}, {1, 2}}}},
          {"h", "d_h", {{"gate", "d_gate"}, {"up", "d_up"}}}};
}

OpCase dropout_case(std::string name, Shape shape) {
  const Attributes attributes{{"probability", 0.25}, {"stream", kStream}};
  return {std::move(name),
          {{"x", kA, shape}, randomness(shape.dim(0)), {"d_y", kA, shape}},
          {{.op = "dropout",
            .attributes = attributes,
            .inputs = {"x", "randomness"},
            .outputs = {{"y", kA, shape}},
            .may_alias = {{0, 0}}},
           {.op = "dropout",
            .attributes = attributes,
            .inputs = {"d_y", "randomness"},
            .outputs = {{"d_x", kA, shape}},
            .may_alias = {{0, 0}}}},
          {"y", "d_y", {{"x", "d_x"}}}};
}

OpCase rotary_case(std::string name, int64_t samples, int64_t positions, int64_t heads, int64_t head_dim,
                   Attributes table) {
  const Shape x{samples, positions, heads * head_dim}, pairs{samples, positions, head_dim / 2};
  Attributes forward{{"heads", heads}, {"inverse", int64_t{0}}},
      backward{{"heads", heads}, {"inverse", int64_t{1}}};
  return {std::move(name),
          {{"positions", Element::kIndex, {samples, positions}, {.kind = Kind::kPositions, .list = {0, 3}}},
           {"x", kA, x},
           {"d_y", kA, x},
           {"cos_given", kS, pairs},
           {"sin_given", kS, pairs}},
          {{.op = "rotary",
            .attributes = forward,
            .inputs = {"x", "cos_given", "sin_given"},
            .outputs = {{"y", kA, x}},
            .may_alias = {{0, 0}}},
           {.op = "rotary",
            .attributes = backward,
            .inputs = {"d_y", "cos_given", "sin_given"},
            .outputs = {{"d_x", kA, x}},
            .may_alias = {{0, 0}}},
           {.op = "rotary_table",
            .attributes = std::move(table),
            .inputs = {"positions"},
            .outputs = {{"cos", kS, pairs}, {"sin", kS, pairs}}},
           {.op = "rotary", .attributes = forward, .inputs = {"x", "cos", "sin"}, .outputs = {{"z", kA, x}}}},
          {"y", "d_y", {{"x", "d_x"}}}};
}

OpCase embedding_case(std::string name, int64_t samples, int64_t positions, int64_t rows, int64_t channels) {
  const Shape y{samples, positions, channels}, table{rows, channels};
  return {std::move(name),
          {{"indices", Element::kIndex, {samples, positions}, {.kind = Kind::kIndices, .bound = rows}},
           {"table", kA, table},
           {"d_y", kA, y},
           {"into", kS, table}},
          {{.op = "embedding",
            .attributes = {},
            .inputs = {"indices", "table"},
            .outputs = {{"y", kA, y}},
            .tolerance_f32 = 0,
            .tolerance_bf16 = 0},
           {.op = "embedding_dtable",
            .attributes = {{"rows", rows}},
            .inputs = {"indices", "d_y"},
            .outputs = {{"d_table", kS, table}}},
           {.op = "embedding_dtable",
            .attributes = {{"accumulate", int64_t{1}}, {"rows", rows}},
            .inputs = {"indices", "d_y", "into"},
            .outputs = {{"d_table_sum", kS, table}},
            .must_alias = {{0, 2}}}},
          {"y", "d_y", {{"table", "d_table"}}}};
}

void append_elementwise_cases(std::vector<OpCase>& cases) {
  cases.push_back(add_case("add_one", {1, 1, 1}));
  cases.push_back(add_case("add_ragged", {2, 7, 129}));
  // Enough elements for several threads.
  cases.push_back(add_case("add_large", {3, 129, 131}));
  for (const char* approximate : {"tanh", "none"}) {
    cases.push_back(gelu_case(std::string("gelu_") + approximate, {2, 7, 37}, approximate));
    cases.push_back(gelu_case(std::string("gelu_large_") + approximate, {3, 129, 131}, approximate));
  }
  cases.push_back(swiglu_case("swiglu_one", {1, 1, 1}));
  cases.push_back(swiglu_case("swiglu_ragged", {2, 7, 37}));
  cases.push_back(swiglu_case("swiglu_large", {3, 129, 131}));
  cases.push_back(dropout_case("dropout_one", {1, 1, 1}));
  cases.push_back(dropout_case("dropout_ragged", {2, 7, 37}));
  cases.push_back(dropout_case("dropout_large", {2, 257, 131}));
  const int64_t head_dim = 10;
  const Attributes base{{"head_dim", head_dim}, {"theta", 10000.0}, {"type", "default"}};
  const auto with = [&](Attributes changed, const std::vector<std::pair<std::string, Attributes::Value>>& entries) {
    for (const auto& [key, value] : entries) changed.set(key, value);
    return changed;
  };
  const Attributes llama3 = with(base, {{"type", "llama3"},
                                        {"factor", 8.0},
                                        {"low_freq_factor", 1.0},
                                        {"high_freq_factor", 4.0},
                                        {"original_max_position_embeddings", int64_t{64}}});
  const Attributes yarn = with(base, {{"type", "yarn"},
                                      {"factor", 4.0},
                                      {"beta_fast", 32.0},
                                      {"beta_slow", 1.0},
                                      {"original_max_position_embeddings", int64_t{32}},
                                      {"truncate", int64_t{1}}});
  cases.push_back(rotary_case("rotary_default", 2, 7, 3, head_dim, base));
  cases.push_back(
      rotary_case("rotary_linear", 2, 7, 3, head_dim, with(base, {{"type", "linear"}, {"factor", 4.0}})));
  cases.push_back(rotary_case("rotary_llama3", 2, 7, 3, head_dim, llama3));
  cases.push_back(rotary_case("rotary_yarn", 2, 7, 3, head_dim, yarn));
  cases.push_back(rotary_case("rotary_yarn_given_factor", 1, 1, 1, head_dim,
                              with(yarn, {{"attention_factor", 1.25}, {"truncate", int64_t{0}}})));
  cases.push_back(rotary_case("rotary_large", 1, 129, 2, 64, with(base, {{"head_dim", int64_t{64}}})));
  cases.push_back(embedding_case("embedding_one", 1, 1, 1, 1));
  cases.push_back(embedding_case("embedding_ragged", 2, 7, 11, 37));
  cases.push_back(embedding_case("embedding_large", 1, 129, 50, 200));
  cases.push_back(fill_case("fill_zero", {3, 5}, 0.0));
  cases.push_back(fill_case("fill_value", {129, 257}, -0.7));
  cases.push_back(fill_bytes_case("fill_bytes_zero", {129, 257}, 0.0));
  cases.push_back(fill_bytes_case("fill_bytes_value", {3, 5}, 7.0));
  for (const DType type : {DType::kBF16, DType::kF16}) {
    cases.push_back(narrow_case(fmt::format("narrow_weight_{}_one", dtype_name(type)), {1}, type));
    cases.push_back(narrow_case(fmt::format("narrow_weight_{}_large", dtype_name(type)), {129, 257}, type));
  }
}

}  // namespace snug::conformance
