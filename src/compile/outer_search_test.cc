#include "compile/outer_search.h"

#include <gtest/gtest.h>

#include <limits>

#include "backends/null/null_target.h"
#include "compile/example_test.h"

namespace snug {
namespace {

constexpr RecomputePolicy kOptimal{.kind = RecomputePolicy::Kind::kOptimal};

struct Case {
  const char* name;
  const char* family = "gpt2";
  bool tied = true;
  const char* frozen = "";  // parameters with this in their name
  double max_grad_norm = 1;
  int64_t accumulation = 1;
  Precision precision = Precision::kF32;
  bool chunks = false;  // whether the rows of the head are open
};

class Outer : public testing::TestWithParam<Case> {
 protected:
  Outer() : model_(six_blocks(GetParam().family, GetParam().tied)) {
    const std::string frozen = GetParam().frozen;
    for (ParameterSpec& parameter : model_.parameters)
      if (!frozen.empty() && parameter.name.find(frozen) != std::string::npos) parameter.trainable = false;
    CompileOptions options;
    options.batch = 4;
    options.length = 64;
    options.accumulation = GetParam().accumulation;
    options.precision = GetParam().precision;
    options.optimizer.max_grad_norm = GetParam().max_grad_norm;
    options.staging = Bytes(4096);  // the micro-step has the peak, as with models of real size
    for (int64_t chunk : {kHeadChunkRows, int64_t{64}}) {
      if (chunk != kHeadChunkRows && !GetParam().chunks) continue;
      for (UpdatePlacement placement : {UpdatePlacement::kAfter, UpdatePlacement::kInBackward}) {
        if (placement == UpdatePlacement::kInBackward && options.accumulation > 1) continue;
        options.head_chunk = chunk;
        options.update_placement = placement;
        variants_.push_back({.options = options});
      }
    }
    search_.emplace(model_, variants_, target_, OuterSearch::Prices::kKeep);
  }

  Model model_;
  NullTarget target_;
  std::vector<Variant> variants_;
  std::optional<OuterSearch> search_;
};

// At every budget: no variant alone is faster, a larger budget is never slower (A16: a request for less must not end in more), what is
// named the smallest budget works, and nothing beats the bound.
TEST_P(Outer, IsTheFastestOfAllVariantsAndMonotone) {
  const Bytes low = search_->smallest_arena(), high = search_->search(search_->fastest()).keep_all_arena();
  ASSERT_LT(low, high);
  constexpr int64_t kBudgets = 4;
  double slowest = std::numeric_limits<double>::infinity();
  for (int64_t step = 0; step <= kBudgets; ++step) {
    const Bytes budget = low + Bytes((high - low).value * step / kBudgets);
    SCOPED_TRACE(budget.value);
    const VariantPlan found = search_->within(budget, kOptimal);
    const double seconds = found.plan.compiled.report.update_seconds;
    ASSERT_TRUE(found.plan.fits);
    EXPECT_LE(found.plan.compiled.report.arena, budget);
    EXPECT_LE(seconds, slowest * (1 + 1e-9));
    slowest = seconds;
    EXPECT_NEAR(found.plan.slowdown, seconds / search_->unlimited_seconds() - 1, 1e-12);
    ASSERT_TRUE(found.plan.gap.has_value());
    EXPECT_GE(*found.plan.gap, 0);
    for (size_t variant = 0; variant < search_->variants(); ++variant) {
      const BudgetPlan alone = search_->search(variant).within(budget, kOptimal);
      if (!alone.fits) continue;
      const double its = alone.compiled.report.update_seconds;
      EXPECT_LE(seconds, its) << variant;
      EXPECT_GE(its, seconds * (1 - *found.plan.gap) * (1 - 1e-12)) << variant;
      if (its == seconds) {
        EXPECT_LE(found.variant, variant) << "of equals the first";
      }
    }
  }
  EXPECT_EQ(search_->within(high, kOptimal).plan.slowdown, 0);
}

TEST_P(Outer, BelowTheSmallestNothingFits) {
  const Bytes smallest = search_->smallest_arena();
  const VariantPlan found = search_->within(smallest - Bytes(1), kOptimal);
  EXPECT_FALSE(found.plan.fits);
  EXPECT_EQ(found.plan.compiled.report.arena, smallest);
}

class OneRun : public Outer {};

TEST_P(OneRun, ForgettingChangesNoAnswer) {
  OuterSearch frugal(model_, variants_, target_, OuterSearch::Prices::kForgetOfLosers);
  EXPECT_EQ(frugal.smallest_arena(), search_->smallest_arena());
  const Bytes middle =
      Bytes((search_->smallest_arena() + search_->search(search_->fastest()).keep_all_arena()).value / 2);
  for (int times = 0; times < 2; ++times) {
    const VariantPlan one = frugal.within(middle, kOptimal), other = search_->within(middle, kOptimal);
    EXPECT_EQ(one.variant, other.variant);
    EXPECT_EQ(one.plan.compiled.report.arena, other.plan.compiled.report.arena);
    EXPECT_EQ(one.plan.compiled.report.update_seconds, other.plan.compiled.report.update_seconds);
    EXPECT_EQ(one.plan.gap, other.plan.gap);
  }
}

// What cannot fit by its state alone is not priced where another variant is known to need less; alone it is still answered.
TEST_P(OneRun, HopelessVariantsAreNotPriced) {
  ASSERT_EQ(variants_.size(), 2u);
  variants_.back().may_be_smallest = false;
  OuterSearch both(model_, variants_, target_, OuterSearch::Prices::kKeep);
  const VariantPlan found = both.within(Bytes(1), kOptimal);
  EXPECT_EQ(found.variant, 0u);
  EXPECT_TRUE(both.search(0).is_priced());
  EXPECT_FALSE(both.search(1).is_priced());
  OuterSearch alone(model_, std::span(variants_).last(1), target_, OuterSearch::Prices::kKeep);
  const VariantPlan only = alone.within(Bytes(1), kOptimal);
  EXPECT_FALSE(only.plan.fits);
  EXPECT_GT(only.plan.compiled.report.arena, Bytes(1));
}

// A policy that needs no budget leaves the other choices open.
TEST_P(OneRun, NamedPoliciesAreFittedByTheOtherChoices) {
  const RecomputePolicy block{.kind = RecomputePolicy::Kind::kBlock};
  const VariantPlan roomy = search_->within(Bytes(int64_t{1} << 40), block);
  EXPECT_EQ(roomy.variant, 0u);
  EXPECT_FALSE(roomy.plan.gap.has_value());
  const Bytes least = search_->within(Bytes(0), block).plan.compiled.report.arena;
  ASSERT_LT(least, roomy.plan.compiled.report.arena);
  const VariantPlan tight = search_->within(least, block);
  EXPECT_TRUE(tight.plan.fits);
  EXPECT_GT(tight.variant, 0u);
  EXPECT_GE(tight.plan.compiled.report.update_seconds, roomy.plan.compiled.report.update_seconds);
}

INSTANTIATE_TEST_SUITE_P(Runs, Outer,
                         testing::Values(Case{.name = "gpt2"}, Case{.name = "gpt2_own_head", .tied = false},
                                         Case{.name = "gpt2_frozen", .frozen = ".h.2."},
                                         Case{.name = "gpt2_unclipped", .max_grad_norm = 0},
                                         Case{.name = "gpt2_accumulated", .accumulation = 3, .chunks = true},
                                         Case{.name = "llama", .family = "llama"},
                                         Case{.name = "llama_own_head_bf16",
                                              .family = "llama",
                                              .tied = false,
                                              .precision = Precision::kBF16},
                                         Case{.name = "llama_frozen_embedding",
                                              .family = "llama",
                                              .frozen = "embed_tokens",
                                              .max_grad_norm = 0}),
                         [](const auto& test) { return std::string(test.param.name); });
INSTANTIATE_TEST_SUITE_P(Runs, OneRun, testing::Values(Case{.name = "gpt2"}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace snug
