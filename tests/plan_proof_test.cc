// The whole pipeline without arithmetic: every plan of a table of configurations keeps its own promises.
//
// Each plan is judged (plan/check.h), packed to the bound, read back from its text, and executed for two updates on the null
// backend, which checks every access against it.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "backends/null/null_backend.h"
#include "base/checked.h"
#include "base/errors.h"
#include "compile/pipeline.h"
#include "plan/check.h"
#include "plan/text.h"
#include "runtime/executor.h"
#include "tiny_models.h"
#include "training_run.h"

namespace snug {
namespace {

struct Configuration {
  std::string name;
  Model model;
  CompileOptions options;
};

CompileOptions options_of(Precision precision, const RecomputePolicy& recompute, int64_t accumulation) {
  CompileOptions options;
  options.batch = 2;
  options.length = 24;
  options.precision = precision;
  options.recompute = recompute;
  options.accumulation = accumulation;
  options.evaluate = true;
  options.eval_batch = 3;
  options.generate_lengths = {16, 32};
  return options;
}

void freeze(Model& model, std::string_view part) {
  for (ParameterSpec& parameter : model.parameters)
    if (parameter.name.find(part) != std::string::npos) parameter.trainable = false;
}

// Both families, precisions and policies, one and three micro-steps, with what each family has beside.
std::vector<Configuration> configurations() {
  std::vector<Configuration> all;
  for (const std::string family : {"gpt2", "llama"})
    for (Precision precision : {Precision::kF32, Precision::kBF16})
      for (const RecomputePolicy& recompute : {RecomputePolicy(), parse_recompute_policy("block")})
        for (int64_t accumulation : {1, 3})
          for (const std::string variant :
               {"tied", "untied", "one_block", "frozen_block", "frozen_embedding", "mlp_chunks"}) {
            const TinyModel tiny = {.blocks = variant == "one_block" ? 1 : 3,
                                    .tied = variant != "untied" && variant != "frozen_embedding",
                                    .dropout = variant == "tied" || variant == "mlp_chunks" ? 0.1 : 0.0};
            Model model = family == "gpt2" ? tiny_gpt2(tiny) : tiny_llama(tiny);
            if (variant == "frozen_block") freeze(model, family == "gpt2" ? ".h.0." : ".layers.0.");
            if (variant == "frozen_embedding") freeze(model, family == "gpt2" ? ".wte." : ".embed_tokens.");
            CompileOptions options = options_of(precision, recompute, accumulation);
            if (variant == "mlp_chunks")
              options.mlp_chunk = 20;  // of 48 rows, 72 of an evaluation, up to 32 of a prompt
            all.push_back({fmt::format("{}_{}_{}_{}_{}", family, precision_name(precision),
                                       to_string(recompute), accumulation, variant),
                           std::move(model), options});
          }
  return all;
}

// A host that writes and reads whole tensors: the null backend looks at addresses only.
class Host {
 public:
  Host(const Plan& plan, NullBackend& backend)
      : executor_(plan, backend, [this](const PlanOp& op) { carry_out(op); }) {}

  void run(const PlanPhase& phase, int64_t repetition) {
    for (PlanTensorId input : phase.inputs) executor_.write_input(input, zeros(input));
    executor_.run_phase(phase.name, repetition);
    for (PlanTensorId result : phase.results) executor_.read_result(result, zeros(result));
  }

 private:
  void carry_out(const PlanOp& op) {
    for (PlanTensorId output : op.outputs) executor_.write(output, 0, zeros(output));
    for (PlanTensorId input : op.inputs) executor_.read(input, 0, zeros(input));
  }
  std::span<std::byte> zeros(PlanTensorId id) {
    const PlanTensor& tensor = executor_.plan().tensor(id);
    buffer_.resize(static_cast<size_t>(tensor.shape.bytes(tensor.dtype).value));
    return buffer_;
  }

  std::vector<std::byte> buffer_;
  Executor executor_;
};

// Load, then updates of all their micro-steps, with evaluation and generation in between, then save.
void execute(const Plan& plan) {
  NullBackend backend;
  Host host(plan, backend);
  host.run(*plan.phase("load"), 0);
  for (int update = 0; update < 2; ++update)
    for (const PlanPhase& phase : plan.phases) {
      if (phase.name == "load" || phase.name == "save") continue;
      for (int64_t i = 0; i < std::max<int64_t>(1, phase.repeats); ++i) host.run(phase, i);
    }
  host.run(*plan.phase("save"), 0);
}

class PlanProof : public testing::TestWithParam<Configuration> {};

TEST_P(PlanProof, KeepsEveryRuleAtTheBound) {
  const Configuration& configuration = GetParam();
  const NullTarget target;
  const Compiled compiled = compile(configuration.model, configuration.options, target);
  const Plan& plan = compiled.plan;

  EXPECT_THAT(check_plan(plan, target.alignment()), testing::IsEmpty());
  ASSERT_EQ(plan.memories.size(), 1u);
  EXPECT_EQ(plan.memories[0].arena_bytes, plan.memories[0].lower_bound_bytes) << "a gap above the bound";
  const auto peak =
      std::max_element(plan.phases.begin(), plan.phases.end(),
                       [](const auto& a, const auto& b) { return a.peak_bytes < b.peak_bytes; });
  EXPECT_EQ(plan.memories[0].arena_bytes, peak->peak_bytes) << peak->name;
  EXPECT_EQ(parse_plan(to_string(plan)), plan);
  EXPECT_EQ(plan.phase("micro_step")->repeats, configuration.options.accumulation);
  EXPECT_NO_THROW(execute(plan));

  // The same twice: plans are functions of model, options and target.
  EXPECT_EQ(compile(configuration.model, configuration.options, target).plan, plan);
}

TEST_P(PlanProof, HasWhatEachParameterNeeds) {
  const Configuration& configuration = GetParam();
  const Plan plan = compile(configuration.model, configuration.options, NullTarget()).plan;
  const bool is_bf16 = configuration.options.precision == Precision::kBF16;
  for (const ParameterSpec& parameter : configuration.model.parameters) {
    const bool has_master = parameter.trainable && is_bf16;
    EXPECT_EQ(plan.find("low." + parameter.name).valid(), has_master) << parameter.name;
    EXPECT_FALSE(plan.find("master." + parameter.name).valid()) << parameter.name;
    for (const char* prefix : {"m.", "v.", "d."}) {
      const PlanTensorId id = plan.find(prefix + parameter.name);
      ASSERT_EQ(id.valid(), parameter.trainable) << prefix << parameter.name;
      if (!id.valid()) continue;
      EXPECT_EQ(plan.tensor(id).dtype, DType::kF32);
      EXPECT_EQ(plan.tensor(id).shape, parameter.shape);
    }
    EXPECT_EQ(plan.find("update/moved." + parameter.name).valid(), parameter.trainable) << parameter.name;
  }
}

// What saves memory by changing numbers: every form of state and gradients, in both places of the update.
TEST(LossyPlans, KeepEveryRuleAndHaveTheirTypes) {
  const Model model = tiny_gpt2({.blocks = 2, .tied = true});
  const auto elements_of = [&](const ParameterSpec& parameter) { return parameter.shape.elements(); };
  ASSERT_TRUE(std::any_of(model.parameters.begin(), model.parameters.end(),
                          [&](const auto& p) { return elements_of(p) >= kSmallestCompressed; }));
  for (const Moments moments : {Moments::kF32, Moments::kBF16, Moments::kEightBit})
    for (const MasterWeights master : {MasterWeights::kFull, MasterWeights::kSplit, MasterWeights::kNone})
      for (const UpdatePlacement placement : {UpdatePlacement::kAfter, UpdatePlacement::kInBackward})
        for (const bool bf16_gradients : {false, true}) {
          CompileOptions options = options_of(Precision::kBF16, {}, 1);
          options.master_weights = master;
          options.update_placement = placement;
          options.optimizer.moments = moments;
          options.optimizer.bf16_gradients = bf16_gradients;
          const NullTarget target;
          const Plan plan = compile(model, options, target).plan;
          EXPECT_THAT(check_plan(plan, target.alignment()), testing::IsEmpty());
          EXPECT_EQ(parse_plan(to_string(plan)), plan);
          EXPECT_NO_THROW(execute(plan));
          const bool after = placement == UpdatePlacement::kAfter;
          for (const ParameterSpec& parameter : model.parameters) {
            const bool small = elements_of(parameter) < kSmallestCompressed;
            const DType moment = small || moments == Moments::kF32 ? DType::kF32
                                 : moments == Moments::kBF16       ? DType::kBF16
                                                                   : DType::kU8;
            for (const std::string which : {"m", "v"}) {
              EXPECT_EQ(plan.tensor(plan.find(which + "." + parameter.name)).dtype, moment) << parameter.name;
              const PlanTensorId scales = plan.find(which + "_scale." + parameter.name);
              ASSERT_EQ(scales.valid(), moment == DType::kU8) << parameter.name;
              if (moment == DType::kU8) {
                EXPECT_EQ(plan.tensor(scales).shape, (Shape{ceil_div(elements_of(parameter), 256)}));
              }
            }
            EXPECT_EQ(plan.find("low." + parameter.name).valid(), master == MasterWeights::kSplit);
            EXPECT_EQ(plan.find("master." + parameter.name).valid(), master == MasterWeights::kFull);
            const DType gradient =
                bf16_gradients && !small && parameter.shape.rank() >= 2 ? DType::kBF16 : DType::kF32;
            EXPECT_EQ(plan.tensor(plan.find((after ? "d." : "micro_step/d.") + parameter.name)).dtype,
                      gradient)
                << parameter.name;
          }
          const bool draws = moments == Moments::kBF16 || master == MasterWeights::kNone;
          EXPECT_EQ(plan.find((after ? "update/" : "micro_step/") + std::string(kUpdateRandomness)).valid(),
                    draws);
        }
}

TEST(LossyPlans, RefuseWhatMakesNoSense) {
  const auto refusal = [](const CompileOptions& options) {
    try {
      compile(tiny_gpt2(), options, NullTarget());
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  CompileOptions options = options_of(Precision::kF32, {}, 1);
  options.master_weights = MasterWeights::kNone;
  EXPECT_THAT(refusal(options),
              testing::HasSubstr("master_weights none: found precision fp32, expected bf16"));
  options = options_of(Precision::kBF16, {}, 3);
  options.optimizer.bf16_gradients = true;
  EXPECT_THAT(refusal(options),
              testing::HasSubstr("gradients bf16: found 3 micro-steps an update, expected 1"));
}

// The most bytes that one tensor of f32 logits takes in a plan; 0 without one.
Bytes largest_f32_activation(const Plan& plan, int64_t vocabulary) {
  Bytes largest;
  for (const PlanTensor& tensor : plan.tensors)
    if (tensor.dtype == DType::kF32 && tensor.shape.rank() == 3 && tensor.shape.last() == vocabulary &&
        tensor.parameter.empty())
      largest = std::max(largest, tensor.shape.bytes(tensor.dtype));
  return largest;
}

// T10: one block of 64 channels, 4 x 1024 tokens, 50,304 words: the logits alone are 4 * 1024 * 50,304 * 4 bytes = 786 MiB.
TEST(LogitsPeak, ChunksTakeAtMostAQuarterOfThePlainDecomposition) {
  Gpt2Config config;
  config.vocab_size = 50304;
  config.hidden = 64;
  config.inner = 256;
  config.layers = 1;
  config.heads = 4;
  const Model model = gpt2_model(config);
  CompileOptions options;
  options.batch = 4;
  options.length = 1024;
  const Plan chunked = compile(model, options, NullTarget()).plan;
  options.plain = true;
  const Plan plain = compile(model, options, NullTarget()).plan;

  const Bytes logits(int64_t{4} * 1024 * 50304 * 4);
  EXPECT_EQ(logits, 786 * kMiB);
  EXPECT_EQ(largest_f32_activation(plain, 50304), logits);
  EXPECT_EQ(largest_f32_activation(chunked, 50304), Bytes());

  // Scratch of the head: one chunk of 1024 rows, 1024 * 50,304 * 4 = 196.5 MiB, exactly a quarter.
  Bytes head_scratch;
  for (const PlanOp& op : chunked.phase("micro_step")->ops)
    if (op.op == "head_loss_gradient") head_scratch = chunked.tensor(op.scratch).shape.bytes(DType::kU8);
  EXPECT_GT(head_scratch, Bytes());
  EXPECT_LE(4 * head_scratch, logits);
  // And the arenas differ by the other three quarters, but for the head's small tensors.
  EXPECT_GE(plain.memories[0].arena_bytes + kMiB, chunked.memories[0].arena_bytes + 3 * head_scratch);
}

// T11: ten million f32 parameters. Weights and gradients, 80 MB, fit into 130 MB; the moments' 80 MB more do not.
TEST(OptimizerState, IsPlannedBeforeTheFirstStep) {
  Gpt2Config config;
  config.vocab_size = 1943;
  config.positions = 16;
  config.hidden = 500;
  config.inner = 2000;
  config.layers = 3;
  config.heads = 5;
  const Model model = gpt2_model(config);
  CompileOptions options;
  options.batch = 1;
  options.length = 8;
  const Compiled compiled = compile(model, options, NullTarget());
  const int64_t parameters = compiled.report.parameters;
  ASSERT_EQ(parameters, 10'000'000);

  // Bytes by category, where tensors that share storage count once.
  std::map<std::string, Bytes> categories;
  std::set<int32_t> seen;
  for (const PlanTensor& tensor : compiled.plan.tensors)
    if (seen.insert(tensor.buffer).second) categories[tensor.category] += tensor.shape.bytes(tensor.dtype);
  EXPECT_EQ(categories["weights"], Bytes(4 * parameters));
  EXPECT_EQ(categories["gradients"], Bytes(4 * parameters));
  EXPECT_EQ(categories["optimizer_state"], Bytes(8 * parameters));

  // A budget of 130 MB, and what activations and scratch take at the peak, is short by 30 MB: the plan says so. (At the peak, in the
  // backward, the gradients of the first few tensors are not there yet: less than 1 % of the gap.)
  const PhasePeak& peak = compiled.report.peak;
  const auto at_peak = [&](Category category) { return peak.categories[static_cast<size_t>(category)]; };
  EXPECT_GE(at_peak(Category::kOptimizerState), Bytes(80'000'000));
  EXPECT_LE(at_peak(Category::kOptimizerState), Bytes(80'100'000)) << "rounded to the alignment";
  const Bytes budget = Bytes(130'000'000) + at_peak(Category::kActivations) + at_peak(Category::kScratch) +
                       at_peak(Category::kData);
  EXPECT_NEAR(static_cast<double>((compiled.report.arena - budget).value), 30e6, 0.3e6);

  // The moments live from loading on, not from the first update.
  for (const ParameterSpec& parameter : model.parameters)
    for (const char* moment : {"m.", "v."}) {
      const PlanTensor& planned = compiled.plan.tensor(compiled.plan.find(moment + parameter.name));
      EXPECT_EQ(planned.first, 0) << planned.name;
      EXPECT_EQ(planned.storage, "state") << planned.name;
    }
}

INSTANTIATE_TEST_SUITE_P(Configurations, PlanProof, testing::ValuesIn(configurations()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace snug
