// Saved activations in 8 bits: the forward keeps its bits, less is held, and training goes on as it did.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compile/budget.h"
#include "plan/check.h"
#include "tiny_models.h"
#include "training_run.h"

namespace snug {
namespace {

constexpr int64_t kBatch = 4, kLength = 33, kUpdates = 40;
constexpr float kRate = 3e-3F;

struct Case {
  std::string family;
  Precision precision = Precision::kF32;
};
void PrintTo(const Case& tested, std::ostream* stream) {
  *stream << tested.family << " " << precision_name(tested.precision);
}

class CompressedRuns : public testing::TestWithParam<Case> {
 protected:
  CompressedRuns()
      : model_(GetParam().family == "gpt2" ? tiny_gpt2({.blocks = 3}) : tiny_llama({.blocks = 3})),
        weights_(ParameterFiles::from_scratch(model_, 7)) {}

  CompileOptions options() const {
    CompileOptions options;
    options.batch = kBatch;
    options.length = kLength;
    options.precision = GetParam().precision;
    options.optimizer = {.weight_decay = 0.1, .max_grad_norm = 1.0};
    options.staging = Bytes(4096);  // the micro-step has the peak, as with models of real size
    return options;
  }
  CompileOptions with_policy(std::string_view policy) const {
    CompileOptions chosen = options();
    chosen.recompute = parse_recompute_policy(policy);
    return chosen;
  }
  // The losses of all updates on one batch, which the model learns by heart.
  std::vector<double> losses(const CompileOptions& chosen) const {
    TrainingRun run(model_, weights_, {.compile = chosen});
    std::vector<double> losses;
    for (int64_t update = 0; update < kUpdates; ++update) {
      const Batch batch = random_batch(kBatch, kLength, model_.vocabulary, 11);
      losses.push_back(run.update(std::span(&batch, 1), kRate).loss);
    }
    return losses;
  }
  Bytes arena(const CompileOptions& chosen) const {
    return TrainingRun(model_, weights_, {.compile = chosen}).plan().memories.at(0).arena_bytes;
  }

  static double mean_of_last(const std::vector<double>& losses) {
    constexpr int64_t kLast = 4;
    double sum = 0;
    for (auto loss = losses.end() - kLast; loss != losses.end(); ++loss) sum += *loss;
    return sum / kLast;
  }

  Model model_;
  ParameterFiles weights_;
};

TEST_P(CompressedRuns, LearnWhatExactRunsLearn) {
  const std::vector<double> exact = losses(options());
  EXPECT_LT(mean_of_last(exact), 0.95 * exact.front());  // there is something to learn
  for (const char* policy : {"compress", "compress_e5m2:mlp,norm"}) {
    SCOPED_TRACE(policy);
    const std::vector<double> found = losses(with_policy(policy));
    EXPECT_EQ(found.front(), exact.front());  // the forward of the first weights, bit by bit
    EXPECT_NE(found.back(), exact.back());
    EXPECT_NEAR(mean_of_last(found), mean_of_last(exact), 0.01 * mean_of_last(exact));
    EXPECT_EQ(losses(with_policy(policy)), found);
  }
}

TEST_P(CompressedRuns, HoldLess) {
  const Bytes keep = arena(options()), compressed = arena(with_policy("compress"));
  EXPECT_LT(compressed, keep);
  // The peak is the backward of the last block, which has one block's decoded values beside all codes.
  EXPECT_LT(arena(with_policy("block")), compressed);
}

TEST_P(CompressedRuns, FollowAPlanThatFitsABudget) {
  CompileOptions allowed = options();
  allowed.compress_activations = true;
  // Products so slow that the tiny ones cost more than traffic.
  const cpu::CpuBackend backend(cpu::choose_dispatch(2),
                                {.product_flops_per_second = 2e9, .bytes_per_second = 1e10});
  BudgetSearch search(model_, allowed, backend.target()), exact_search(model_, options(), backend.target());
  const Bytes smallest = search.smallest().compiled.report.arena, largest = search.keep_all_arena();
  const RecomputePolicy optimal{.kind = RecomputePolicy::Kind::kOptimal};
  EXPECT_LE(smallest, exact_search.smallest().compiled.report.arena);
  bool compressed = false;
  for (int eighth = 1; eighth < 8; ++eighth) {
    const Bytes budget = smallest + Bytes((largest - smallest).value * eighth / 8);
    const BudgetPlan plan = search.within(budget, optimal), exact = exact_search.within(budget, optimal);
    ASSERT_TRUE(plan.fits && exact.fits);
    EXPECT_LE(plan.compiled.report.update_seconds, exact.compiled.report.update_seconds * (1 + 1e-9));
    EXPECT_EQ(std::count(exact.retentions.begin(), exact.retentions.end(), Retention::kCompress), 0);
    // The first plan that compresses is run as well.
    if (compressed || std::count(plan.retentions.begin(), plan.retentions.end(), Retention::kCompress) == 0)
      continue;
    compressed = true;
    CompileOptions chosen = options();
    chosen.choose_retentions = [&](const Graph&) { return plan.retentions; };
    EXPECT_LE(arena(chosen), budget);
    const std::vector<double> found = losses(chosen), kept = losses(options());
    EXPECT_NEAR(mean_of_last(found), mean_of_last(kept), 0.01 * mean_of_last(kept));
  }
  EXPECT_TRUE(compressed);
}

// With clipping the backward runs twice, and reads the same codes twice.
TEST_P(CompressedRuns, TheUpdateInsideTheBackwardGivesTheSameBits) {
  for (const double max_grad_norm : {0.0, 1.0}) {
    CompileOptions after = with_policy("compress");
    after.optimizer.max_grad_norm = max_grad_norm;
    CompileOptions inside = after;
    inside.update_placement = UpdatePlacement::kInBackward;
    TrainingRun one(model_, weights_, {.compile = after}), other(model_, weights_, {.compile = inside});
    for (int64_t update = 0; update < 3; ++update) {
      const Batch batch = random_batch(kBatch, kLength, model_.vocabulary, 11, update, 0);
      EXPECT_EQ(one.update(std::span(&batch, 1), kRate).loss, other.update(std::span(&batch, 1), kRate).loss);
    }
    EXPECT_TRUE(one.state() == other.state()) << max_grad_norm;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CompressedRuns,
                         testing::Values(Case{"gpt2"}, Case{"gpt2", Precision::kBF16}, Case{"llama"},
                                         Case{"llama", Precision::kBF16}),
                         [](const auto& tested) {
                           return tested.param.family + "_" + precision_name(tested.param.precision);
                         });

}  // namespace
}  // namespace snug
