#include "ir/text.h"

#include <gmock/gmock.h>

#include "base/errors.h"
#include "ir/op_examples.h"
#include "ir/operations.h"
#include "ir/verify.h"

namespace snug {
namespace {

TEST(Text, RoundTripsEveryOperation) {
  std::vector<std::string> kinds;
  for (std::string_view text : kExamples) {
    const Graph graph = parse_graph(text);
    verify(graph, "parse");
    EXPECT_EQ(print(graph), text);
    EXPECT_EQ(parse_graph(print(graph)), graph);
    for (const Op& op : graph.ops) kinds.push_back(op.kind);
  }
  for (const OperationInfo& info : all_operations()) EXPECT_THAT(kinds, testing::Contains(info.kind));
}

TEST(Text, ReadsEveryField) {
  const Graph graph = parse_graph(kForwardExamples);
  const Tensor& weight = graph.tensor(graph.find("w_fc"));
  EXPECT_EQ(weight, (Tensor{.name = "w_fc",
                            .dtype = DType::kBF16,
                            .shape = {8, 12},
                            .storage = Storage::kState,
                            .category = Category::kWeights,
                            .parameter = "h/0 fc \"w\"",
                            .trainable = true,
                            .decay = true}));
  const Op& norm = graph.ops[2];
  EXPECT_EQ(norm.kind, "layer_norm");
  EXPECT_EQ(norm.name, "h.0.ln_1");
  EXPECT_EQ(norm.block, 0);
  EXPECT_EQ(norm.part, Part::kForward);
  EXPECT_EQ(norm.attributes.real("eps"), 1e-5);
  EXPECT_EQ(norm.outputs, (std::vector{graph.find("ln"), graph.find("mean"), graph.find("rstd")}));
  EXPECT_EQ(graph.ops[12].aliases, (std::vector<Op::Alias>{{0, 1}}));
}

TEST(Text, KeepsTheOrderOfTensorsThatIsNotCanonical) {
  Graph graph;
  graph.name = "g";
  const TensorId late = graph.add_tensor({.name = "late", .shape = {3}});
  const TensorId input = graph.add_tensor({.name = "in", .shape = {3}, .storage = Storage::kCarried});
  const TensorId early = graph.add_tensor({.name = "early", .shape = {3}});
  graph.add_tensor({.name = "orphan", .dtype = DType::kU8, .shape = {}});
  append(graph, "gelu", "first", {input}, {{"approximate", "tanh"}}, {.existing_outputs = {early}});
  append(graph, "gelu", "second", {early}, {{"approximate", "none"}}, {.existing_outputs = {late}});
  graph.results = {late};
  EXPECT_EQ(parse_graph(print(graph)), graph);
  EXPECT_THAT(print(graph), testing::HasSubstr("tensors %late, %in, %early, %orphan\n"));

  canonicalize(graph);
  EXPECT_EQ(print(graph),
            "graph g\n"
            "carried %in : f32[3] activations\n"
            "%early : f32[3] activations = gelu(%in) {approximate=tanh} @forward name=first\n"
            "%late : f32[3] activations = gelu(%early) {approximate=none} @forward name=second\n"
            "results %late\n");
  verify(graph, "canonicalize");
}

TEST(Text, RoundTripsUseBeforeDefinition) {
  Graph graph = parse_graph(kForwardExamples);
  std::swap(graph.ops[2], graph.ops[3]);
  EXPECT_EQ(parse_graph(print(graph)), graph);
}

TEST(Text, RoundTripsPrograms) {
  Program program;
  for (std::string_view text : kExamples) program.phases.push_back({parse_graph(text), 0});
  program.phases[0].repeats = 8;
  const std::string text = print(program);
  const Program again = parse_program(text);
  ASSERT_EQ(again.phases.size(), 4u);
  EXPECT_EQ(again.phases[0].repeats, 8);
  EXPECT_EQ(again.phases[3].repeats, 0);
  EXPECT_EQ(again.phases[2].graph, program.phases[2].graph);
  EXPECT_EQ(print(again), text);
}

TEST(Text, SkipsCommentsAndSpace) {
  const Graph graph =
      parse_graph("# a comment\n\n  graph g # the name\n\tinput  %a :i32[ 2 , 3 ]  data # x\r\n");
  EXPECT_EQ(graph.tensors.size(), 1u);
  EXPECT_EQ(graph.tensors[0].shape, (Shape{2, 3}));
}

TEST(Text, RefusesWithLineAndColumn) {
  const auto message = [](std::string_view text) -> std::string {
    try {
      parse_graph(text, "x.ir");
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kBadFile);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message("state %a : f32[2] weights"),
            "x.ir:1:1: found \"state %a : f32[2] we\", expected graph NAME");
  EXPECT_EQ(message("graph g\nstate %a : f33[2] weights"), "x.ir:2:12: \"f33\" is not an element type");
  EXPECT_EQ(message("graph g\nstate %a : f32[0] weights"),
            "x.ir:2:16: found \"0] weights\", expected a dimension from 1");
  EXPECT_EQ(message("graph g\nstate %a : f32[2] wights"), "x.ir:2:19: \"wights\" is not a category");
  EXPECT_EQ(message("graph g\nstate %a : f32[1099511627776,1099511627776] weights"),
            "x.ir:2:12: size overflow: 1099511627776 * 1099511627776 exceeds 64 bits");
  EXPECT_EQ(message("graph g\nstate %a : f32[2] weights\nstate %a : f32[2] weights"),
            "x.ir:3:7: %a is declared already");
  EXPECT_EQ(message("graph g\n%y : f32[2] activations = gelu(%x) @forward name=y"),
            "x.ir:2:32: %x is not declared");
  EXPECT_EQ(message("graph g\n%y = fill() @load name=y"),
            "x.ir:2:1: %y is not declared: its type is missing");
  EXPECT_EQ(message("graph g\n%y : f32[2] activations = fill() {value=} @load name=y"),
            "x.ir:2:34: attributes {value=}: \"\" is neither a number nor a word");
  EXPECT_EQ(message("graph g\n%y : f32[2] activations = fill() @lod name=y"),
            "x.ir:2:35: \"lod\" is not a part of a step");
  EXPECT_EQ(message("graph g\n%y : f32[2] activations = fill() @load"),
            "x.ir:2:39: found the end of the line, expected name=");
  EXPECT_EQ(message("graph g\ngraph h"), "x.ir: found 2 graphs, expected one");
  EXPECT_EQ(message(""), "x.ir: found 0 graphs, expected one");
}

// Every prefix of a good text, and the text with any one byte replaced, is either read or refused.
TEST(Text, MalformedTextNeverCrashes) {
  for (std::string_view text : kExamples) {
    for (size_t length = 0; length < text.size(); length += 3) {
      try {
        parse_graph(text.substr(0, length));
      } catch (const UserError&) {
      }
    }
    for (size_t i = 0; i < text.size(); ++i) {
      std::string broken(text);
      broken[i] = "%{}[]=:,@\"\\ \n9x#"[i % 16];
      try {
        const Graph graph = parse_graph(broken);
        EXPECT_EQ(parse_graph(print(graph)), graph);
      } catch (const UserError&) {
      }
    }
  }
}

}  // namespace
}  // namespace snug
