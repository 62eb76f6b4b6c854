// The master test: how a plan saves memory and where it puts things changes no bit of what is computed.
//
// Each case trains the same tiny model on the same batches with dropout on, once kept whole and laid out by the compiler, and once
// in another way; losses, gradient norms, weights, master weights and moments are compared as bytes.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>

#include "base/errors.h"
#include "plan/check.h"
#include "planner/choose.h"
#include "tiny_models.h"
#include "training_run.h"

namespace snug {
namespace {

constexpr int64_t kBatch = 2, kLength = 33, kUpdates = 3;

// One way of running the same computation.
struct Way {
  RecomputePolicy recompute = {};
  std::vector<std::string> disabled = {};
  std::function<void(Plan&)> rewrite = {};
  int threads = 2;
  double dropout = 0.1;
  bool check_memory = false;
  double budget_share =
      -1;  // from 0: the planner's plan for this share of the way from its smallest arena to keep-all
  // Instead of all of the above but threads, dropout and canary: each drawn from this seed (draw()).
  std::optional<uint64_t> drawn_by = {};
};

struct Base {
  std::string family;
  Precision precision = Precision::kF32;
  int64_t accumulation = 1;
};

struct Outcome {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<std::byte>> state;
  std::map<std::string, std::vector<float>> weights;  // what is trained, in whatever form it is stored
  Bytes arena;
  size_t operations = 0;  // of the micro-step
};

// Every exact choice at once: what becomes of each forward value, when parameters are updated, the form of
// masters, which optional passes run, and where each buffer lies.
void draw(uint64_t seed, const Base& base, CompileOptions& options, std::function<void(Plan&)>& rewrite) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](uint64_t count) { return random() % count; };
  // Few or many values are dropped, not always half of them.
  const uint64_t percent = 10 + one_of(90), values_seed = random();
  options.choose_retentions = [percent, values_seed](const Graph& graph) {
    std::mt19937_64 of_value(values_seed);
    Retentions chosen(graph.tensors.size(), Retention::kKeep);
    for (const Op& op : graph.ops)
      if (op.part == Part::kForward)
        for (TensorId output : op.outputs)
          if (of_value() % 100 < percent)
            chosen[output.index()] =
                of_value() % 2 == 0 ? Retention::kRecompute : Retention::kRecomputeEachBlock;
    return chosen;
  };
  options.master_weights = one_of(2) == 0 ? MasterWeights::kSplit : MasterWeights::kFull;
  // What goes with fp16: masters whole, the update after the backward.
  const bool is_f16 = base.precision == Precision::kF16;
  if (is_f16) options.master_weights = MasterWeights::kFull;
  if (base.accumulation == 1 && one_of(2) == 0 && !is_f16) options.update_placement = UpdatePlacement::kInBackward;
  for (std::string_view pass : optional_passes())
    if (one_of(4) == 0) options.disabled_passes.emplace_back(pass);
  if (one_of(3) != 0) rewrite = [layout_seed = random()](Plan& plan) { shuffled_layout(plan, layout_seed); };
}

Outcome train(const Base& base, const Way& way) {
  const Model model =
      base.family == "gpt2" ? tiny_gpt2({.dropout = way.dropout}) : tiny_llama({.dropout = way.dropout});
  const ParameterFiles weights = ParameterFiles::from_scratch(model, 7);
  CompileOptions options;
  options.batch = kBatch;
  options.length = kLength;
  options.precision = base.precision;
  options.accumulation = base.accumulation;
  options.recompute = way.recompute;
  options.disabled_passes = way.disabled;
  options.optimizer = {.weight_decay = 0.1, .max_grad_norm = 0.5};
  if (way.budget_share >= 0) {
    const cpu::CpuBackend backend(cpu::choose_dispatch(way.threads));
    planner::Planner planner(
        differentiated_micro_step(model, options), backend.target(),
        [&](Graph& graph) { finish_micro_step(graph, options); }, Bytes(0));
    const Bytes low = planner.smallest_budget();
    const Bytes range = planner.outcome(Retentions(planner.graph().tensors.size())).peak - low;
    const auto choice = planner.choose(
        low + Bytes(static_cast<int64_t>(way.budget_share * static_cast<double>(range.value))));
    require(choice.has_value(), "no plan at share {}", way.budget_share);
    options.choose_retentions = [retentions = choice->retentions](const Graph&) { return retentions; };
  }
  std::function<void(Plan&)> rewrite = way.rewrite;
  if (way.drawn_by) draw(*way.drawn_by, base, options, rewrite);
  TrainingRun run(
      model, weights,
      {.compile = options, .threads = way.threads, .rewrite = rewrite, .check_memory = way.check_memory});
  const std::vector<std::string> violations = check_plan(run.plan());
  EXPECT_TRUE(violations.empty()) << violations.front();

  Outcome outcome;
  for (int64_t update = 0; update < kUpdates; ++update) {
    std::vector<Batch> micro_batches;
    for (int64_t i = 0; i < base.accumulation; ++i)
      micro_batches.push_back(random_batch(kBatch, kLength, model.vocabulary, 11, update,
                                           (update * base.accumulation + i) * kBatch));
    const UpdateResult result = run.update(micro_batches, 3e-3f);
    EXPECT_EQ(result.control.applied, 1);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.control.norm);
  }
  outcome.state = run.state();
  for (const ParameterSpec& parameter : model.parameters)
    outcome.weights[parameter.name] = run.weight(parameter.name);
  outcome.arena = run.plan().memories.at(0).arena_bytes;
  outcome.operations = run.plan().phase("micro_step")->ops.size();
  return outcome;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

void expect_same_numbers(const Outcome& a, const Outcome& b) {
  EXPECT_TRUE(same_bits(a.losses, b.losses))
      << testing::PrintToString(a.losses) << " and " << testing::PrintToString(b.losses);
  EXPECT_TRUE(same_bits(a.norms, b.norms))
      << testing::PrintToString(a.norms) << " and " << testing::PrintToString(b.norms);
  for (const auto& [name, weight] : a.weights) {
    EXPECT_TRUE(same_bits(weight, b.weights.at(name))) << name << " differs";
    for (const char* moment : {"m.", "v."})
      EXPECT_TRUE(same_bits(a.state.at(moment + name), b.state.at(moment + name))) << moment << name;
  }
}

// The same, stored in the same form.
void expect_same(const Outcome& a, const Outcome& b) {
  expect_same_numbers(a, b);
  ASSERT_EQ(a.state.size(), b.state.size());
  for (const auto& [name, bytes] : a.state) {
    ASSERT_TRUE(b.state.contains(name)) << name;
    EXPECT_TRUE(same_bits(bytes, b.state.at(name))) << name << " differs";
  }
}

class Invariance : public testing::TestWithParam<Base> {
 protected:
  // Each case needs the plain run; it is the same for all.
  const Outcome& plain() {
    static std::map<std::string, Outcome> known;
    const Base& base = GetParam();
    const std::string key =
        fmt::format("{} {} {}", base.family, precision_name(base.precision), base.accumulation);
    const auto found = known.find(key);
    return found != known.end() ? found->second : known.emplace(key, train(base, {})).first->second;
  }
};

TEST_P(Invariance, TheComparisonCanFail) {
  // Every update sees other numbers, and dropout reaches the losses: equal bits mean something.
  const Outcome& dropped = plain();
  EXPECT_NE(dropped.losses[0], dropped.losses[1]);
  const Outcome whole = train(GetParam(), {.dropout = 0});
  EXPECT_NE(dropped.losses[0], whole.losses[0]);
  for (const auto& [name, bytes] : whole.state)
    EXPECT_FALSE(same_bits(bytes, dropped.state.at(name))) << name << " does not depend on the masks";
}

TEST_P(Invariance, RepeatsItself) { expect_same(plain(), train(GetParam(), {})); }

TEST_P(Invariance, RecomputedBlocks) {
  const Outcome recomputed = train(GetParam(), {.recompute = parse_recompute_policy("block")});
  EXPECT_GT(recomputed.operations, plain().operations) << "nothing was recomputed";
  expect_same(plain(), recomputed);
}

// What the planner chooses for eight budgets, laid out in other ways as well.
TEST_P(Invariance, PlansOfBudgets) {
  for (double share : {0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95}) {
    SCOPED_TRACE(share);
    const Outcome planned = train(GetParam(), {.budget_share = share});
    EXPECT_GT(planned.operations, plain().operations) << "nothing was recomputed";
    expect_same(plain(), planned);
  }
  expect_same(plain(), train(GetParam(),
                             {.rewrite = [](Plan& plan) { shuffled_layout(plan, 5); }, .budget_share = 0.3}));
}

// Forty plans in all, each with every exact choice drawn at random.
TEST_P(Invariance, PlansDrawnAtRandom) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    const Outcome drawn = train(GetParam(), {.drawn_by = seed});
    EXPECT_NE(drawn.operations, plain().operations) << "nothing was recomputed";
    expect_same_numbers(plain(), drawn);
  }
}

TEST_P(Invariance, WithoutInPlace) { expect_same(plain(), train(GetParam(), {.disabled = {"in_place"}})); }

TEST_P(Invariance, WithoutFusion) {
  const Outcome plain_operations = train(GetParam(), {.disabled = {"fuse"}});
  EXPECT_GT(plain_operations.operations, plain().operations) << "nothing was fused";
  expect_same(plain(), plain_operations);
}

TEST_P(Invariance, RecomputedBlocksWithoutInPlaceOrFusion) {
  expect_same(plain(), train(GetParam(), {.recompute = parse_recompute_policy("block"),
                                          .disabled = {"in_place", "fuse"}}));
}

TEST_P(Invariance, NoTwoBuffersShareAByte) {
  const Outcome spread = train(GetParam(), {.rewrite = spread_layout});
  EXPECT_GT(spread.arena, plain().arena);
  expect_same(plain(), spread);
}

TEST_P(Invariance, BuffersPlacedInAnotherOrder) {
  for (uint64_t seed : {1, 2})
    expect_same(plain(), train(GetParam(), {.rewrite = [seed](Plan& plan) { shuffled_layout(plan, seed); }}));
  expect_same(plain(), train(GetParam(), {.recompute = parse_recompute_policy("block"),
                                          .rewrite = [](Plan& plan) { shuffled_layout(plan, 3); }}));
}

TEST_P(Invariance, EachNumberOfThreadsRepeatsItself) {
  for (int threads : {1, 3}) {
    const Outcome first = train(GetParam(), {.threads = threads});
    expect_same(first, train(GetParam(), {.threads = threads}));
    expect_same(first, train(GetParam(), {.recompute = parse_recompute_policy("block"), .threads = threads}));
    for (size_t i = 0; i < first.losses.size(); ++i)
      EXPECT_NEAR(first.losses[i], plain().losses[i], 2e-2) << threads << " threads";
  }
}

// No kernel touches a byte that is not its own: the canary watches real runs, and changes nothing.
TEST_P(Invariance, UnderTheCanary) {
  expect_same(plain(), train(GetParam(), {.check_memory = true}));
  expect_same(plain(),
              train(GetParam(), {.recompute = parse_recompute_policy("block"), .check_memory = true}));
}

// Freezing tensors leaves their bits alone, and changes none of the gradients that remain.
TEST_P(Invariance, FrozenTensors) {
  Model model = GetParam().family == "gpt2" ? tiny_gpt2() : tiny_llama();
  const ParameterFiles weights = ParameterFiles::from_scratch(model, 7);
  CompileOptions options;
  options.batch = kBatch;
  options.length = kLength;
  options.precision = GetParam().precision;
  const Batch batch = random_batch(kBatch, kLength, model.vocabulary, 11);
  const float inverse_tokens = 1.0f / static_cast<float>(batch.supervised_tokens);
  TrainingRun whole(model, weights, {.compile = options});
  whole.micro_step(batch, inverse_tokens, 0);

  Model frozen = model;
  for (ParameterSpec& parameter : frozen.parameters)
    parameter.trainable = parameter.name.find(".1.") != std::string::npos && parameter.decay;
  TrainingRun part(frozen, weights, {.compile = options});
  const auto before = part.state();
  part.micro_step(batch, inverse_tokens, 0);
  int trained = 0;
  for (const ParameterSpec& parameter : frozen.parameters)
    if (parameter.trainable) {
      ++trained;
      EXPECT_TRUE(same_bits(part.bytes("d." + parameter.name), whole.bytes("d." + parameter.name)))
          << parameter.name;
    }
  EXPECT_GE(trained, 4);
  ASSERT_EQ(part.apply(1e-2f, true).applied, 1);
  const auto after = part.state();
  for (const ParameterSpec& parameter : frozen.parameters) {
    const std::string stored =
        after.contains("low." + parameter.name) ? "low." + parameter.name : parameter.name;
    EXPECT_EQ(same_bits(before.at(stored), after.at(stored)), !parameter.trainable) << parameter.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, Invariance,
                         testing::Values(Base{"gpt2", Precision::kF32, 1}, Base{"gpt2", Precision::kF32, 3},
                                         Base{"gpt2", Precision::kBF16, 1}, Base{"gpt2", Precision::kBF16, 3},
                                         Base{"llama", Precision::kF32, 1}, Base{"llama", Precision::kF32, 3},
                                         Base{"llama", Precision::kBF16, 1},
                                         Base{"llama", Precision::kBF16, 3},
                                         Base{"gpt2", Precision::kF16, 3}, Base{"llama", Precision::kF16, 1}),
                         [](const auto& test) {
                           return fmt::format("{}_{}_{}", test.param.family,
                                              precision_name(test.param.precision), test.param.accumulation);
                         });

}  // namespace
}  // namespace snug
