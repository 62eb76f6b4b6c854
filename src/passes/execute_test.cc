// Every rewrite keeps the answer: a small model's micro-step and update run on the CPU backend with and
// without each pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "backends/cpu/backend.h"
#include "base/errors.h"
#include "compile/pipeline.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "runtime/executor.h"

namespace snug {
namespace {

constexpr int64_t kVocabulary = 61, kLength = 24;

// A pseudo-random integer of two indices, the same on every machine (splitmix64).
uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15ULL + b;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

Model gpt2_with_dropout() {
  Gpt2Config config;
  config.layers = 4;
  config.hidden = 32;
  config.inner = 128;
  config.heads = 4;
  config.positions = kLength;
  config.vocab_size = kVocabulary;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.1;
  return gpt2_model(config);
}

Model grouped_llama_with_dropout() {
  LlamaConfig config;
  config.vocab_size = kVocabulary;
  config.positions = kLength;
  config.hidden = 32;
  config.intermediate = 80;
  config.layers = 4;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.attention_dropout = 0.1;
  return llama_model(config);
}

using Values = std::vector<float>;

struct Outcome {
  double loss = 0;  // sum over the micro-steps of an update
  std::map<std::string, Values> gradients, weights;
};

// read_tensor of these tests writes whole f32 tensors.
CompileOptions with_full_masters(CompileOptions options) {
  options.master_weights = MasterWeights::kFull;
  return options;
}

class Update {
 public:
  Update(const Model& model, const CompileOptions& options)
      : model_(model),
        options_(with_full_masters(options)),
        backend_(cpu::choose_dispatch(2), cpu::CpuRates()),
        compiled_(compile(model, options_, backend_.target())),
        executor_(compiled_.plan, backend_, [this](const PlanOp& op) { read_tensor(op); }) {}

  Outcome operator()() {
    Outcome outcome;
    executor_.run_phase("load");
    for (int64_t repetition = 0; repetition < options_.accumulation; ++repetition) {
      write_inputs(repetition);
      executor_.run_phase("micro_step", repetition);
      outcome.loss += values("micro_step/loss").at(0);
    }
    for (const ParameterSpec& parameter : model_.parameters)
      outcome.gradients[parameter.name] = values("d." + parameter.name);
    const float hyperparameters[4] = {1e-3F, 1 - 0.9F, 1 - 0.999F, 1};
    executor_.write_input("update/hyperparameters", std::as_bytes(std::span(hyperparameters)));
    executor_.run_phase("update");
    for (const ParameterSpec& parameter : model_.parameters) {
      const std::string master = "master." + parameter.name;
      outcome.weights[parameter.name] = values(compiled_.plan.find(master).valid() ? master : parameter.name);
    }
    return outcome;
  }

 private:
  void read_tensor(const PlanOp& op) {
    const PlanTensor& tensor = compiled_.plan.tensor(op.outputs.at(0));
    const bool is_norm = tensor.shape.rank() == 1 && tensor.name.find("bias") == std::string::npos;
    Values weight(static_cast<size_t>(tensor.shape.elements()));
    for (size_t i = 0; i < weight.size(); ++i) {
      const double uniform =
          static_cast<double>(mixed(std::hash<std::string>{}(tensor.parameter), i) >> 40) / (1 << 24);
      weight[i] = static_cast<float>((is_norm ? 1 : 0) + 0.2 * (uniform - 0.5));
    }
    executor_.write(op.outputs.at(0), 0, std::as_bytes(std::span(weight)));
  }

  // Sample s of the update is the same whichever micro-step and row it is in; sample s has s + 1 ignored
  // targets.
  void write_inputs(int64_t repetition) {
    const auto write = [&](std::string_view name, const auto& source) {
      const std::string full = fmt::format("micro_step/{}", name);
      if (compiled_.plan.find(full).valid()) executor_.write_input(full, std::as_bytes(std::span(source)));
    };
    std::vector<int32_t> tokens, targets, positions, document_starts;
    std::vector<uint32_t> randomness;
    for (int64_t row = 0; row < options_.batch; ++row) {
      const auto sample = static_cast<uint64_t>(repetition * options_.batch + row);
      for (uint64_t t = 0; t < kLength; ++t) {
        const auto token = [&](uint64_t position) {
          return static_cast<int32_t>(mixed(sample, position) % kVocabulary);
        };
        tokens.push_back(token(t));
        targets.push_back(t <= sample ? -100 : token(t + 1));
        positions.push_back(static_cast<int32_t>(t));
        document_starts.push_back(t < 10 ? 0 : 10);
      }
      for (const uint32_t word : {7U, 9U, 1U, static_cast<uint32_t>(sample)}) randomness.push_back(word);
    }
    int64_t supervised = 0;
    for (int64_t sample = 0; sample < options_.accumulation * options_.batch; ++sample)
      supervised += kLength - 1 - sample;
    write("tokens", tokens);
    write("targets", targets);
    write("positions", positions);
    write("document_starts", document_starts);
    write("randomness", randomness);
    write("inverse_tokens", Values{1.0F / static_cast<float>(supervised)});
  }

  Values values(std::string_view name) {
    const PlanTensorId id = executor_.tensor(name);
    Values read(static_cast<size_t>(compiled_.plan.tensor(id).shape.elements()));
    executor_.read(id, 0, std::as_writable_bytes(std::span(read)));
    return read;
  }

  Model model_;
  CompileOptions options_;
  cpu::CpuBackend backend_;
  Compiled compiled_;
  Executor executor_;
};

CompileOptions training(Precision precision) {
  CompileOptions options;
  options.batch = 4;
  options.length = kLength;
  options.precision = precision;
  options.save = false;
  return options;
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_same_bits(const Outcome& found, const Outcome& expected) {
  EXPECT_EQ(found.loss, expected.loss);
  for (const auto& [name, gradient] : expected.gradients)
    EXPECT_TRUE(same_bits(found.gradients.at(name), gradient)) << name;
  for (const auto& [name, weight] : expected.weights)
    EXPECT_TRUE(same_bits(found.weights.at(name), weight)) << name;
}

// Every element within `tolerance` of the tensor's largest magnitude.
void expect_close(const Outcome& found, const Outcome& expected, double tolerance) {
  EXPECT_NEAR(found.loss, expected.loss, tolerance * std::abs(expected.loss));
  for (const auto& [name, gradient] : expected.gradients) {
    float largest = 0, difference = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      largest = std::max(largest, std::abs(gradient[i]));
      difference = std::max(difference, std::abs(found.gradients.at(name)[i] - gradient[i]));
    }
    EXPECT_GT(largest, 0) << name;
    EXPECT_LE(difference, tolerance * largest) << name;
  }
}

struct Subject {
  const char* name;
  Model (*model)();
  Precision precision;
};
void PrintTo(const Subject& subject, std::ostream* stream) { *stream << subject.name; }

class Execute : public testing::TestWithParam<Subject> {
 protected:
  Outcome run(const CompileOptions& options) const { return Update(GetParam().model(), options)(); }
  CompileOptions base() const { return training(GetParam().precision); }
};

TEST_P(Execute, EveryRecomputePolicyGivesTheSameBits) {
  const Outcome keep = run(base());
  EXPECT_NEAR(keep.loss, std::log(kVocabulary), 0.5);  // an untrained model knows nothing
  std::vector<std::string> policies = {"block", "uniform:2", "uniform:3"};
  std::string all_groups;
  for (const std::string_view group : recompute_groups()) {
    policies.push_back(fmt::format("selective:{}", group));
    all_groups += fmt::format("{}{}", all_groups.empty() ? "" : ",", group);
  }
  policies.push_back("selective:" + all_groups);
  for (const std::string& policy : policies) {
    SCOPED_TRACE(policy);
    CompileOptions options = base();
    options.recompute = parse_recompute_policy(policy);
    expect_same_bits(run(options), keep);
  }
}

// Segments of two blocks: the boundary inside is made again once, what lies inside a block by each block that
// needs it.
Retentions nested(const Graph& graph) {
  Retentions chosen = retentions(graph, {.kind = RecomputePolicy::Kind::kUniform, .every = 2});
  const Retentions inside = retentions(graph, {.kind = RecomputePolicy::Kind::kBlock});
  for (size_t tensor_idx = 0; tensor_idx < chosen.size(); ++tensor_idx)
    if (inside[tensor_idx] == Retention::kRecompute) chosen[tensor_idx] = Retention::kRecomputeEachBlock;
  return chosen;
}

TEST_P(Execute, NestedRecomputationGivesTheSameBits) {
  CompileOptions options = base();
  options.choose_retentions = nested;
  expect_same_bits(run(options), run(base()));
}

// Whatever is dropped, also what no policy would drop, such as statistics without their output.
TEST_P(Execute, RandomRetentionsGiveTheSameBits) {
  const Outcome keep = run(base());
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    size_t dropped = 0;
    CompileOptions options = base();
    options.choose_retentions = [&](const Graph& graph) {
      Retentions chosen(graph.tensors.size(), Retention::kKeep);
      for (const Op& op : graph.ops)
        for (TensorId output : op.outputs)
          if (op.part == Part::kForward)
            chosen[output.index()] = static_cast<Retention>(mixed(seed, output.index()) % 3);
      dropped =
          chosen.size() - static_cast<size_t>(std::count(chosen.begin(), chosen.end(), Retention::kKeep));
      return chosen;
    };
    expect_same_bits(run(options), keep);
    EXPECT_GT(dropped, 20u);
  }
}

// Of all gradients as one vector: the length of the difference as a part of the expected length.
double gradient_distance(const Outcome& found, const Outcome& expected) {
  double difference = 0, length = 0;
  for (const auto& [name, gradient] : expected.gradients)
    for (size_t i = 0; i < gradient.size(); ++i) {
      difference += std::pow(found.gradients.at(name)[i] - gradient[i], 2);
      length += std::pow(gradient[i], 2);
    }
  return std::sqrt(difference / length);
}

// The forward computes on what it made, so the loss keeps its bits; a gradient is off by what a code of three (two) binary digits
// loses of each number: at most 2^-4 (2^-3), and less of a sum.
TEST_P(Execute, CompressedActivationsChangeGradientsAlone) {
  const Outcome keep = run(base());
  for (const auto& [policy, tolerance] :
       std::vector<std::pair<std::string, double>>{{"compress:mlp", 0.03},
                                                   {"compress:attention,norm", 0.03},
                                                   {"compress", 0.03},
                                                   {"compress_e5m2", 0.06}}) {
    SCOPED_TRACE(policy);
    CompileOptions options = base();
    options.recompute = parse_recompute_policy(policy);
    const Outcome compressed = run(options);
    EXPECT_EQ(compressed.loss, keep.loss);
    const double distance = gradient_distance(compressed, keep);
    EXPECT_LE(distance, tolerance);
    EXPECT_GE(distance, 1e-4);
    size_t changed = 0;
    for (const auto& [name, gradient] : keep.gradients)
      changed += same_bits(compressed.gradients.at(name), gradient) ? 0 : 1;
    EXPECT_GT(changed, keep.gradients.size() / 3);
    expect_same_bits(run(options), compressed);
  }
}

// In any mixture with recomputation, whose chains then begin at decoded values. What leaves a block is kept: the head, and with it
// the loss, would be made again from 8 bits.
TEST_P(Execute, CompressionMixesWithRecomputation) {
  const Outcome keep = run(base());
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    CompileOptions options = base();
    options.choose_retentions = [&](const Graph& graph) {
      Retentions chosen = retentions(graph, {.kind = RecomputePolicy::Kind::kBlock});
      for (const Op& op : graph.ops)
        for (size_t output = 0; output < op.outputs.size(); ++output) {
          Retention& of = chosen[op.outputs[output].index()];
          if (of == Retention::kKeep) continue;
          const uint64_t random = mixed(seed, op.outputs[output].index());
          of = static_cast<Retention>(random % 3);
          if (compressible(graph, op, output) && random % 2 == 0) of = Retention::kCompress;
        }
      return chosen;
    };
    const Outcome compressed = run(options);
    EXPECT_EQ(compressed.loss, keep.loss);
    EXPECT_LE(gradient_distance(compressed, keep), 0.03);
  }
}

TEST_P(Execute, FusionAndSharedStorageGiveTheSameBits) {
  const Outcome all = run(base());
  for (const char* pass : {"fuse", "in_place"}) {
    CompileOptions options = base();
    options.disabled_passes = {pass};
    SCOPED_TRACE(pass);
    expect_same_bits(run(options), all);
  }
}

TEST_P(Execute, ThePlainDecompositionAgrees) {
  CompileOptions options = base();
  options.plain = true;
  expect_close(run(options), run(base()), GetParam().precision == Precision::kF32 ? 1e-5 : 2e-2);
}

// 96 rows: chunks of 40, 40 and 16.
TEST_P(Execute, AnMlpInChunksAgreesAndOneChunkHasTheSameBits) {
  const Outcome whole = run(base());
  CompileOptions options = base();
  options.mlp_chunk = options.batch * options.length;
  expect_same_bits(run(options), whole);
  options.mlp_chunk = 40;
  const Outcome chunked = run(options);
  expect_close(chunked, whole, GetParam().precision == Precision::kF32 ? 2e-6 : 2e-2);
  expect_same_bits(run(options), chunked);

  // What is chosen beside it changes nothing more.
  for (const char* policy : {"block", "uniform:2", "selective:mlp,norm,projection"}) {
    SCOPED_TRACE(policy);
    CompileOptions dropping = options;
    dropping.recompute = parse_recompute_policy(policy);
    expect_same_bits(run(dropping), chunked);
  }
  for (const char* pass : {"fuse", "in_place"}) {
    SCOPED_TRACE(pass);
    CompileOptions without = options;
    without.disabled_passes = {pass};
    expect_same_bits(run(without), chunked);
  }
  // Its decomposition multiplies all rows at once, as nothing else does then.
  options.plain = true;
  expect_close(run(options), whole, GetParam().precision == Precision::kF32 ? 1e-5 : 2e-2);
}

TEST_P(Execute, AnMlpInChunksAddsUpOverMicroSteps) {
  CompileOptions options = base();
  options.mlp_chunk = 10;
  const Outcome once = run(options);
  options.batch = 1;
  options.accumulation = 4;
  expect_close(run(options), once, GetParam().precision == Precision::kF32 ? 2e-6 : 2e-2);
}

// Four samples at once, or one after another into one accumulator; each has its own number of supervised
// tokens.
TEST_P(Execute, MicroStepsAddUpToTheBatch) {
  CompileOptions options = base();
  options.batch = 1;
  options.accumulation = 4;
  expect_close(run(options), run(base()), GetParam().precision == Precision::kF32 ? 2e-6 : 2e-2);
}

// The more is dropped, the less is held: a segment of uniform:2 has both blocks' insides at once, the nested
// form those of one; both save the boundary inside.
TEST_P(Execute, RetentionsDecideWhatThePeakHolds) {
  const cpu::CpuBackend backend(cpu::choose_dispatch(2), cpu::CpuRates());
  const auto report = [&](const std::function<Retentions(const Graph&)>& choose) {
    CompileOptions options = base();
    options.batch = 256;  // activations outweigh the state
    options.choose_retentions = choose;
    return compile(GetParam().model(), options, backend.target()).report;
  };
  const auto policy = [](std::string_view text) {
    return [=](const Graph& graph) { return retentions(graph, parse_recompute_policy(text)); };
  };
  const CompileReport keep = report(policy("none")), block = report(policy("block"));
  const CompileReport uniform = report(policy("uniform:2")), nesting = report(nested);
  EXPECT_LT(block.lower_bound, uniform.lower_bound);
  EXPECT_LT(nesting.lower_bound, uniform.lower_bound);
  EXPECT_LT(uniform.lower_bound, keep.lower_bound);
  // Nested runs the first block of each segment twice but for its last product, uniform:2 runs it once whole.
  EXPECT_EQ(keep.recompute_flops, 0);
  EXPECT_GT(uniform.recompute_flops, block.recompute_flops);
  EXPECT_GT(nesting.recompute_flops, uniform.recompute_flops);
  EXPECT_EQ(nesting.update_flops, keep.update_flops);
}

TEST(ExecutePolicy, ThatNeedsABudgetIsRefusedWithoutOne) {
  const cpu::CpuBackend backend(cpu::choose_dispatch(2), cpu::CpuRates());
  CompileOptions options = training(Precision::kF32);
  options.recompute = parse_recompute_policy("memory");
  try {
    compile(gpt2_with_dropout(), options, backend.target());
    ADD_FAILURE() << "not refused";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("policy memory chooses by a memory budget"), std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Execute,
                         testing::Values(Subject{"gpt2_f32", gpt2_with_dropout, Precision::kF32},
                                         Subject{"gpt2_bf16", gpt2_with_dropout, Precision::kBF16},
                                         Subject{"llama_f32", grouped_llama_with_dropout, Precision::kF32},
                                         Subject{"llama_bf16", grouped_llama_with_dropout, Precision::kBF16}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace snug
