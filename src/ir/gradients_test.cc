#include <gmock/gmock.h>

#include "base/errors.h"
#include "ir/op_examples.h"
#include "ir/operand_reader.h"
#include "ir/operations.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace snug {
namespace {

using testing::HasSubstr;

// A graph with one forward operation, and the gradient of every floating input asked for with the first
// output's gradient %g.
struct Differentiated {
  Graph graph;
  std::vector<TensorId> gradients;
  bool replaces_forward = false;
  std::string backward;  // text of the operations that the rule appended
};

struct Options {
  std::vector<bool> needs = {};                // empty: every floating input
  std::vector<std::string_view> partial = {};  // names, "" for none; empty: none
  std::vector<std::string_view> d_outputs = {"g"};
};

Differentiated differentiate_last(std::string_view text, const Options& options) {
  Graph graph = parse_graph(text);
  const Op op = graph.ops.back();
  GradientRequest request{graph, op, {}, options.needs, {}};
  const auto by_name = [&](const std::vector<std::string_view>& names, size_t i) {
    return i < names.size() && !names[i].empty() ? graph.find(names[i]) : TensorId();
  };
  for (size_t i = 0; i < op.outputs.size(); ++i) request.d_outputs.push_back(by_name(options.d_outputs, i));
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    request.partial.push_back(by_name(options.partial, i));
    if (options.needs.empty()) request.needs.push_back(is_floating(graph.tensor(op.inputs[i]).dtype));
  }
  const size_t forward = graph.ops.size();
  Differentiated result;
  result.gradients = operation(op.kind).gradient(request);
  result.replaces_forward = request.replaces_forward;
  if (result.replaces_forward) graph.ops.erase(graph.ops.begin() + static_cast<std::ptrdiff_t>(forward) - 1);
  verify(graph, "gradient");
  const std::string all = print(graph);
  size_t begin = std::string::npos;
  for (std::string_view line : {" @backward"})
    if (const size_t found = all.find(line); found != std::string::npos) begin = all.rfind('\n', found) + 1;
  result.backward = begin == std::string::npos ? "" : all.substr(begin);
  result.graph = std::move(graph);
  return result;
}

constexpr std::string_view kLinear = R"(graph g
state %w : bf16[8,12] weights parameter=fc.weight trainable
state %b : bf16[12] weights parameter=fc.bias trainable
carried %x : bf16[2,6,8] activations
carried %g : bf16[2,6,12] activations
carried %partial_w : f32[8,12] gradients
carried %partial_b : f32[12] gradients
%y : bf16[2,6,12] activations = linear(%x, %w, %b) {bias=1, weight=io} @forward block=2 name=h.2.fc
)";

TEST(Gradients, OfLinear) {
  const Differentiated result = differentiate_last(kLinear, {});
  EXPECT_EQ(
      result.backward,
      "%d.w : f32[8,12] gradients = linear_dweight(%x, %g) {accumulate=0, weight=io} @backward block=2 "
      "name=h.2.fc.dweight\n"
      "%d.b : f32[12] gradients = linear_dbias(%g) {accumulate=0} @backward block=2 name=h.2.fc.dbias\n"
      "%d.x : bf16[2,6,8] activations = linear_dx(%g, %w) {weight=io} @backward block=2 name=h.2.fc.dx\n");
}

TEST(Gradients, OfLinearMakesOnlyWhatIsNeeded) {
  const Differentiated result = differentiate_last(kLinear, {.needs = {false, false, true}});
  EXPECT_EQ(
      result.backward,
      "%d.b : f32[12] gradients = linear_dbias(%g) {accumulate=0} @backward block=2 name=h.2.fc.dbias\n");
  EXPECT_FALSE(result.gradients[0].valid());
  EXPECT_FALSE(result.gradients[1].valid());
}

TEST(Gradients, AccumulateIntoPartialOnes) {
  const Differentiated result =
      differentiate_last(kLinear, {.needs = {false, true, true}, .partial = {"", "partial_w", "partial_b"}});
  EXPECT_EQ(
      result.backward,
      "%d.w : f32[8,12] gradients = linear_dweight(%x, %g, %partial_w) {accumulate=1, weight=io} @backward "
      "block=2 name=h.2.fc.dweight alias=0:2\n"
      "%d.b : f32[12] gradients = linear_dbias(%g, %partial_b) {accumulate=1} @backward block=2 "
      "name=h.2.fc.dbias alias=0:1\n");
}

TEST(Gradients, OfLayerNormAddWhenOnlyOneParameterHasAPartial) {
  const Differentiated result = differentiate_last(R"(graph g
state %w : f32[8] weights parameter=w trainable
state %b : f32[8] weights parameter=b trainable
carried %x : f32[2,6,8] activations
carried %g : f32[2,6,8] activations
carried %partial : f32[8] gradients
%y : f32[2,6,8] activations, %mean : f32[2,6] activations, %rstd : f32[2,6] activations = layer_norm(%x, %w, %b) {eps=1e-05} @forward name=ln
)",
                                                   {.partial = {"", "partial", ""}});
  EXPECT_EQ(result.backward,
            "%d.w : f32[8] gradients, %d.b : f32[8] gradients = layer_norm_dweight(%g, %x, %mean, %rstd) "
            "{accumulate=0} @backward name=ln.dweight\n"
            "%d.w.1 : f32[8] gradients = add(%partial, %d.w) @backward name=ln.dweight.add0\n"
            "%d.x : f32[2,6,8] activations = layer_norm_dx(%g, %x, %w, %mean, %rstd) @backward name=ln.dx\n");
  EXPECT_EQ(result.graph.tensor(result.gradients[1]).name, "d.w.1");
}

constexpr std::string_view kHead = R"(graph g
state %wte : bf16[20,8] weights parameter=wte.weight trainable
input %targets : i32[2,6] data
input %inverse_tokens : f32[1] data
carried %x : bf16[2,6,8] activations
%loss : f32[1] activations = head_loss(%x, %wte, %targets, %inverse_tokens) {chunk=1024} @forward name=loss
results %loss
)";

TEST(Gradients, OfHeadLossMakesTheLossToo) {
  const Differentiated result =
      differentiate_last(kHead, {.needs = {true, true, false, false}, .d_outputs = {}});
  EXPECT_TRUE(result.replaces_forward);
  EXPECT_EQ(result.backward,
            "%loss : f32[1] activations, %d.x : bf16[2,6,8] activations, %d.wte : f32[20,8] gradients = "
            "head_loss_gradient(%x, %wte, %targets, %inverse_tokens) {accumulate=0, chunk=1024, dweight=1} "
            "@backward "
            "name=loss.gradient\n"
            "results %loss\n");
}

TEST(Gradients, OfHeadLossWithAFrozenHead) {
  const Differentiated result =
      differentiate_last(kHead, {.needs = {true, false, false, false}, .d_outputs = {}});
  EXPECT_THAT(result.backward, HasSubstr("{accumulate=0, chunk=1024, dweight=0}"));
  EXPECT_FALSE(result.gradients[1].valid());
}

TEST(Gradients, NothingMayFollowTheLoss) {
  EXPECT_THROW(
      differentiate_last(kHead, {.needs = {true, true, false, false}, .d_outputs = {"inverse_tokens"}}),
      InternalError);
}

TEST(Gradients, OfRotaryIsItsInverse) {
  const Differentiated result = differentiate_last(R"(graph g
carried %x : bf16[2,6,8] activations
carried %cos : f32[2,6,1] activations
carried %sin : f32[2,6,1] activations
carried %g : bf16[2,6,8] activations
%y : bf16[2,6,8] activations = rotary(%x, %cos, %sin) {heads=4, inverse=0} @forward name=r
)",
                                                   {.needs = {true, false, false}});
  EXPECT_EQ(result.backward,
            "%d.x : bf16[2,6,8] activations = rotary(%g, %cos, %sin) {heads=4, inverse=1} @backward "
            "name=r.dx\n");
}

TEST(Gradients, OfLinearGeluIsThatOfItsPieces) {
  const Differentiated result = differentiate_last(R"(graph g
state %w : f32[8,12] weights parameter=w
carried %x : f32[2,6,8] activations
carried %g : f32[2,6,12] activations
%u : f32[2,6,12] activations, %h : f32[2,6,12] activations = linear_gelu(%x, %w) {approximate=tanh, bias=0, weight=io} @forward name=fc
)",
                                                   {.needs = {true, false}, .d_outputs = {"", "g"}});
  EXPECT_EQ(
      result.backward,
      "%d.u : f32[2,6,12] activations = gelu_backward(%g, %u) {approximate=tanh} @backward name=fc.gelu.du\n"
      "%d.x : f32[2,6,8] activations = linear_dx(%d.u, %w) {weight=io} @backward name=fc.dx\n");
}

constexpr std::string_view kMlp = R"(graph g
state %w_up : f32[12,8] weights parameter=up.weight trainable
state %b_up : f32[12] weights parameter=up.bias
state %w_down : f32[8,12] weights parameter=down.weight trainable
state %b_down : f32[8] weights parameter=down.bias trainable
carried %x : f32[2,6,8] activations
carried %g : f32[2,6,8] activations
carried %partial_up : f32[12,8] gradients
carried %partial_down : f32[8,12] gradients
carried %partial_b : f32[8] gradients
%y : f32[2,6,8] activations = mlp(%x, %w_up, %b_up, %w_down, %b_down) {activation=gelu_none, bias=1, chunk=4, weight=oi} @forward block=3 name=mlp
)";

TEST(Gradients, OfMlpIsOneOperation) {
  EXPECT_EQ(
      differentiate_last(kMlp, {.needs = {true, true, false, true, true},
                                .partial = {"", "partial_up", "", "partial_down", "partial_b"}})
          .backward,
      "%d.x : f32[2,6,8] activations, %d.w_up : f32[12,8] gradients, %d.w_down : f32[8,12] gradients, "
      "%d.b_down : "
      "f32[8] gradients = mlp_gradient(%g, %x, %w_up, %b_up, %w_down, %b_down, %partial_up, %partial_down, "
      "%partial_b) {accumulate=1, activation=gelu_none, bias=1, chunk=4, gradients=27, weight=oi} @backward "
      "block=3 "
      "name=mlp.gradient alias=1:6,2:7,3:8\n");
  EXPECT_EQ(
      differentiate_last(kMlp, {.needs = {true, false, false, false, false}}).backward,
      "%d.x : f32[2,6,8] activations = mlp_gradient(%g, %x, %w_up, %b_up, %w_down, %b_down) {accumulate=0, "
      "activation=gelu_none, bias=1, chunk=4, gradients=1, weight=oi} @backward block=3 name=mlp.gradient\n");
}

TEST(Gradients, OfMlpAddWhenOnlyOneParameterHasAPartial) {
  const Differentiated result =
      differentiate_last(kMlp, {.needs = {false, true, false, true, false}, .partial = {"", "partial_up"}});
  EXPECT_EQ(result.backward,
            "%d.w_up : f32[12,8] gradients, %d.w_down : f32[8,12] gradients = mlp_gradient(%g, %x, %w_up, "
            "%b_up, %w_down, "
            "%b_down) {accumulate=0, activation=gelu_none, bias=1, chunk=4, gradients=10, weight=oi} "
            "@backward block=3 "
            "name=mlp.gradient\n"
            "%d.w_up.1 : f32[12,8] gradients = add(%partial_up, %d.w_up) @backward block=3 "
            "name=mlp.gradient.add0\n");
  EXPECT_EQ(result.graph.tensor(result.gradients[1]).name, "d.w_up.1");
}

TEST(Gradients, OfAddPassThrough) {
  const Differentiated result = differentiate_last(R"(graph g
carried %a : f32[3] activations
carried %b : f32[3] activations
carried %g : f32[3] activations
%y : f32[3] activations = add(%a, %b) @forward name=y
)",
                                                   {.needs = {true, false}});
  EXPECT_EQ(result.backward, "");
  EXPECT_EQ(result.gradients[0], result.graph.find("g"));
  EXPECT_FALSE(result.gradients[1].valid());
}

// Every rule: a gradient has its input's shape; activations' gradients have its type, parameters' are wide.
TEST(Gradients, HaveTheTypeOfTheirInput) {
  const Graph examples = parse_graph(kForwardExamples);
  size_t rules = 0;
  for (const Op& op : examples.ops) {
    const OperationInfo& info = operation(op.kind);
    if (info.gradient == nullptr) continue;
    ++rules;
    Graph graph = examples;
    GradientRequest request{graph, op, {}, {}, {}};
    const bool is_loss = op.kind == "head_loss" || op.kind == "cross_entropy";
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const Tensor& output = examples.tensor(op.outputs[i]);
      const bool flows = !is_loss && (i == 0 || op.kind == "linear_gelu");
      request.d_outputs.push_back(
          flows ? graph.add_tensor(
                      {.name = fmt::format("g{}", i), .dtype = output.dtype, .shape = output.shape})
                : TensorId());
    }
    const size_t data = op.kind == "rotary" ? 1 : op.inputs.size();  // cos and sin have no gradient
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Tensor& input = examples.tensor(op.inputs[i]);
      request.needs.push_back(is_floating(input.dtype) && input.name != "inverse_tokens" && i < data);
      request.partial.push_back(TensorId());
    }
    const std::vector<TensorId> gradients = info.gradient(request);
    ASSERT_EQ(gradients.size(), op.inputs.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Tensor& input = examples.tensor(op.inputs[i]);
      ASSERT_EQ(gradients[i].valid(), request.needs[i]) << op.name << " input " << i;
      if (!gradients[i].valid()) continue;
      const Tensor& gradient = graph.tensor(gradients[i]);
      const bool is_parameter = !input.parameter.empty();
      EXPECT_EQ(gradient.shape, input.shape) << op.name;
      EXPECT_EQ(gradient.dtype, is_parameter ? wide(input.dtype) : input.dtype) << op.name;
      EXPECT_EQ(gradient.category, is_parameter ? Category::kGradients : Category::kActivations) << op.name;
    }
    for (size_t i = examples.ops.size(); i < graph.ops.size(); ++i) {
      EXPECT_EQ(graph.ops[i].part, Part::kBackward);
      EXPECT_EQ(graph.ops[i].block, op.block);
    }
  }
  EXPECT_GE(rules, 18u);
}

}  // namespace
}  // namespace snug
