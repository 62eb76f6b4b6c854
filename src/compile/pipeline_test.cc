#include "compile/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "backends/null/null_target.h"
#include "base/errors.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "plan/check.h"
#include "plan/text.h"

namespace snug {
namespace {

Model small_gpt2(int64_t layers, int64_t hidden, int64_t vocabulary, double dropout = 0) {
  Gpt2Config config;
  config.layers = layers;
  config.hidden = hidden;
  config.inner = 4 * hidden;
  config.heads = hidden / 8;
  config.vocab_size = vocabulary;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = dropout;
  return gpt2_model(config);
}

LlamaConfig smollm2_config() {
  LlamaConfig config;
  config.vocab_size = 49152;
  config.hidden = 576;
  config.intermediate = 1536;
  config.layers = 30;
  config.heads = 9;
  config.kv_heads = 3;
  config.head_dim = 64;
  config.tie_word_embeddings = true;
  return config;
}

CompileOptions training(int64_t batch, int64_t length) {
  CompileOptions options;
  options.batch = options.eval_batch = batch;
  options.length = length;
  return options;
}

Bytes at_peak(const Compiled& compiled, Category category) {
  return compiled.report.peak.categories.at(static_cast<size_t>(category));
}

const PlanPhase& phase(const Compiled& compiled, std::string_view name) {
  const PlanPhase* found = compiled.plan.phase(name);
  require(found != nullptr, "no phase {}", name);
  return *found;
}

const PlanTensor* tensor(const Compiled& compiled, std::string_view name) {
  const PlanTensorId id = compiled.plan.find(name);
  return id.valid() ? &compiled.plan.tensor(id) : nullptr;
}

std::multiset<std::string> kinds(const PlanPhase& of) {
  std::multiset<std::string> all;
  for (const PlanOp& op : of.ops) all.insert(op.op);
  return all;
}

TEST(Pipeline, Gpt2HasAllPhasesAndNoGap) {
  CompileOptions options = training(4, 1024);
  options.evaluate = true;
  options.generate_lengths = {16, 32};
  const Compiled compiled = compile(gpt2_model(Gpt2Config()), options, NullTarget());
  std::vector<std::string> names;
  for (const PlanPhase& each : compiled.plan.phases) names.push_back(each.name);
  EXPECT_THAT(names, testing::ElementsAre("load", "micro_step", "update", "evaluate", "generate_16",
                                          "generate_32", "save"));
  EXPECT_EQ(compiled.report.gap, 0);
  EXPECT_EQ(compiled.plan.memories.at(0).arena_bytes, compiled.report.lower_bound);
  EXPECT_EQ(compiled.report.parameters, 124439808);
  // Weights, gradients and two moments in f32: every one a multiple of 64 bytes, so rounding adds nothing.
  EXPECT_EQ(at_peak(compiled, Category::kWeights), Bytes(4LL * 124439808));
  EXPECT_EQ(at_peak(compiled, Category::kOptimizerState), Bytes(8LL * 124439808));
  EXPECT_EQ(compiled.report.recompute_flops, 0);
  EXPECT_TRUE(parse_plan(to_string(compiled.plan)) == compiled.plan);
  RecordProperty("seconds", std::to_string(compiled.report.seconds));
}

// The shapes on which packing is tight: with recomputed blocks and no accumulation a block's input makes room
// for its gradients, which are larger, so that every moment of the backward comes near to the peak.
TEST(Pipeline, LlamaShapesHaveNoGap) {
  const Model model = llama_model(smollm2_config());
  for (const Precision precision : {Precision::kF32, Precision::kBF16})
    for (const RecomputePolicy& policy : {RecomputePolicy(), parse_recompute_policy("block")})
      for (const int64_t accumulation : {1, 4})
        for (const int64_t batch : {4, 16}) {
          CompileOptions options = training(batch, 1024);
          options.evaluate = true;
          options.precision = precision;
          options.recompute = policy;
          options.accumulation = accumulation;
          const Compiled compiled = compile(model, options, NullTarget());
          EXPECT_EQ(compiled.report.gap, 0)
              << static_cast<int>(precision) << " " << to_string(policy) << " " << accumulation << " "
              << batch << ": " << compiled.report.layout_order;
        }
}

TEST(Pipeline, RecomputedBlocksHaveNoGapInEveryFamily) {
  LlamaConfig tinyllama;
  tinyllama.vocab_size = 32000;
  tinyllama.hidden = 2048;
  tinyllama.intermediate = 5632;
  tinyllama.layers = 22;
  tinyllama.heads = 32;
  tinyllama.kv_heads = 4;
  tinyllama.head_dim = 64;
  tinyllama.tie_word_embeddings = false;
  for (const Model& model : {gpt2_model(Gpt2Config()), llama_model(tinyllama)})
    for (const Precision precision : {Precision::kF32, Precision::kBF16})
      for (const int64_t batch : {1, 4, 16}) {
        CompileOptions options = training(batch, 1024);
        options.precision = precision;
        options.recompute = parse_recompute_policy("block");
        const Compiled compiled = compile(model, options, NullTarget());
        EXPECT_EQ(compiled.report.gap, 0) << model.family << " " << static_cast<int>(precision) << " "
                                          << batch << ": " << compiled.report.layout_order;
      }
}

TEST(Pipeline, AHundredBlocksHaveNoGap) {
  LlamaConfig config;  // a 70B model's shapes
  config.layers = 100;
  config.hidden = 8192;
  config.intermediate = 28672;
  config.heads = 64;
  config.kv_heads = 8;
  CompileOptions options = training(1, 2048);
  options.evaluate = true;
  options.precision = Precision::kBF16;
  options.recompute = parse_recompute_policy("block");
  const Compiled compiled = compile(llama_model(config), options, NullTarget());
  EXPECT_EQ(compiled.report.gap, 0);
  RecordProperty("seconds", std::to_string(compiled.report.seconds));
}

// T10: 4 * 1024 * 50304 logits of 4 bytes are 824,180,736 bytes, 786.0 MiB: what failed in
// NVIDIA/Megatron-LM#525.
TEST(Pipeline, WholeLogitsExistOnlyInThePlainPlan) {
  const Model model = small_gpt2(1, 64, 50304);
  CompileOptions options = training(4, 1024);
  options.plain = true;
  const Compiled plain = compile(model, options, NullTarget());
  const auto logits_bytes = [](const Compiled& compiled) {
    Bytes largest;
    for (const PlanTensor& each : compiled.plan.tensors)
      if (each.storage != "state" && each.shape.elements() % 50304 == 0 && each.category != "gradients")
        largest = std::max(largest, each.shape.bytes(each.dtype));
    return largest;
  };
  EXPECT_EQ(logits_bytes(plain), Bytes(824180736));
  EXPECT_EQ(format_bytes(logits_bytes(plain)), "786.0 MiB");
  EXPECT_GE(plain.plan.memories.at(0).arena_bytes, Bytes(824180736));

  // The chunked head holds 1024 rows at a time, in scratch: a quarter.
  options.plain = false;
  const Compiled chunked = compile(model, options, NullTarget());
  EXPECT_LE(logits_bytes(chunked), Bytes(824180736 / 4));
  EXPECT_LT(chunked.plan.memories.at(0).arena_bytes,
            plain.plan.memories.at(0).arena_bytes - Bytes(824180736 / 2));
}

TEST(Pipeline, RecomputingBlocksLowersThePeak) {
  const Model model = small_gpt2(4, 64, 256, 0.1);
  CompileOptions options = training(8, 256);
  const Compiled keep = compile(model, options, NullTarget());
  options.recompute = parse_recompute_policy("block");
  const Compiled again = compile(model, options, NullTarget());
  EXPECT_LT(again.report.arena, keep.report.arena);
  EXPECT_LT(at_peak(again, Category::kActivations), at_peak(keep, Category::kActivations));
  EXPECT_EQ(again.report.update_flops, keep.report.update_flops);
  EXPECT_GT(again.report.recompute_flops, 0);
  // Less than one forward, a third of forward and backward: the head and each block's last product do not
  // run again.
  EXPECT_LT(again.report.recompute_flops, again.report.update_flops / 3);
  // A block has attention, its statistics included, twice in the forward direction: once each, and once
  // again.
  EXPECT_EQ(kinds(phase(again, "micro_step")).count("attention_qkv"), 8u);
  EXPECT_EQ(kinds(phase(keep, "micro_step")).count("attention_qkv"), 4u);
}

TEST(Pipeline, FrozenParametersCostNoGradientNorMoments) {
  Model model = small_gpt2(2, 64, 256);
  const std::string trained = "transformer.h.1.mlp.c_fc.weight";
  for (ParameterSpec& parameter : model.parameters) parameter.trainable = parameter.name == trained;
  const Compiled compiled = compile(model, training(2, 64), NullTarget());
  for (const PlanTensor& each : compiled.plan.tensors) {
    if (each.category != "gradients" && each.category != "optimizer_state") continue;
    EXPECT_TRUE(each.name.find(trained) != std::string::npos) << each.name;
  }
  const std::multiset<std::string> all = kinds(phase(compiled, "micro_step"));
  EXPECT_EQ(all.count("linear_dweight"), 1u);
  EXPECT_EQ(all.count("linear_dx"), 1u);  // of mlp.c_proj, whose input is the gelu behind the trained product
  EXPECT_EQ(all.count("linear_dbias") + all.count("attention_qkv_backward") + all.count("embedding_dtable"),
            0u);
  EXPECT_EQ(phase(compiled, "update").results.size(), 2u);  // control and one `moved`
}

TEST(Pipeline, AccumulationKeepsGradientsThroughTheMicroStep) {
  const Model model = small_gpt2(2, 64, 256);
  CompileOptions options = training(2, 64);
  const Compiled once = compile(model, options, NullTarget());
  options.accumulation = 3;
  const Compiled thrice = compile(model, options, NullTarget());
  const PlanPhase& repeated = phase(thrice, "micro_step");
  EXPECT_EQ(repeated.repeats, 3);
  EXPECT_EQ(phase(once, "micro_step").repeats, 1);
  for (const ParameterSpec& parameter : model.parameters) {
    const PlanTensor* early = tensor(thrice, "d." + parameter.name);
    const PlanTensor* late = tensor(once, "d." + parameter.name);
    ASSERT_TRUE(early != nullptr && late != nullptr) << parameter.name;
    EXPECT_EQ(early->storage, "carried");
    EXPECT_EQ(late->storage, "carried");
    EXPECT_EQ(early->first, repeated.first_moment);
    EXPECT_GT(late->first, phase(once, "micro_step").first_moment);
    EXPECT_EQ(early->shape, parameter.shape);
  }
  // Where the forward's activations peak, every gradient is there already.
  EXPECT_GT(thrice.report.arena, once.report.arena);
  EXPECT_EQ(thrice.report.update_flops, 3 * once.report.update_flops);
}

TEST(Pipeline, Bf16KeepsMastersForTrainingOnly) {
  const Model model = small_gpt2(2, 64, 256);
  const Bytes elements(parameter_count(model));
  CompileOptions options = training(2, 64);
  options.precision = Precision::kBF16;
  options.evaluate = true;
  const Compiled split = compile(model, options, NullTarget());
  EXPECT_EQ(at_peak(split, Category::kWeights), 2 * elements);
  EXPECT_EQ(at_peak(split, Category::kMasterWeights), 2 * elements);
  EXPECT_EQ(kinds(phase(split, "load")).count("narrow_weight"), 0u);
  for (const PlanOp& op : phase(split, "save").ops) {
    ASSERT_EQ(op.inputs.size(), 2u) << op.name;
    EXPECT_EQ(split.plan.tensor(op.inputs[0]).category, "weights");
    EXPECT_EQ(split.plan.tensor(op.inputs[1]).name, "low." + split.plan.tensor(op.inputs[0]).parameter);
  }

  options.master_weights = MasterWeights::kFull;
  const Compiled compiled = compile(model, options, NullTarget());
  EXPECT_EQ(at_peak(compiled, Category::kWeights), 2 * elements);
  EXPECT_EQ(at_peak(compiled, Category::kMasterWeights), 4 * elements);
  EXPECT_EQ(at_peak(compiled, Category::kOptimizerState), 8 * elements);
  EXPECT_EQ(kinds(phase(compiled, "load")).count("narrow_weight"), model.parameters.size());
  for (const PlanOp& op : phase(compiled, "save").ops)
    EXPECT_EQ(compiled.plan.tensor(op.inputs.at(0)).category, "master_weights");

  options.train = options.save = false;
  const Compiled evaluation = compile(model, options, NullTarget());
  EXPECT_EQ(at_peak(evaluation, Category::kWeights), 2 * elements);
  EXPECT_EQ(at_peak(evaluation, Category::kMasterWeights), Bytes(0));
  EXPECT_EQ(at_peak(evaluation, Category::kOptimizerState), Bytes(0));
  EXPECT_EQ(kinds(phase(evaluation, "load")).size(), model.parameters.size());
}

// Two bytes are two bytes: an fp16 plan is the bf16 plan with whole masters, but for the loss scale's two scalars.
TEST(Pipeline, Fp16PlansAreBf16PlansWithWholeMasters) {
  const Model model = small_gpt2(2, 64, 256, 0.1);
  const auto bytes_by_category = [](const Compiled& compiled) {
    std::map<std::string, int64_t> sums;
    for (const PlanTensor& each : compiled.plan.tensors)
      if (!each.name.ends_with("/loss_scale")) sums[each.category] += each.shape.bytes(each.dtype).value;
    return sums;
  };
  for (const char* policy : {"none", "block"}) {
    CompileOptions options = training(2, 64);
    options.accumulation = 2;
    options.evaluate = true;
    options.generate_lengths = {16};
    options.recompute = parse_recompute_policy(policy);
    options.master_weights = MasterWeights::kFull;
    options.precision = Precision::kBF16;
    const Compiled bf16 = compile(model, options, NullTarget());
    options.precision = Precision::kF16;
    const Compiled fp16 = compile(model, options, NullTarget());
    EXPECT_EQ(bytes_by_category(fp16), bytes_by_category(bf16)) << policy;
    for (const Category category : {Category::kWeights, Category::kMasterWeights, Category::kGradients,
                                    Category::kOptimizerState, Category::kActivations, Category::kScratch})
      EXPECT_EQ(at_peak(fp16, category), at_peak(bf16, category)) << policy << " " << category_name(category);
    EXPECT_LE(fp16.report.arena - bf16.report.arena, Bytes(128)) << policy;
    // Asked for halves, an fp16 weight still has a whole master.
    options.master_weights = MasterWeights::kSplit;
    EXPECT_TRUE(compile(model, options, NullTarget()).plan == fp16.plan) << policy;
    EXPECT_EQ(tensor(fp16, "micro_step/loss_scale")->shape, Shape{1});
    EXPECT_EQ(tensor(fp16, "update/loss_scale")->shape, Shape{1});
    EXPECT_EQ(tensor(fp16, "evaluate/loss_scale"), nullptr) << "evaluation makes no gradients";
  }
}

TEST(Pipeline, Fp16IsNotUpdatedInsideTheBackward) {
  CompileOptions options = training(2, 64);
  options.precision = Precision::kF16;
  options.update_placement = UpdatePlacement::kInBackward;
  try {
    compile(small_gpt2(1, 64, 256), options, NullTarget());
    ADD_FAILURE() << "not refused";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), testing::HasSubstr("update_placement in_backward: found precision fp16"));
  }
}

TEST(Pipeline, WeightDecayAppliesToMatricesOnly) {
  const Model model = small_gpt2(1, 64, 256);
  CompileOptions options = training(2, 64);
  options.optimizer.weight_decay = 0.1;
  const Compiled compiled = compile(model, options, NullTarget());
  size_t parameter_idx = 0;
  for (const PlanOp& op : phase(compiled, "update").ops) {
    if (op.op != "adamw") continue;
    EXPECT_EQ(op.attributes.real("weight_decay"), model.parameters.at(parameter_idx).decay ? 0.1 : 0.0)
        << op.name;
    ++parameter_idx;
  }
  EXPECT_EQ(parameter_idx, model.parameters.size());
}

TEST(Pipeline, OptionalPassesSaveBytesAndCanBeSwitchedOff) {
  const Model model = small_gpt2(2, 64, 256);
  CompileOptions options = training(8, 256);
  options.evaluate = true;
  const Compiled all = compile(model, options, NullTarget());
  for (const std::string_view pass : optional_passes()) options.disabled_passes.emplace_back(pass);
  const Compiled without = compile(model, options, NullTarget());
  EXPECT_LT(all.report.arena, without.report.arena);
  EXPECT_EQ(kinds(phase(without, "micro_step")).count("linear_add"), 0u);
  EXPECT_EQ(kinds(phase(all, "micro_step")).count("linear_add"), 4u);
  EXPECT_EQ(kinds(phase(all, "micro_step")).count("linear_gelu"), 2u);
  EXPECT_EQ(kinds(phase(all, "evaluate")).count("linear_gelu"), 0u);
}

TEST(Pipeline, TheSameOptionsGiveTheSamePlan) {
  const Model model = small_gpt2(2, 64, 256, 0.1);
  const CompileOptions options = training(2, 64);
  EXPECT_EQ(to_string(compile(model, options, NullTarget()).plan),
            to_string(compile(model, options, NullTarget()).plan));
}

// Refuses one operation.
class Partial : public NullTarget {
 public:
  std::optional<std::string> refusal(const OpQuery& query) const override {
    if (query.op == "gelu_backward") return "no such kernel here";
    return std::nullopt;
  }
};

TEST(Pipeline, RefusesWhatCannotBe) {
  const Model model = small_gpt2(1, 64, 256);
  const auto refusal = [&](const CompileOptions& options, const Target& target) -> std::string {
    try {
      compile(model, options, target);
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return error.what();
    }
    return "";
  };
  using testing::HasSubstr;
  CompileOptions options = training(2, 64);
  EXPECT_THAT(refusal(options, Partial()),
              testing::AllOf(HasSubstr("gelu_backward"), HasSubstr("no such kernel here")));
  options.disabled_passes = {"differentiate"};
  EXPECT_THAT(refusal(options, NullTarget()),
              HasSubstr("'differentiate' is no optional pass; expected one of fuse, in_place"));
  options = training(0, 64);
  EXPECT_THAT(refusal(options, NullTarget()), HasSubstr("batch: found 0"));
  options = training(2, 64);
  options.train = false;
  EXPECT_THAT(refusal(options, NullTarget()), HasSubstr("nothing to plan for"));
}

}  // namespace
}  // namespace snug
