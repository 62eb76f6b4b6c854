#include "compile/search_memory.h"

#include <gtest/gtest.h>

#include <functional>

#include "backends/null/null_target.h"
#include "compile/example_test.h"
#include "compile/outer_search.h"

namespace snug {
namespace {

constexpr RecomputePolicy kOptimal{.kind = RecomputePolicy::Kind::kOptimal};

CompileOptions small_run() {
  CompileOptions options;
  options.batch = 4;
  options.length = 64;
  return options;
}

class SearchMemories : public testing::Test {
 protected:
  // What nobody remembered.
  CompileReport compiled(const CompileOptions& options) const {
    return draft(model_, options, target_, Checks::kNone).report;
  }

  const Model model_ = six_blocks("gpt2");
  const NullTarget target_;
};

TEST_F(SearchMemories, CompileARunThatKeepsEverythingOnce) {
  SearchMemory memory(model_, target_);
  const CompileReport& report = memory.keep_all(small_run());
  EXPECT_EQ(report.update_seconds, compiled(small_run()).update_seconds);
  CompileOptions same = small_run();
  same.recompute = {.kind = RecomputePolicy::Kind::kBlock};
  same.choose_retentions = [](const Graph&) { return Retentions(); };
  same.compress_activations = true;
  EXPECT_EQ(&memory.keep_all(same), &report);
  EXPECT_EQ(memory.compiled(), 1u);
}

// Every option that variants and changes differ by, and some more.
TEST_F(SearchMemories, TellRunsApart) {
  SearchMemory memory(model_, target_);
  const std::vector<std::function<void(CompileOptions&)>> changes = {
      [](CompileOptions&) {},
      [](CompileOptions& o) { o.batch = 2; },
      [](CompileOptions& o) { o.length = 32; },
      [](CompileOptions& o) { o.accumulation = 2; },
      [](CompileOptions& o) { o.head_chunk = 64; },
      [](CompileOptions& o) { o.mlp_chunk = 64; },
      [](CompileOptions& o) { o.precision = Precision::kBF16; },
      [](CompileOptions& o) { o.precision = Precision::kBF16, o.master_weights = MasterWeights::kFull; },
      [](CompileOptions& o) { o.optimizer.moments = Moments::kEightBit; },
      [](CompileOptions& o) { o.optimizer.bf16_gradients = true; },
      [](CompileOptions& o) { o.update_placement = UpdatePlacement::kInBackward; },
      [](CompileOptions& o) {
        o.update_placement = UpdatePlacement::kInBackward, o.optimizer.max_grad_norm = 0;
      },
      [](CompileOptions& o) { o.evaluate = true, o.eval_batch = 64; },
      [](CompileOptions& o) { o.disabled_passes = {"fuse"}; },
  };
  for (int time = 0; time < 2; ++time)
    for (size_t i = 0; i < changes.size(); ++i) {
      CompileOptions options = small_run();
      changes[i](options);
      const CompileReport &found = memory.keep_all(options), expected = compiled(options);
      EXPECT_EQ(found.update_seconds, expected.update_seconds) << i;
      EXPECT_EQ(found.peak.bytes, expected.peak.bytes) << i;
      EXPECT_EQ(found.phases.size(), expected.phases.size()) << i;
    }
  EXPECT_EQ(memory.compiled(), changes.size());
}

TEST_F(SearchMemories, ChangeNoAnswer) {
  std::vector<Variant> variants;
  for (UpdatePlacement placement : {UpdatePlacement::kAfter, UpdatePlacement::kInBackward}) {
    variants.push_back({.options = small_run()});
    variants.back().options.update_placement = placement;
  }
  const auto memory = std::make_shared<SearchMemory>(model_, target_);
  OuterSearch limits(model_, variants, target_, OuterSearch::Prices::kKeep);
  const Bytes low = limits.smallest_arena(), high = limits.search(0).keep_all_arena();
  for (const Bytes budget : {low, low + Bytes((high - low).value / 2), high}) {
    OuterSearch sharing(memory, variants, OuterSearch::Prices::kForgetOfLosers),
        alone(model_, variants, target_, OuterSearch::Prices::kForgetOfLosers);
    const VariantPlan found = sharing.within(budget, kOptimal), expected = alone.within(budget, kOptimal);
    EXPECT_EQ(found.variant, expected.variant);
    EXPECT_EQ(found.plan.compiled.plan, expected.plan.compiled.plan);
    EXPECT_EQ(found.plan.gap, expected.plan.gap);
  }
  EXPECT_EQ(memory->compiled(), variants.size());
}

TEST_F(SearchMemories, ByWorkAnswerTheSameWhateverTheRates) {
  const NullTarget fast({.flops_per_second = 1e15, .bytes_per_second = 1e10});
  SearchMemory slowly(model_, target_), quickly(model_, fast);
  EXPECT_NE(slowly.keep_all(small_run()).update_seconds, quickly.keep_all(small_run()).update_seconds);
  EXPECT_EQ(slowly.by_work()->keep_all(small_run()).update_seconds,
            quickly.by_work()->keep_all(small_run()).update_seconds);
  EXPECT_EQ(slowly.by_work(), slowly.by_work());
}

}  // namespace
}  // namespace snug
