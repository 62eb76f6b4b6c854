// MLPs over chunks of rows: other orders of the same sums, fewer bytes, and no other number changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compile/budget.h"
#include "plan/check.h"
#include "tiny_models.h"
#include "training_run.h"

namespace snug {
namespace {

constexpr int64_t kBatch = 4, kLength = 33, kUpdates = 10;
constexpr float kRate = 3e-3F;

struct Case {
  std::string family;
  Precision precision = Precision::kF32;
};
void PrintTo(const Case& tested, std::ostream* stream) {
  *stream << tested.family << " " << precision_name(tested.precision);
}

class MlpChunkRuns : public testing::TestWithParam<Case> {
 protected:
  MlpChunkRuns()
      : model_(GetParam().family == "gpt2" ? tiny_gpt2({.blocks = 3}) : tiny_llama({.blocks = 3})),
        weights_(ParameterFiles::from_scratch(model_, 7)) {}

  CompileOptions options(int64_t mlp_chunk) const {
    CompileOptions options;
    options.batch = kBatch;
    options.length = kLength;
    options.precision = GetParam().precision;
    if (options.precision == Precision::kF16) options.master_weights = MasterWeights::kFull;
    options.optimizer = {.weight_decay = 0.1, .max_grad_norm = 1.0};
    options.mlp_chunk = mlp_chunk;
    options.evaluate = true;
    options.eval_batch = 2;
    options.staging = Bytes(4096);  // the micro-step has the peak, as with models of real size
    return options;
  }
  // What ten updates and an evaluation saw, and the state that they left.
  struct Seen {
    std::vector<double> losses;
    std::map<std::string, std::vector<std::byte>> state;
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  Seen train(const CompileOptions& chosen, bool check_memory = false) const {
    TrainingRun run(model_, weights_, {.compile = chosen, .check_memory = check_memory});
    EXPECT_THAT(check_plan(run.plan()), testing::IsEmpty());
    Seen seen;
    for (int64_t update = 0; update < kUpdates; ++update) {
      std::vector<Batch> batches;
      for (int64_t step = 0; step < chosen.accumulation; ++step)
        batches.push_back(
            random_batch(chosen.batch, kLength, model_.vocabulary, 11, update, step * chosen.batch));
      const UpdateResult result = run.update(batches, kRate);
      EXPECT_EQ(result.control.applied, 1);
      seen.losses.push_back(result.loss);
    }
    seen.losses.push_back(run.evaluate(random_batch(2, kLength, model_.vocabulary, 13)));
    seen.state = run.state();
    return seen;
  }
  static void expect_close(const Seen& found, const Seen& expected, double tolerance) {
    ASSERT_EQ(found.losses.size(), expected.losses.size());
    for (size_t i = 0; i < found.losses.size(); ++i)
      EXPECT_NEAR(found.losses[i], expected.losses[i], tolerance * expected.losses[i]) << i;
  }
  double tolerance() const { return GetParam().precision == Precision::kF32 ? 1e-5 : 5e-3; }

  Model model_;
  ParameterFiles weights_;
};

// 132 rows of a micro-step, 66 of an evaluation.
TEST_P(MlpChunkRuns, LossesAgreeWithTheWhole) {
  const Seen whole = train(options(0));
  for (int64_t chunk : {100, 32, 5}) {
    SCOPED_TRACE(chunk);
    const Seen chunked = train(options(chunk), true);
    expect_close(chunked, whole, tolerance());
    EXPECT_EQ(train(options(chunk)), chunked) << "the same bits every time";
  }
}

TEST_P(MlpChunkRuns, AChunkOfAllRowsIsTheWholeRun) {
  EXPECT_EQ(train(options(kBatch * kLength)), train(options(0)));
  EXPECT_EQ(train(options(1'000'000)), train(options(0)));
}

// What else is chosen keeps the bits of a chunk's length.
TEST_P(MlpChunkRuns, ExactChoicesChangeNothing) {
  const CompileOptions base = options(40);
  const Seen kept = train(base);
  for (const char* policy : {"block", "selective:mlp,norm"}) {
    SCOPED_TRACE(policy);
    CompileOptions dropping = base;
    dropping.recompute = parse_recompute_policy(policy);
    EXPECT_EQ(train(dropping, true), kept);
  }
  if (base.precision == Precision::kF16) return;  // which updates behind the backward
  CompileOptions inside = base;
  inside.update_placement = UpdatePlacement::kInBackward;
  EXPECT_EQ(train(inside, true), kept);
  inside.recompute = parse_recompute_policy("block");
  EXPECT_EQ(train(inside), kept);
}

TEST_P(MlpChunkRuns, GradientsOfSeveralMicroStepsAndInBf16) {
  CompileOptions accumulating = options(0);
  accumulating.batch = 2;
  accumulating.accumulation = 2;
  const Seen whole = train(accumulating);
  accumulating.mlp_chunk = 20;
  expect_close(train(accumulating, true), whole, tolerance());
  CompileOptions narrow = options(0);
  narrow.optimizer.bf16_gradients = true;
  const Seen narrowed = train(narrow);
  narrow.mlp_chunk = 20;
  expect_close(train(narrow, true), narrowed, 5e-3);
}

// Frozen weights have no gradient, and what is trained around them is the same.
TEST_P(MlpChunkRuns, FrozenParametersStayAndTheOthersMove) {
  for (const char* part : {".1.mlp.", "c_fc", "down_proj", "gate_proj", "bias", "wte", "embed_tokens"}) {
    Model frozen = model_;
    bool any = false;
    for (ParameterSpec& parameter : frozen.parameters)
      if (parameter.name.find(part) != std::string::npos) {
        parameter.trainable = false;
        any = true;
      }
    if (!any) continue;
    SCOPED_TRACE(part);
    TrainingRun whole(frozen, weights_, {.compile = options(0)}),
        chunked(frozen, weights_, {.compile = options(40)});
    for (int64_t update = 0; update < 3; ++update) {
      const Batch batch = random_batch(kBatch, kLength, frozen.vocabulary, 11, update);
      const double expected = whole.update(std::span(&batch, 1), kRate).loss;
      EXPECT_NEAR(chunked.update(std::span(&batch, 1), kRate).loss, expected, tolerance() * expected);
    }
    for (const ParameterSpec& parameter : frozen.parameters)
      EXPECT_EQ(chunked.plan().find("d." + parameter.name).valid(), parameter.trainable) << parameter.name;
  }
}

// Both keeping everything and the smallest plan hold less, the chunks' scratch counted, where MLPs are as wide as they are.
TEST_P(MlpChunkRuns, HoldLess) {
  Model wide;
  if (GetParam().family == "gpt2") {
    Gpt2Config config = std::get<Gpt2Config>(model_.config);
    config.inner = 6 * config.hidden;
    wide = gpt2_model(config);
  } else {
    LlamaConfig config = std::get<LlamaConfig>(model_.config);
    config.intermediate = 6 * config.hidden;
    wide = llama_model(config);
  }
  const cpu::CpuBackend backend(cpu::choose_dispatch(2),
                                {.product_flops_per_second = 1e11, .bytes_per_second = 1e10});
  const auto arenas = [&](int64_t chunk) {
    CompileOptions chosen = options(chunk);
    chosen.batch = 32;  // activations outweigh the state
    chosen.head_chunk = 64;
    BudgetSearch search(wide, chosen, backend.target());
    return std::pair(search.keep_all().arena, search.smallest().compiled.report.arena);
  };
  const auto [whole, smallest_whole] = arenas(0);
  const auto [chunked, smallest_chunked] = arenas(64);
  EXPECT_LT(chunked, whole);
  EXPECT_LT(smallest_chunked, smallest_whole);
}

INSTANTIATE_TEST_SUITE_P(Models, MlpChunkRuns,
                         testing::Values(Case{"gpt2"}, Case{"gpt2", Precision::kBF16},
                                         Case{"gpt2", Precision::kF16}, Case{"llama"},
                                         Case{"llama", Precision::kBF16}),
                         [](const auto& tested) {
                           return tested.param.family + "_" + precision_name(tested.param.precision);
                         });

}  // namespace
}  // namespace snug
