#include "planner/slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/example_test.h"

namespace snug::planner {
namespace {

std::vector<std::string> names(const Graph& graph, const std::vector<TensorId>& tensors) {
  std::vector<std::string> all;
  for (TensorId tensor : tensors) all.push_back(graph.tensor(tensor).name);
  return all;
}

TEST(Anatomy, BlocksThatDifferInNamesAloneAreAlike) {
  const Graph graph = micro_step(gpt2_example(4, 32, 0.1), 2, 16);
  const Anatomy found = anatomy(graph);
  ASSERT_EQ(found.blocks.size(), 4u);
  for (const Anatomy::Block& block : found.blocks) EXPECT_EQ(block.alike, 0);
  // The input of the first block is the sum of two embeddings, after its dropout.
  EXPECT_THAT(names(graph, found.source_values), testing::ElementsAre("wte", "wpe", "embeddings", "drop"));
}

TEST(Anatomy, OneValueLeavesABlockOfGpt2) {
  const Graph graph = micro_step(gpt2_example(3, 32), 2, 16);
  const Anatomy found = anatomy(graph);
  for (size_t block = 0; block < 3; ++block) {
    std::vector<TensorId> leaving, boundary;
    for (size_t value = 0; value < found.blocks[block].values.size(); ++value) {
      if (found.blocks[block].leaving[value]) leaving.push_back(found.blocks[block].values[value]);
      if (found.blocks[block].boundary[value]) boundary.push_back(found.blocks[block].values[value]);
    }
    const std::string last = "h." + std::to_string(block) + ".mlp.residual";
    EXPECT_THAT(names(graph, leaving), testing::ElementsAre(last));
    // The head's input is not the planner's to drop.
    EXPECT_EQ(boundary.size(), block < 2 ? 1u : 0u);
  }
}

TEST(Anatomy, RotaryAnglesAreShared) {
  const Graph graph = micro_step(llama_example(3, 64), 2, 16);
  const Anatomy found = anatomy(graph);
  std::vector<TensorId> shared;
  for (size_t tensor = 0; tensor < graph.tensors.size(); ++tensor)
    if (found.shared[tensor]) shared.push_back(TensorId(tensor));
  EXPECT_THAT(names(graph, shared), testing::ElementsAre("rotary_emb", "rotary_emb.sin"));
  EXPECT_THAT(names(graph, found.source_values), testing::ElementsAre("embed_tokens"));
}

TEST(Anatomy, AFrozenBlockIsOfItsOwnSort) {
  Model model = gpt2_example(4, 32);
  for (ParameterSpec& parameter : model.parameters)
    if (parameter.name.find(".h.2.mlp.c_fc.") != std::string::npos) parameter.trainable = false;
  const Anatomy found = anatomy(micro_step(model, 2, 16));
  EXPECT_EQ(found.blocks[0].alike, found.blocks[1].alike);
  EXPECT_NE(found.blocks[2].alike, found.blocks[1].alike);
  EXPECT_EQ(found.blocks[3].alike, found.blocks[1].alike);
}

TEST(Slice, HasOneTurnBetweenForwardAndBackward) {
  const Graph graph = micro_step(gpt2_example(4, 32), 2, 16);
  const Anatomy found = anatomy(graph);
  const Slice two = slice(graph, found, 1, 2, false);
  EXPECT_EQ(two.graph.ops.size(), 2 + 2 * (found.blocks[1].forward.size() + found.blocks[1].backward.size()));
  const Op& enter = two.graph.ops.front();
  EXPECT_EQ(enter.name, kEnter);
  EXPECT_THAT(names(two.graph, enter.outputs), testing::ElementsAre("h.0.mlp.residual"));
  const Op& turn = two.graph.ops[1 + 2 * found.blocks[1].forward.size()];
  EXPECT_EQ(turn.name, kTurn);
  EXPECT_THAT(names(two.graph, turn.inputs), testing::ElementsAre("h.2.mlp.residual"));
  EXPECT_EQ(turn.outputs.size(), 1u);
  // The gradients of two blocks' parameters, and of the run's input.
  EXPECT_EQ(two.graph.results.size(), 2u * 12 + 1);
}

TEST(Slice, TakesTheSourceAlong) {
  const Graph graph = micro_step(gpt2_example(2, 32), 2, 16);
  const Anatomy found = anatomy(graph);
  const Slice first = slice(graph, found, 0, 1, true);
  EXPECT_TRUE(first.graph.ops.front().outputs.empty());
  EXPECT_EQ(first.graph.ops[1].name, "wte");
  EXPECT_THAT(names(first.graph, first.source_values), testing::ElementsAre("wte", "wpe", "embeddings"));
}

}  // namespace
}  // namespace snug::planner
