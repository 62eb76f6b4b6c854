// Policies as text, and what they refuse. What the pass does: passes/test/recompute.ir and execute_test.cc.
#include "passes/recompute.h"

#include <gtest/gtest.h>

#include "base/errors.h"
#include "ir/text.h"
#include "passes/differentiate.h"

namespace snug {
namespace {

using Kind = RecomputePolicy::Kind;

TEST(RecomputePolicy, HasATextForm) {
  const std::vector<std::pair<std::string, RecomputePolicy>> forms = {
      {"none", {}},
      {"block", {.kind = Kind::kBlock}},
      {"uniform:1", {.kind = Kind::kUniform}},
      {"uniform:12", {.kind = Kind::kUniform, .every = 12}},
      {"selective:norm", {.kind = Kind::kSelective, .groups = {"norm"}}},
      {"selective:attention,norm", {.kind = Kind::kSelective, .groups = {"attention", "norm"}}},
      {"compress", {.kind = Kind::kCompress}},
      {"compress:norm,mlp", {.kind = Kind::kCompress, .groups = {"norm", "mlp"}}},
      {"compress_e5m2", {.kind = Kind::kCompressWide}},
      {"compress_e5m2:attention", {.kind = Kind::kCompressWide, .groups = {"attention"}}},
      {"memory", {.kind = Kind::kMemory}},
      {"heuristic", {.kind = Kind::kHeuristic}},
      {"optimal", {.kind = Kind::kOptimal}},
  };
  for (const auto& [text, policy] : forms) {
    EXPECT_EQ(to_string(policy), text);
    EXPECT_TRUE(parse_recompute_policy(text) == policy) << text;
    EXPECT_EQ(changes_gradients(policy), std::string_view(text).starts_with("compress")) << text;
    EXPECT_EQ(needs_budget(policy), text == "memory" || text == "heuristic" || text == "optimal") << text;
  }
}

TEST(RecomputePolicy, RefusesWithWhatIsExpected) {
  const auto message = [](std::string_view text) -> std::string {
    try {
      parse_recompute_policy(text);
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return error.what();
    }
    return "not refused";
  };
  for (const std::string text : {"", "all", "Block", "block:2", "uniform", "uniform:", "uniform:x",
                                 "uniform:2x", "uniform:99999999999999999999", ":", "none:", "compress:", "compress_e3m4"})
    EXPECT_EQ(
        message(text),
        "found \"" + text +
            "\"; expected one of none, block, uniform:K (K at least 1), selective:LIST (of attention, norm, "
            "activation, mlp, projection), compress, compress:LIST, compress_e5m2, compress_e5m2:LIST, memory, "
            "heuristic, optimal");
  EXPECT_EQ(message("uniform:0"), "found uniform:0; expected uniform:K with K at least 1");
  EXPECT_EQ(message("uniform:-3"), "found uniform:-3; expected uniform:K with K at least 1");
  const std::string known = "some of attention, norm, activation, mlp, projection";
  EXPECT_EQ(message("selective"), "found selective without a group; expected selective:LIST with " + known);
  EXPECT_EQ(message("selective:"), "found selective without a group; expected selective:LIST with " + known);
  for (const std::string text : {"mlps", "", "norm "})
    EXPECT_EQ(message("selective:attention," + text),
              "found group \"" + text + "\" in selective; expected " + known + ", separated by commas");
  EXPECT_EQ(message("compress_e5m2:norms"),
            "found group \"norms\" in compress_e5m2; expected " + known + ", separated by commas");
}

// Blocks 0 and 1, each x -> gelu(x W) + x.
Graph two_blocks() {
  Graph graph = parse_graph(R"(graph micro_step
input %tokens : i32[2,3] data
input %targets : i32[2,3] data
input %inverse_tokens : f32[1] data
state %wte : f32[5,4] weights parameter=wte.weight trainable decay
state %w0 : f32[4,4] weights parameter=w0.weight trainable decay
state %w1 : f32[4,4] weights parameter=w1.weight trainable decay
%x0 : f32[2,3,4] activations = embedding(%tokens, %wte) @forward name=wte.lookup
%u0 : f32[2,3,4] activations = linear(%x0, %w0) {bias=0, weight=oi} @forward block=0 name=up0
%h0 : f32[2,3,4] activations = gelu(%u0) {approximate=tanh} @forward block=0 name=act0
%x1 : f32[2,3,4] activations = add(%x0, %h0) @forward block=0 name=sum0
%u1 : f32[2,3,4] activations = linear(%x1, %w1) {bias=0, weight=oi} @forward block=1 name=up1
%h1 : f32[2,3,4] activations = gelu(%u1) {approximate=tanh} @forward block=1 name=act1
%x2 : f32[2,3,4] activations = add(%x1, %h1) @forward block=1 name=sum1
%loss : f32[1] activations = head_loss(%x2, %wte, %targets, %inverse_tokens) {chunk=6} @forward name=head
results %loss
)",
                            "two blocks");
  differentiate(graph);
  return graph;
}

std::string dropped(const Graph& graph, std::string_view policy) {
  const Retentions chosen = retentions(graph, parse_recompute_policy(policy));
  EXPECT_EQ(chosen.size(), graph.tensors.size());
  std::string names;
  for (size_t tensor_idx = 0; tensor_idx < chosen.size(); ++tensor_idx) {
    EXPECT_NE(chosen[tensor_idx], Retention::kRecomputeEachBlock);
    if (chosen[tensor_idx] == Retention::kRecompute) names += graph.tensors[tensor_idx].name + " ";
  }
  return names;
}

TEST(RecomputePolicy, ChoosesValuesOfTheForward) {
  const Graph graph = two_blocks();
  EXPECT_EQ(dropped(graph, "none"), "");
  EXPECT_EQ(dropped(graph, "block"), "u0 h0 u1 h1 ");
  EXPECT_EQ(dropped(graph, "uniform:1"), "u0 h0 u1 h1 ");
  EXPECT_EQ(dropped(graph, "uniform:2"), "u0 h0 x1 u1 h1 ");  // x2 leaves the last block
  EXPECT_EQ(dropped(graph, "uniform:99"), "u0 h0 x1 u1 h1 ");
  EXPECT_EQ(dropped(graph, "selective:mlp"), "u0 h0 u1 h1 ");
  EXPECT_EQ(dropped(graph, "selective:activation"), "h0 h1 ");
  EXPECT_EQ(dropped(graph, "selective:projection,norm,attention"), "");
}

TEST(RecomputePolicy, RefusesWhatWasBuiltWrong) {
  const Graph graph = two_blocks();
  EXPECT_THROW(retentions(graph, {.kind = Kind::kUniform, .every = 0}), UserError);
  EXPECT_THROW(retentions(graph, {.kind = Kind::kSelective, .groups = {"mlps"}}), UserError);
  for (const Kind kind : {Kind::kMemory, Kind::kHeuristic, Kind::kOptimal})
    EXPECT_THROW(retentions(graph, {.kind = kind}), InternalError);
}

TEST(Recompute, RefusesRetentionsOfAnotherGraph) {
  Graph graph = two_blocks();
  EXPECT_THROW(recompute(graph, Retentions(graph.tensors.size() - 1, Retention::kKeep)), InternalError);
  EXPECT_TRUE(graph == two_blocks());
}

}  // namespace
}  // namespace snug
