#include "ir/operations.h"

#include <gmock/gmock.h>

#include "base/errors.h"
#include "ir/op_examples.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace snug {
namespace {

using testing::HasSubstr;
using Types = std::vector<OperandType>;

// Every operation of the examples with its graph.
struct Example {
  Graph graph;
  Op op;
  Types inputs() const { return operand_types(graph, op.inputs); }
  Types outputs() const { return operand_types(graph, op.outputs); }
};

std::vector<Example> examples() {
  std::vector<Example> all;
  for (std::string_view text : kExamples) {
    const Graph graph = parse_graph(text);
    for (const Op& op : graph.ops) all.push_back({graph, op});
  }
  return all;
}

bool refused(const Op& op, const Attributes& attributes, const Types& inputs) {
  try {
    operation(op.kind).infer(attributes, inputs);
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::AnyOf(HasSubstr(op.kind + ":"), HasSubstr("size overflow")));
    return true;
  }
  return false;
}

std::string refusal(std::string_view kind, const Attributes& attributes, const Types& inputs) {
  try {
    operation(kind).infer(attributes, inputs);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Operations, InferTheTypesOfTheExamples) {
  for (const Example& example : examples()) {
    const OperationInfo& info = operation(example.op.kind);
    const Types found = info.infer(example.op.attributes, example.inputs());
    EXPECT_EQ(found, info.outputs_given ? Types{} : example.outputs()) << example.op.name;
  }
}

// Dimensions that an operation sums or looks up over and that no other operand fixes.
bool is_free(const Op& op, size_t operand, size_t dim) {
  if (op.kind == "sum_squares") return true;
  if (op.kind == "write_tensor") return op.attributes.integer_or("split", 0) == 0;
  if (op.kind == "linear_dbias") return dim < 2;                                          // rows
  if (op.kind == "embedding" || op.kind == "head_loss") return operand == 1 && dim == 0;  // rows of the table
  if (op.kind == "head_loss_gradient")  // the same, where no d_w shows it
    return operand == 1 && dim == 0 && op.attributes.integer("dweight") == 0;
  if (op.kind == "cross_entropy") return operand == 0 && dim == 2;  // vocabulary
  return op.kind == "last_logits" && operand == 0 && dim == 1;      // positions
}

// Another type of any one operand is refused, or shows in the outputs.
TEST(Operations, RefuseOrReflectEveryChangedOperand) {
  for (const Example& example : examples()) {
    const Op& op = example.op;
    const Types inputs = example.inputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      Types changed = inputs;
      changed[i].dtype = inputs[i].dtype == DType::kU8 ? DType::kI64 : DType::kU8;
      EXPECT_TRUE(refused(op, op.attributes, changed)) << op.name << " operand " << i;
      for (size_t d = 0; d < inputs[i].shape.rank(); ++d) {
        std::vector<int64_t> dims = inputs[i].shape.dims();
        dims[d] = 0;
        changed[i] = {inputs[i].dtype, Shape(dims)};
        EXPECT_TRUE(refused(op, op.attributes, changed)) << op.name << " operand " << i << " dimension " << d;
        dims[d] = inputs[i].shape.dims()[d] + 1;
        changed[i] = {inputs[i].dtype, Shape(dims)};
        const bool same = !refused(op, op.attributes, changed) &&
                          operation(op.kind).infer(op.attributes, changed) == example.outputs();
        EXPECT_EQ(same, is_free(op, i, d)) << op.name << " operand " << i << " dimension " << d;
      }
    }
  }
}

TEST(Operations, RefuseMissingAndExtraOperands) {
  for (const Example& example : examples()) {
    const Op& op = example.op;
    Types inputs = example.inputs();
    if (op.kind == "update_control") inputs.pop_back();  // any number of sums from one
    inputs.push_back({DType::kI64, {1}});
    EXPECT_TRUE(refused(op, op.attributes, inputs)) << op.name;
    inputs.pop_back();
    if (inputs.empty()) continue;
    inputs.pop_back();
    EXPECT_TRUE(refused(op, op.attributes, inputs)) << op.name;
  }
}

TEST(Operations, RefuseUnknownMissingAndMistypedAttributes) {
  for (const Example& example : examples()) {
    const Op& op = example.op;
    Attributes unknown = op.attributes;
    unknown.set("colour", "red");
    EXPECT_TRUE(refused(op, unknown, example.inputs())) << op.name;
    for (const auto& [name, value] : op.attributes.entries()) {
      if (name == "out" || name == "overwrite_first")
        continue;  // optional: without them it is another operation
      Attributes without = op.attributes;
      without.erase(name);
      EXPECT_TRUE(refused(op, without, example.inputs())) << op.name << " without " << name;
      Attributes mistyped = op.attributes;
      mistyped.set(name, "bogus");
      EXPECT_TRUE(refused(op, mistyped, example.inputs())) << op.name << " with a word as " << name;
    }
  }
}

TEST(Operations, SayWhatWasFoundAndExpected) {
  const OperandType x{DType::kF32, {2, 6, 8}};
  EXPECT_EQ(refusal("linear", {{"weight", "oi"}, {"bias", int64_t{0}}}, {x, {DType::kF32, {8, 12}}}),
            "linear: operand w: found f32[8,12], expected 8 input features as x f32[2,6,8] has (weight=oi)");
  EXPECT_EQ(refusal("linear", {{"weight", "io"}, {"bias", int64_t{1}}},
                    {x, {DType::kF32, {8, 12}}, {DType::kF32, {8}}}),
            "linear: operand bias: found f32[8], expected f32[12]");
  EXPECT_EQ(refusal("linear", {{"weight", "oi"}, {"bias", int64_t{0}}}, {x, {DType::kBF16, {12, 8}}}),
            "linear: operand w: found bf16[12,8], expected f32 as x");
  EXPECT_EQ(refusal("linear", {{"weight", "oi"}, {"bias", int64_t{2}}}, {}),
            "linear: attribute bias in {bias=2, weight=oi}: expected 0 or 1");
  EXPECT_EQ(refusal("add", {}, {x}), "add: operand b is missing: found 1 operands");
  EXPECT_EQ(refusal("add", {}, {x, x, x}), "add: found 3 operands, expected 2");
  EXPECT_EQ(refusal("layer_norm", {{"eps", int64_t{1}}}, {}),
            "layer_norm: attribute eps in {eps=1}: expected a real (1.0, not 1)");
  EXPECT_EQ(refusal("rotary_table", {{"type", "linear"}, {"head_dim", int64_t{4}}, {"theta", 1e4}},
                    {{DType::kI32, {2, 6}}}),
            "rotary_table: attribute factor is missing: type=linear needs it");
  EXPECT_EQ(refusal("rotary_table",
                    {{"type", "default"}, {"head_dim", int64_t{4}}, {"theta", 1e4}, {"factor", 2.0}},
                    {{DType::kI32, {2, 6}}}),
            "rotary_table: attribute factor is unexpected: type=default does not take it");
  EXPECT_EQ(refusal("embeding", {}, {}), "unknown operation \"embeding\"; did you mean embedding?");
}

TEST(Operations, CheckSizesForOverflow) {
  const int64_t huge = int64_t{1} << 40;
  EXPECT_THAT(refusal("gelu", {{"approximate", "tanh"}}, {{DType::kF32, {huge, huge}}}),
              HasSubstr("size overflow"));
  EXPECT_THAT(
      refusal("attention_qkv",
              {{"heads", int64_t{1} << 62}, {"kv_heads", int64_t{1} << 62}, {"scale", 1.0}, {"dropout", 0.0}},
              {{DType::kF32, {1, 2, 6}}, {DType::kI32, {1, 2}}}),
      HasSubstr("size overflow"));
}

TEST(Operations, GradientChecksRunInF64) {
  const OperandType x{DType::kF64, {2, 3, 4}};
  EXPECT_EQ(operation("layer_norm")
                .infer({{"eps", 1e-5}}, std::vector{x, {DType::kF64, {4}}, {DType::kF64, {4}}})[1],
            (OperandType{DType::kF64, {2, 3}}));
  EXPECT_EQ(operation("linear_dbias").infer({{"accumulate", int64_t{0}}}, std::vector{x})[0],
            (OperandType{DType::kF64, {4}}));
  EXPECT_EQ(operation("rotary_table")
                .infer({{"type", "default"}, {"head_dim", int64_t{4}}, {"theta", 1e4}, {"out", "f64"}},
                       std::vector{OperandType{DType::kI32, {2, 3}}})[0],
            (OperandType{DType::kF64, {2, 3, 2}}));
}

TEST(Operations, AliasRulesFollowOptionalOperands) {
  const auto rules = [](std::string_view kind, const Attributes& attributes, size_t inputs) {
    std::vector<std::string> text;
    const Types types(inputs);
    for (const AliasRule& rule : operation(kind).aliases(attributes, types))
      text.push_back(fmt::format("{}:{}{}", rule.output, rule.input, rule.must ? "!" : ""));
    return text;
  };
  using Text = std::vector<std::string>;
  EXPECT_EQ(rules("linear_add", {{"bias", int64_t{0}}}, 3), Text{"0:2"});
  EXPECT_EQ(rules("linear_add", {{"bias", int64_t{1}}}, 4), Text{"0:3"});
  EXPECT_EQ(rules("linear_dweight", {{"accumulate", int64_t{0}}}, 2), Text{});
  EXPECT_EQ(rules("linear_dweight", {{"accumulate", int64_t{1}}}, 3), Text{"0:2!"});
  EXPECT_EQ(rules("layer_norm_dweight", {{"accumulate", int64_t{1}}}, 6), (Text{"0:4!", "1:5!"}));
  EXPECT_EQ(rules("head_loss_gradient", {{"accumulate", int64_t{1}}}, 5), Text{"2:4!"});
  EXPECT_EQ(rules("swiglu_backward", {}, 3), (Text{"0:0", "0:1", "1:2"}));
  EXPECT_EQ(rules("adamw", {{"narrow", int64_t{0}}}, 6), (Text{"0:0!", "1:1!", "2:2!"}));
  EXPECT_EQ(rules("adamw", {{"narrow", int64_t{1}}}, 7), (Text{"0:0!", "1:1!", "2:2!", "4:6!"}));
  Types coded(9);
  coded[1].dtype = DType::kU8;
  const std::vector<AliasRule> with_scales =
      operation("adamw").aliases({{"narrow", int64_t{0}}, {"split", int64_t{1}}}, coded);
  ASSERT_EQ(with_scales.size(), 6u);
  for (int32_t output : {4, 5, 6}) {
    EXPECT_EQ(with_scales[static_cast<size_t>(output - 1)].output, output);
    EXPECT_EQ(with_scales[static_cast<size_t>(output - 1)].input, output + 2);
  }
}

TEST(Operations, AdamwSaysWhichFormItCannotTake) {
  const OperandType weight{DType::kBF16, {64}}, moment{DType::kBF16, {64}}, g{DType::kF32, {64}},
      four{DType::kF32, {4}};
  const auto refusal = [](const Attributes& attributes, const Types& inputs) {
    try {
      operation("adamw").infer(attributes, inputs);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const Attributes base{
      {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.0}, {"narrow", int64_t{0}}};
  Attributes rounded = base;
  rounded.set("rounding", std::string("nearest"));
  EXPECT_THAT(refusal(rounded, {weight, moment, moment, g, four, four}),
              HasSubstr("attribute stream: not found"));
  Attributes both = rounded;
  both.set("split", int64_t{1});
  EXPECT_THAT(refusal(both, {weight, moment, moment, g, four, four}), HasSubstr("expected at most one"));
  rounded.set("stream", int64_t{1});
  EXPECT_THAT(refusal(rounded, {weight, g, g, g, four, four}), HasSubstr("attribute stream: found"));
  EXPECT_THAT(refusal(base, {g, four, four, g, four, four}), HasSubstr("operand m"));
  EXPECT_THAT(refusal(base, {g, {DType::kI32, {64}}, {DType::kI32, {64}}, g, four, four}),
              HasSubstr("operand m: found i32, expected f32, bf16 or u8"));
}

// Gradients of x, gate, up, down; of one alone no more is needed than leads to it.
TEST(Operations, MlpGradientMakesWhatItsBitsSay) {
  const OperandType x{DType::kBF16, {2, 6, 8}}, in{DType::kBF16, {12, 8}}, down{DType::kBF16, {8, 12}};
  const OperandType d_in{DType::kF32, {12, 8}}, d_down{DType::kF32, {8, 12}};
  const OperationInfo& info = operation("mlp_gradient");
  const double product = 2.0 * 12 * 8 * 12;
  const auto attributes = [](int64_t gradients) {
    return Attributes{{"activation", "swiglu"}, {"weight", "oi"},         {"bias", int64_t{0}},
                      {"chunk", int64_t{5}},    {"gradients", gradients}, {"accumulate", int64_t{0}}};
  };
  const Types inputs{x, x, in, in, down};
  struct Made {
    int64_t gradients;
    Types outputs;
    double products;  // needed; all of these make gate and up again besides
  };
  for (const Made& made : {Made{15, {x, d_in, d_in, d_down}, 6}, Made{1, {x}, 3}, Made{2, {d_in}, 2},
                           Made{8, {d_down}, 1}, Made{9, {x, d_down}, 4}}) {
    SCOPED_TRACE(made.gradients);
    EXPECT_EQ(info.infer(attributes(made.gradients), inputs), made.outputs);
    EXPECT_EQ(info.flops(attributes(made.gradients), inputs), made.products * product);
    EXPECT_EQ(info.repeated_flops(attributes(made.gradients), inputs), 2 * product);
  }
  // The gradient of down's bias is a sum over d_y: nothing is made again for it.
  Attributes bias{{"activation", "gelu_none"}, {"weight", "oi"},           {"bias", int64_t{1}},
                  {"chunk", int64_t{5}},       {"gradients", int64_t{16}}, {"accumulate", int64_t{0}}};
  const Types with_bias{x, x, in, {DType::kBF16, {12}}, down, {DType::kBF16, {8}}};
  EXPECT_EQ(info.infer(bias, with_bias), (Types{{DType::kF32, {8}}}));
  EXPECT_EQ(info.repeated_flops(bias, with_bias), 0);
  bias.set("gradients", int64_t{31});
  EXPECT_EQ(info.repeated_flops(bias, with_bias), product);
  EXPECT_THAT(refusal("mlp_gradient", attributes(16), inputs),
              HasSubstr("attribute gradients: found 16, expected 1 to 15"));
  EXPECT_THAT(refusal("mlp_gradient", attributes(0), inputs), HasSubstr("attribute gradients: found 0"));
  EXPECT_THAT(refusal("mlp_gradient", attributes(-1), inputs), HasSubstr("attribute gradients: found -1"));
  Attributes accumulating = attributes(1);
  accumulating.set("accumulate", int64_t{1});
  EXPECT_THAT(refusal("mlp_gradient", accumulating, inputs), HasSubstr("with a parameter's gradient"));
  const Types odd{x, x, in, {DType::kBF16, {13, 8}}, down};
  EXPECT_THAT(refusal("mlp_gradient", attributes(15), odd),
              HasSubstr("operand w_up: found bf16[13,8], expected 12 output features as w_gate has"));
}

TEST(Operations, FlopsCountNeededProducts) {
  const auto flops = [](const Graph& graph, std::string_view name) {
    for (const Op& op : graph.ops)
      if (op.name == name) return operation(op.kind).flops(op.attributes, operand_types(graph, op.inputs));
    return -1.0;
  };
  const Graph forward = parse_graph(kForwardExamples), backward = parse_graph(kBackwardExamples);
  EXPECT_EQ(flops(forward, "h.0.fc"), 2.0 * 12 * 8 * 12);      // 2 · (B T) · I · O
  EXPECT_EQ(flops(forward, "loss"), 2.0 * 12 * 8 * 20);        // 2 · (B T) · C · V
  EXPECT_EQ(flops(forward, "last"), 2.0 * 2 * 8 * 20);         // one row a sample
  EXPECT_EQ(flops(forward, "h.0.attn"), 2.0 * 2 * 6 * 6 * 8);  // half of 4 · B · T² · H D
  EXPECT_EQ(flops(forward, "h.0.attn_qkv"), 2.0 * 2 * 6 * 6 * 8);
  EXPECT_EQ(flops(forward, "h.0.gelu"), 0.0);
  EXPECT_EQ(flops(backward, "loss.gradient"), 6.0 * 12 * 8 * 20);
  EXPECT_EQ(flops(backward, "frozen.gradient"), 4.0 * 12 * 8 * 20);
  EXPECT_EQ(flops(forward, "h.0.mlp"), 4.0 * 12 * 8 * 12);
  EXPECT_EQ(flops(forward, "h.0.gated"), 6.0 * 12 * 8 * 12);
  EXPECT_EQ(flops(backward, "mlp.gradient"),
            8.0 * 12 * 8 * 12);  // two of each product; the one made again is not needed
  EXPECT_EQ(flops(backward, "gated.gradient"), 10.0 * 12 * 8 * 12);  // but for the frozen up's weight
  EXPECT_EQ(flops(backward, "fc.dweight"), 2.0 * 12 * 8 * 12);
  EXPECT_EQ(flops(backward, "logits.dx"), 2.0 * 12 * 8 * 20);
  EXPECT_EQ(flops(backward, "attn.backward"), 4.0 * 2 * 6 * 6 * 8);
  EXPECT_EQ(flops(backward, "attn_qkv.backward"), 4.0 * 2 * 6 * 6 * 8);
}

TEST(Append, NamesOutputsAndRecordsMustAliases) {
  Graph graph;
  graph.name = "g";
  const TensorId d_y = graph.add_tensor({.name = "d_y", .shape = {3, 4}, .storage = Storage::kCarried});
  const TensorId into = graph.add_tensor(
      {.name = "d.b", .shape = {4}, .storage = Storage::kCarried, .category = Category::kGradients});
  const TensorId made = append(graph, "linear_dbias", "fc.dbias", {d_y, into}, {{"accumulate", int64_t{1}}},
                               {.part = Part::kBackward, .block = 3, .output_names = {"d.b"}})[0];
  EXPECT_EQ(graph.tensor(made).name, "d.b.1");
  EXPECT_EQ(graph.tensor(made).category, Category::kGradients);  // the accumulator's
  EXPECT_EQ(graph.ops[0].aliases, (std::vector<Op::Alias>{{0, 1}}));
  EXPECT_EQ(graph.ops[0].part, Part::kBackward);
  EXPECT_EQ(graph.ops[0].block, 3);

  const TensorId w = graph.add_tensor({.name = "w", .shape = {4}, .storage = Storage::kCarried});
  const auto norm = append(graph, "layer_norm", "ln", {d_y, w, w}, {{"eps", 1e-5}});
  EXPECT_EQ(graph.tensor(norm[0]).name, "ln");
  EXPECT_EQ(graph.tensor(norm[1]).name, "ln.1");
  EXPECT_EQ(graph.tensor(norm[2]).name, "ln.2");
  verify(graph, "append");
}

TEST(Append, NamesTheOperationInErrors) {
  Graph graph;
  const TensorId x = graph.add_tensor({.name = "x", .shape = {3, 4}});
  try {
    append(graph, "gelu", "h.7.gelu", {x, x}, {{"approximate", "tanh"}});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "operation h.7.gelu: gelu: found 2 operands, expected 1");
  }
  const TensorId y = graph.add_tensor({.name = "y", .shape = {4, 3}});
  EXPECT_THROW(append(graph, "gelu", "g", {x}, {{"approximate", "tanh"}}, {.existing_outputs = {y}}),
               InternalError);
  EXPECT_THROW(append(graph, "fill", "f", {}, {{"value", 0.0}}), InternalError);
}

// The pieces define the fused operation's outputs, so the graph around them stays as it was.
TEST(Decompose, DefinesTheSameOutputsOfTheSameTypes) {
  for (std::string_view text : {kForwardExamples, kBackwardExamples}) {
    Graph graph = parse_graph(text);
    const std::vector<Op> ops = std::exchange(graph.ops, {});
    for (const Op& op : ops) {
      const auto decompose = operation(op.kind).decompose;
      if (decompose == nullptr)
        graph.ops.push_back(op);
      else
        decompose(graph, op);
    }
    for (const Op& op : graph.ops) EXPECT_EQ(operation(op.kind).decompose, nullptr);
    EXPECT_GT(graph.ops.size(), ops.size());
    for (Op& op : graph.ops)
      if (op.kind == "linear_add" || op.kind == "add") op.aliases.clear();
    verify(graph, "decompose");
  }
}

TEST(Decompose, HeadLossGradientIsItsFiveProducts) {
  Graph graph = parse_graph(kBackwardExamples);
  const Op op = graph.ops[0];
  graph.ops.clear();
  operation(op.kind).decompose(graph, op);
  graph.results = {op.outputs[0]};
  const std::string text = print(graph);
  EXPECT_THAT(
      text, HasSubstr("%loss.gradient.logits : f32[2,6,20] activations = linear(%x, %wte) {bias=0, out=f32, "
                      "weight=oi} @backward name=loss.gradient.logits\n"
                      "%loss : f32[1] activations = cross_entropy(%loss.gradient.logits, %tokens, "
                      "%inverse_tokens) @backward name=loss.gradient\n"));
  EXPECT_THAT(text,
              HasSubstr("%d.wte.1 : f32[20,8] gradients = linear_dweight(%x, %loss.gradient.dlogits, %d.wte) "
                        "{accumulate=1, overwrite_first=1, weight=oi} @backward name=loss.gradient.dweight "
                        "alias=0:2\n"));
}

}  // namespace
}  // namespace snug
