#include "planner/price.h"

#include <gtest/gtest.h>

#include "planner/example_test.h"

namespace snug::planner {
namespace {

// Both count the same bytes at the same moments; inputs, which the sweep holds to the end, are a few hundred.
TEST(Sweep, AgreesWithLiveness) {
  for (bool accumulates : {false, true})
    for (const char* policy : {"none", "block", "uniform:2"}) {
      const Graph graph = micro_step(llama_example(3, 64), 2, 32);
      Graph made = graph;
      const Retentions chosen = retentions(graph, parse_recompute_policy(policy));
      recompute(made, chosen);
      finish(accumulates)(made);
      const DescribedTarget target;
      OpPrices prices(target);
      const Sweep swept = sweep(made, prices);
      const Bytes peak = *std::max_element(swept.held.begin(), swept.held.end()) + swept.always;
      const Bytes truth = true_peak(graph, chosen, finish(accumulates));
      EXPECT_GE(peak, truth) << policy;
      EXPECT_LE(peak, truth + Bytes(2048)) << policy;
    }
}

TEST(Price, SavedBytesAreThoseOfThePolicy) {
  const Graph graph = micro_step(gpt2_example(3, 32), 2, 16);
  const Anatomy found = anatomy(graph);
  const Slice one = slice(graph, found, 1, 1, false);
  const DescribedTarget target;
  OpPrices prices(target);
  const Finish passes = finish();
  Retentions keep(one.graph.tensors.size(), Retention::kKeep);
  Retentions drop = keep;
  for (TensorId value : one.values[0])
    if (one.graph.tensor(value).name != "h.1.mlp.residual") drop[value.index()] = Retention::kRecompute;

  const int64_t rows = 2 * 16, activation = rows * 32 * 4;
  const SlicePrice nothing = price(one, drop, passes, prices);
  EXPECT_EQ(nothing.saved, Bytes(activation));  // the input
  // Input, ln_1, qkv (3), attention, middle, ln_2, and 4 + 4 of the MLP; statistics of two norms, lse of 2
  // heads.
  const SlicePrice all = price(one, keep, passes, prices);
  EXPECT_EQ(all.saved, Bytes(16 * activation + (2 * 2 + 2) * rows * 4));
  EXPECT_GT(nothing.backward_seconds, all.backward_seconds);
  EXPECT_LT(nothing.moments[0].forward, all.moments[0].forward);
  EXPECT_GE(all.moments[0].backward, all.saved);
}

TEST(Price, RepeatedWorkServesTheBlockThatNeedsIt) {
  const Graph graph = micro_step(gpt2_example(3, 32), 2, 16);
  Graph made = graph;
  recompute(made, retentions(graph, parse_recompute_policy("uniform:3")));
  const std::vector<int32_t> serving = serving_blocks(made);
  for (size_t op = 0; op < made.ops.size(); ++op)
    if (made.ops[op].name == "h.0.ln_1.recompute") {
      // The chain to the last block begins at the first.
      EXPECT_EQ(serving[op], 2);
    }
}

}  // namespace
}  // namespace snug::planner
