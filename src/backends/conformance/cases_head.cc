#include "backends/conformance/case_families.h"

namespace snug::conformance {
namespace {

using Kind = Values::Kind;
constexpr Element kA = Element::kActivation, kS = Element::kStatistic;
constexpr double kLossScale = 64;

OpCase cross_entropy_case(std::string name, int64_t samples, int64_t positions, int64_t vocabulary,
                          Values targets) {
  const Shape logits{samples, positions, vocabulary};
  return {std::move(name),
          {{"logits", kS, logits, {.scale = 3}},
           {"targets", Element::kIndex, {samples, positions}, std::move(targets)},
           {"inverse_tokens", kS, {1}, {.kind = Kind::kList, .list = {0.125}}},
           {"loss_scale", kS, {1}, {.kind = Kind::kList, .list = {kLossScale}}}},
          {{.op = "cross_entropy",
            .attributes = {},
            .inputs = {"logits", "targets", "inverse_tokens"},
            .outputs = {{"loss", kS, {1}}}},
           {.op = "cross_entropy_backward",
            .attributes = {},
            .inputs = {"logits", "targets", "inverse_tokens"},
            .outputs = {{"d_logits", kS, logits}},
            .may_alias = {{0, 0}}},
           {.op = "cross_entropy_backward",
            .attributes = {{"scaled", int64_t{1}}},
            .inputs = {"logits", "targets", "inverse_tokens", "loss_scale"},
            .outputs = {{"d_logits_scaled", kS, logits}},
            .may_alias = {{0, 0}}}},
          {"loss", "", {{"logits", "d_logits"}}},
          {DType::kF32}};
}

OpCase last_logits_case(std::string name, int64_t samples, int64_t positions, int64_t channels,
                        int64_t vocabulary, double position) {
  return {std::move(name),
          {{"x", kA, {samples, positions, channels}},
           {"w", kA, {vocabulary, channels}},
           {"position", Element::kIndex, {1}, {.kind = Kind::kList, .list = {position}}}},
          {{.op = "last_logits",
            .attributes = {},
            .inputs = {"x", "w", "position"},
            .outputs = {{"logits", kS, {samples, vocabulary}}}}}};
}

}  // namespace

OpCase head_case(std::string name, int64_t samples, int64_t positions, int64_t channels, int64_t vocabulary,
                 int64_t chunk, Values targets) {
  const Shape x{samples, positions, channels}, w{vocabulary, channels};
  const std::vector<std::string> operands = {"x", "w", "targets", "inverse_tokens"};
  std::vector<std::string> accumulating = operands;
  accumulating.push_back("into");
  const Attributes both{{"chunk", chunk}, {"dweight", int64_t{1}}};
  Attributes accumulate = both;
  accumulate.set("accumulate", int64_t{1});
  Attributes scaled = accumulate;
  scaled.set("scaled", int64_t{1});
  // The gradient of the logits is rounded to bf16: two implementations may fall on two sides.
  constexpr double kBf16 = 2e-2;
  OpCase result{std::move(name),
                {{"x", kA, x},
                 {"w", kA, w, {.scale = 0.3}},
                 {"targets", Element::kIndex, {samples, positions}, std::move(targets)},
                 {"inverse_tokens",
                  kS,
                  {1},
                  {.kind = Kind::kList, .list = {1.0 / static_cast<double>(samples * positions)}}},
                 {"into", kS, w, {.scale = 0.01}},
                 {"loss_scale", kS, {1}, {.kind = Kind::kList, .list = {kLossScale}}}},
                {{.op = "head_loss",
                  .attributes = {{"chunk", chunk}},
                  .inputs = operands,
                  .outputs = {{"loss", kS, {1}}}},
                 {.op = "head_loss_gradient",
                  .attributes = both,
                  .inputs = operands,
                  .outputs = {{"loss_again", kS, {1}}, {"d_x", kA, x}, {"d_w", kS, w}},
                  .tolerance_bf16 = kBf16},
                 {.op = "head_loss_gradient",
                  .attributes = {{"chunk", chunk}, {"dweight", int64_t{0}}},
                  .inputs = operands,
                  .outputs = {{"loss_frozen", kS, {1}}, {"d_x_frozen", kA, x}},
                  .tolerance_bf16 = kBf16},
                 {.op = "head_loss_gradient",
                  .attributes = accumulate,
                  .inputs = accumulating,
                  .outputs = {{"loss_third", kS, {1}}, {"d_x_third", kA, x}, {"d_w_sum", kS, w}},
                  .must_alias = {{2, 4}},
                  .tolerance_bf16 = kBf16},
                 {.op = "head_loss_gradient",
                  .attributes = scaled,
                  .inputs = {"x", "w", "targets", "inverse_tokens", "loss_scale", "into"},
                  .outputs = {{"loss_scaled", kS, {1}}, {"d_x_scaled", kA, x}, {"d_w_scaled", kS, w}},
                  .must_alias = {{2, 5}},
                  .tolerance_bf16 = kBf16}},
                {"loss", "", {{"x", "d_x"}, {"w", "d_w"}}}};
  const double product = 2.0 * static_cast<double>(samples * positions * channels * vocabulary);
  const double products[] = {1, 3, 2, 3, 3};
  for (size_t i = 0; i < result.calls.size(); ++i) result.calls[i].flops = products[i] * product;
  return result;
}

void append_head_cases(std::vector<OpCase>& cases) {
  const Values ignored{.kind = Kind::kList, .list = {-100}};
  const auto mixed = [](int64_t vocabulary) { return Values{.kind = Kind::kTargets, .bound = vocabulary}; };
  const auto all = [](int64_t vocabulary) { return Values{.kind = Kind::kIndices, .bound = vocabulary}; };
  cases.push_back(head_case("head_token", 1, 1, 5, 3, 1, all(3)));
  cases.push_back(head_case("head_ragged", 2, 7, 24, 37, 4, mixed(37)));
  cases.push_back(head_case("head_ignored", 1, 7, 8, 11, 4, ignored));
  cases.push_back(head_case("head_large", 1, 129, 40, 301, 64, mixed(301)));
  cases.push_back(cross_entropy_case("cross_entropy_token", 1, 1, 3, all(3)));
  cases.push_back(cross_entropy_case("cross_entropy_ragged", 2, 7, 37, mixed(37)));
  cases.push_back(cross_entropy_case("cross_entropy_ignored", 1, 7, 11, ignored));
  cases.push_back(cross_entropy_case("cross_entropy_large", 1, 129, 301, mixed(301)));
  cases.push_back(last_logits_case("last_logits_first", 2, 7, 24, 37, 0));
  cases.push_back(last_logits_case("last_logits_last", 2, 7, 24, 37, 6));
  cases.push_back(last_logits_case("last_logits_token", 1, 1, 5, 3, 0));
}

}  // namespace snug::conformance
