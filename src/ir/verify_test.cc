#include "ir/verify.h"

#include <gmock/gmock.h>

#include "base/errors.h"
#include "ir/op_examples.h"
#include "ir/operations.h"
#include "ir/text.h"

namespace snug {
namespace {

using testing::HasSubstr;

std::string refusal(const Graph& graph) {
  try {
    verify(graph, "some_pass");
  } catch (const InternalError& error) {
    return error.what();
  }
  return "accepted";
}

std::string refusal(std::string_view text) { return refusal(parse_graph(text)); }

// x → a → b, with room for what a test adds.
std::string chain(std::string_view a_alias, std::string_view rest) {
  return fmt::format(
      "graph g\ncarried %x : f32[2,6,8] activations\n"
      "%a : f32[2,6,8] activations = gelu(%x) {{approximate=tanh}} @forward name=a{}\n{}",
      a_alias, rest);
}

TEST(Verify, AcceptsEveryOperation) {
  for (std::string_view text : kExamples) EXPECT_EQ(refusal(text), "accepted");
}

TEST(Verify, NamesContextGraphAndOperation) {
  Graph graph = parse_graph(kForwardExamples);
  graph.tensor(graph.find("ln")).shape = {2, 6, 9};
  EXPECT_EQ(
      refusal(graph),
      "after some_pass: graph forward: operation h.0.ln_1 (layer_norm): output %ln is bf16[2,6,9], expected "
      "bf16[2,6,8]");
}

TEST(Verify, RefusesBadNames) {
  Graph graph = parse_graph(chain("", ""));
  graph.tensors[1].name = "x";
  EXPECT_THAT(refusal(graph), HasSubstr("two tensors are named %x"));
  graph.tensors[1].name = "a b";
  EXPECT_THAT(refusal(graph), HasSubstr("\"a b\" is not a tensor name"));
  EXPECT_THAT(refusal(chain("", "%b : f32[2,6,8] activations = add(%a, %x) @forward name=a\n")),
              HasSubstr("two operations have this name"));
}

TEST(Verify, RefusesBrokenSingleAssignment) {
  EXPECT_THAT(refusal(chain("", "%a = add(%x, %x) @forward name=b\n")), HasSubstr("%a is defined twice"));
  EXPECT_THAT(refusal(chain("", "%x = add(%a, %a) @forward name=b\n")),
              HasSubstr("carried %x is defined by an operation of part forward"));
  EXPECT_THAT(refusal("graph g\nvalue %x : f32[2] activations\n"
                      "%y : f32[2] activations = add(%x, %x) @forward name=y\n"
                      "%x = add(%y, %y) @forward name=x\n"),
              HasSubstr("%x is used before its definition"));
  EXPECT_THAT(refusal("graph g\nvalue %x : f32[2] activations\n"
                      "%y : f32[2] activations = add(%x, %x) @forward name=y\n"),
              HasSubstr("%x is defined by nothing"));
  Graph graph = parse_graph(chain("", ""));
  graph.ops[0].inputs[0] = TensorId(7);
  EXPECT_THAT(refusal(graph), HasSubstr("tensor number 7 does not exist"));
  graph.ops[0].inputs[0] = TensorId();
  EXPECT_THAT(refusal(graph), HasSubstr("tensor number -1 does not exist"));
}

TEST(Verify, RefusesStateReadBeforeItsLoad) {
  EXPECT_THAT(refusal("graph load\n"
                      "state %w : bf16[4] weights parameter=w\n"
                      "state %m : f32[4] master_weights parameter=w\n"
                      "%w = narrow_weight(%m) @load name=narrow\n"
                      "%m = read_tensor() @load name=read\n"),
              HasSubstr("%m is used before its definition"));
}

TEST(Verify, RefusesWrongTypesAndAttributes) {
  Graph graph = parse_graph(chain("", ""));
  graph.ops[0].attributes.set("approximate", "sigmoid");
  EXPECT_THAT(refusal(graph),
              HasSubstr("gelu: attribute approximate in {approximate=sigmoid}: expected tanh|none"));
  graph.ops[0].kind = "glu";
  EXPECT_THAT(refusal(graph), HasSubstr("unknown operation \"glu\"; did you mean gelu?"));
  EXPECT_THAT(refusal(chain("",
                            "%b : f32[2,6,8] activations, %c : f32[2,6,8] activations = add(%a, %x) "
                            "@forward name=b\n")),
              HasSubstr("found 2 outputs, expected 1"));
  EXPECT_EQ(refusal("graph g\nstate %w : bf16[4] weights\n%w = read_tensor() @load name=w\n"), "accepted");
  for (const char* dtype : {"f32", "bf16", "u8"})
    EXPECT_EQ(
        refusal(fmt::format(
            "graph g\nstate %m : {}[4] optimizer_state\n%m = fill() {{value=0.0}} @load name=m\n", dtype)),
        "accepted");
  EXPECT_THAT(refusal("graph g\nstate %m : i32[4] optimizer_state\n%m = fill() {value=0.0} @load name=m\n"),
              HasSubstr("%m is i32[4], expected f32, bf16 or u8"));
  EXPECT_THAT(refusal("graph g\nstate %w : u8[4] weights\n%w = read_tensor() @load name=w\n"),
              HasSubstr("%w is u8[4], expected f32, bf16 or f16"));
  EXPECT_THAT(refusal("graph g\nstate %m : f32[4] optimizer_state\nwrite_tensor(%m) @update name=m\n"),
              HasSubstr("the host works in load and save only"));
}

TEST(Verify, RefusesMissingMustAlias) {
  Graph graph = parse_graph(kUpdateExamples);
  graph.ops[3].aliases.pop_back();
  EXPECT_THAT(refusal(graph), HasSubstr("output 4 must share the storage of input 6"));
}

TEST(Verify, RefusesUnlawfulAliases) {
  const std::string_view b =
      "%b : f32[2,6,8] activations = gelu(%a) {approximate=tanh} @forward name=b alias=0:0\n";
  EXPECT_EQ(refusal(chain("", b)), "accepted");
  EXPECT_THAT(refusal(chain(" alias=0:0", "")), HasSubstr("%a cannot take the storage of carried %x"));
  EXPECT_THAT(
      refusal(chain("", fmt::format("{}%c : f32[2,6,8] activations = add(%a, %b) @forward name=c\n", b))),
      HasSubstr("%a gave its storage to %b but is used later"));
  EXPECT_THAT(refusal(chain("", fmt::format("{}results %a, %b\n", b))),
              HasSubstr("%a gave its storage to %b but is a result"));
  EXPECT_THAT(refusal(chain("", "%b : f32[2,6,8] activations = add(%a, %a) @forward name=b alias=0:0\n")),
              HasSubstr("%a gives its storage to %b but is another operand too"));
  EXPECT_THAT(refusal(chain("", "%b : f32[2,6,8] activations = add(%a, %x) @forward name=b alias=0:2\n")),
              HasSubstr("alias 0:2 is not in the table"));
  EXPECT_THAT(refusal(chain("",
                            "%w : f32[2,6,8] activations = gelu(%x) {approximate=tanh} @forward name=w\n"
                            "%b : f32[2,6,8] activations = add(%a, %w) @forward name=b alias=0:0,0:1\n")),
              HasSubstr("alias 0:0 and 0:1 share an operand"));
}

// An accumulator's storage is the carried gradient's: nothing may be written over it in place.
TEST(Verify, FollowsAliasesToTheirRoot) {
  EXPECT_THAT(
      refusal("graph g\ncarried %d : f32[8] gradients\ncarried %y : f32[2,8] activations\n"
              "%d.1 : f32[8] gradients = linear_dbias(%y, %d) {accumulate=1} @backward name=b alias=0:1\n"
              "%z : f32[8] activations = gelu(%d.1) {approximate=tanh} @forward name=z alias=0:0\n"),
      HasSubstr("%z cannot take the storage of carried %d"));
}

TEST(Verify, RefusesBadResults) {
  Graph graph = parse_graph(chain("", "results %a\n"));
  graph.results.push_back(TensorId(9));
  EXPECT_THAT(refusal(graph), HasSubstr("result number 9 does not exist"));
  graph.results = {TensorId(1), TensorId(1)};
  EXPECT_THAT(refusal(graph), HasSubstr("%a is twice among the results"));
  EXPECT_THAT(refusal("graph g\nvalue %a : f32[1] activations\nresults %a\n"),
              HasSubstr("result %a is defined by nothing"));
  EXPECT_THAT(refusal("graph g\ninput %a : f32[1] data\nresults %a\n"),
              HasSubstr("input %a is among the results"));
}

TEST(Verify, RefusesCategoriesThatDoNotGoWithStorage) {
  EXPECT_THAT(refusal("graph g\nstate %a : f32[1] activations\n"),
              HasSubstr("%a: category activations does not go with storage state"));
  EXPECT_THAT(refusal("graph g\ninput %a : f32[1] weights\n"),
              HasSubstr("%a: category weights does not go with storage input"));
  EXPECT_THAT(refusal("graph g\nstate %a : f32[1] optimizer_state parameter=a\n"),
              HasSubstr("%a: parameter=a on state optimizer_state"));
  EXPECT_THAT(refusal("graph g\nstate %a : f32[1] weights trainable\n"),
              HasSubstr("%a: trainable or decay without parameter="));
}

TEST(Verify, RefusesImpossibleShapes) {
  Graph graph = parse_graph(chain("", ""));
  graph.tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_THAT(refusal(graph), HasSubstr("%x: size overflow"));
  graph.tensors[0].shape = {2, 0};
  EXPECT_THAT(refusal(graph), HasSubstr("%x has shape [2,0]"));
}

}  // namespace
}  // namespace snug
