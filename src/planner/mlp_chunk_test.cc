// Plans of models whose MLPs work on chunks of rows: as sound as others, and smaller.
#include <gtest/gtest.h>

#include <limits>

#include "passes/chunk_mlp.h"
#include "planner/choose.h"
#include "planner/example_test.h"

namespace snug::planner {
namespace {

struct Case {
  std::string name;
  Model model;
  bool accumulates = false;
};

std::vector<Case> cases() {
  Model frozen = gpt2_example(4, 64);
  for (ParameterSpec& parameter : frozen.parameters)
    if (parameter.name.find("h.2.mlp.c_fc") != std::string::npos) parameter.trainable = false;
  return {{"gpt2", gpt2_example(4, 64, 0.1)},
          {"gpt2, one frozen product", frozen},
          {"llama, accumulation", llama_example(5, 64, false), true},
          {"llama, one block", llama_example(1, 64)}};
}

// 256 rows; 0: whole.
Graph micro_step_in_chunks(const Model& model, int64_t rows) {
  Graph graph = build_forward(model, Purpose::kTrain, 4, 64, 16);
  if (rows > 0) {
    EXPECT_TRUE(chunk_mlp(graph, rows));
  }
  differentiate(graph);
  return graph;
}

TEST(MlpChunks, ArePlannedToTheByteAndNearTheBound) {
  const DescribedTarget target;
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    const Graph graph = micro_step_in_chunks(each.model, 60);
    Planner planner(graph, target, finish(each.accumulates), Bytes(1000));
    const Bytes smallest = planner.smallest_budget(), largest = planner.frontier().back().budget;
    EXPECT_FALSE(planner.choose(smallest - Bytes(1)).has_value());
    double last = std::numeric_limits<double>::infinity();
    for (int step = 0; step <= 6; ++step) {
      const Bytes budget = smallest + Bytes((largest - smallest).value * step / 6);
      const std::optional<Choice> choice = planner.choose(budget);
      ASSERT_TRUE(choice.has_value()) << step;
      EXPECT_LE(choice->seconds, last);
      last = choice->seconds;
      const double bound = planner.bound_seconds(budget);
      EXPECT_LE(bound, choice->seconds);
      EXPECT_LE(choice->gap(bound), 0.02);
      const Bytes truth = true_peak(graph, choice->retentions, finish(each.accumulates)) + Bytes(1000);
      EXPECT_LE(truth, choice->peak);
      EXPECT_GE(truth + Bytes(4096), choice->peak);
      EXPECT_LE(choice->peak, budget);
    }
    EXPECT_EQ(last, 0);
  }
}

// Nothing that lies between products can be saved any more, so keeping everything holds less, and so does the least that is possible.
TEST(MlpChunks, HoldLess) {
  const DescribedTarget target;
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    const Graph whole = micro_step_in_chunks(each.model, 0), chunked = micro_step_in_chunks(each.model, 60);
    const Retentions keep_whole(whole.tensors.size(), Retention::kKeep),
        keep_chunked(chunked.tensors.size(), Retention::kKeep);
    EXPECT_LT(true_peak(chunked, keep_chunked, finish(each.accumulates)),
              true_peak(whole, keep_whole, finish(each.accumulates)));
    EXPECT_LT(Planner(chunked, target, finish(each.accumulates), Bytes(1000)).smallest_budget(),
              Planner(whole, target, finish(each.accumulates), Bytes(1000)).smallest_budget());
  }
}

}  // namespace
}  // namespace snug::planner
