#include "ir/graph.h"

#include <gtest/gtest.h>

#include "base/errors.h"

namespace snug {
namespace {

TEST(Graph, FindsTensorsByName) {
  Graph graph;
  const TensorId a = graph.add_tensor({.name = "a"});
  const TensorId b = graph.add_tensor({.name = "b"});
  EXPECT_EQ(graph.find("a"), a);
  EXPECT_EQ(graph.find("b"), b);
  EXPECT_FALSE(graph.find("c").valid());
  EXPECT_EQ(graph.unique_name("c"), "c");
  EXPECT_EQ(graph.unique_name("a"), "a.1");
  graph.add_tensor({.name = "a.1"});
  EXPECT_EQ(graph.unique_name("a"), "a.2");
}

TEST(Graph, RefusesTakenAndImproperNames) {
  Graph graph;
  const TensorId a = graph.add_tensor({.name = "a"});
  EXPECT_THROW(graph.add_tensor({.name = "a"}), InternalError);
  EXPECT_THROW(graph.add_tensor({.name = ""}), InternalError);
  EXPECT_THROW(graph.add_tensor({.name = "a b"}), InternalError);
  graph.add_tensor({.name = "b"});
  EXPECT_THROW(graph.rename(a, "b"), InternalError);
  graph.rename(a, "c");
  EXPECT_EQ(graph.find("c"), a);
  EXPECT_FALSE(graph.find("a").valid());
  graph.rename(TensorId(1), "a");
  graph.rename(a, "b");
  EXPECT_EQ(graph.find("a"), TensorId(1));
  EXPECT_EQ(graph.find("b"), a);
  EXPECT_EQ(graph.add_tensor({.name = "c"}), TensorId(2));
}

TEST(Graph, FindFollowsChangesOfTheList) {
  Graph graph;
  graph.add_tensor({.name = "a"});
  graph.add_tensor({.name = "b"});
  EXPECT_EQ(graph.find("b"), TensorId(1));
  std::swap(graph.tensors[0], graph.tensors[1]);
  EXPECT_EQ(graph.find("b"), TensorId(0));
  graph.tensors.pop_back();
  EXPECT_FALSE(graph.find("a").valid());
  Graph copy = graph;
  copy.add_tensor({.name = "z"});
  EXPECT_EQ(copy.find("z"), TensorId(1));
  EXPECT_FALSE(graph.find("z").valid());
  EXPECT_NE(copy, graph);
}

TEST(Graph, CanonicalizeDropsWhatNobodyMentions) {
  Graph graph;
  const TensorId dead = graph.add_tensor({.name = "dead"});
  const TensorId second = graph.add_tensor({.name = "second"});
  const TensorId first = graph.add_tensor({.name = "first"});
  const TensorId state = graph.add_tensor({.name = "state", .storage = Storage::kState});
  graph.ops.push_back({.kind = "gelu", .name = "g1", .inputs = {state}, .outputs = {first}});
  graph.ops.push_back({.kind = "gelu", .name = "g2", .inputs = {first}, .outputs = {second}});
  graph.results = {second};
  const std::vector<TensorId> moved = canonicalize(graph);
  EXPECT_FALSE(moved[dead.index()].valid());
  ASSERT_EQ(graph.tensors.size(), 3u);
  EXPECT_EQ(graph.tensors[0].name, "state");
  EXPECT_EQ(graph.tensors[1].name, "first");
  EXPECT_EQ(graph.tensors[2].name, "second");
  EXPECT_EQ(graph.ops[1].inputs[0], TensorId(1));
  EXPECT_EQ(graph.results[0], TensorId(2));
  EXPECT_EQ(graph.find("second"), TensorId(2));
}

TEST(Graph, NamesOfEnumsReadBack) {
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(parse_storage(storage_name(static_cast<Storage>(i))), static_cast<Storage>(i));
  for (int i = 0; i < 7; ++i)
    EXPECT_EQ(parse_category(category_name(static_cast<Category>(i))), static_cast<Category>(i));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(parse_part(part_name(static_cast<Part>(i))), static_cast<Part>(i));
  EXPECT_FALSE(parse_part("forwards").has_value());
}

}  // namespace
}  // namespace snug
