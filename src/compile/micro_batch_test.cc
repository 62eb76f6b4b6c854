#include "compile/micro_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "backends/null/null_target.h"
#include "compile/example_test.h"
#include "compile/work_target.h"

namespace snug {
namespace {

using testing::ElementsAre;

constexpr RecomputePolicy kOptimal{.kind = RecomputePolicy::Kind::kOptimal};
constexpr int64_t kGlobal = 12;

TEST(MicroBatch, DivisorsRise) {
  EXPECT_THAT(divisors(1), ElementsAre(1));
  EXPECT_THAT(divisors(12), ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_THAT(divisors(25), ElementsAre(1, 5, 25));
  EXPECT_THAT(divisors(97), ElementsAre(1, 97));
}

// The variants of a run with updates of kGlobal samples.
std::vector<Variant> variants_of(int64_t size) {
  CompileOptions options;
  options.batch = size;
  options.length = 32;
  options.accumulation = kGlobal / size;
  std::vector<Variant> variants{{.options = options}};
  if (options.accumulation == 1) {
    options.update_placement = UpdatePlacement::kInBackward;
    variants.push_back({.options = options});
  }
  return variants;
}

// What every size does at every budget, by its own search.
TEST(MicroBatch, DoesTheLeastWorkOfAllSizesAndOfEqualOnesIsTheLargest) {
  const NullTarget target;
  const WorkTarget work(target);
  for (const char* family : {"gpt2", "llama"}) {
    const Model model = six_blocks(family);
    const std::vector<int64_t> sizes = divisors(kGlobal);
    SearchMemory memory(model, target);
    std::map<int64_t, OuterSearch> searches;
    for (int64_t size : sizes)
      searches.emplace(size, OuterSearch(model, variants_of(size), work, OuterSearch::Prices::kKeep));
    Bytes low = searches.at(1).smallest_arena();
    for (auto& [size, search] : searches) low = std::min(low, search.smallest_arena());
    const Bytes high = searches.at(kGlobal).search(0).keep_all_arena();
    double most = std::numeric_limits<double>::infinity();
    std::set<int64_t> chosen;
    for (int64_t step = 0; step <= 5; ++step) {
      const Bytes budget = low + Bytes((high - low).value * step / 5);
      SCOPED_TRACE(fmt::format("{} {}", family, budget.value));
      const auto [size, fits] = choose_micro_batch(memory, sizes, variants_of, budget, kOptimal);
      EXPECT_TRUE(fits);
      chosen.insert(size);
      const double done = searches.at(size).within(budget, kOptimal).plan.compiled.report.update_seconds;
      for (auto& [other, search] : searches) {
        const VariantPlan found = search.within(budget, kOptimal);
        if (!found.plan.fits) continue;
        EXPECT_LE(done, found.plan.compiled.report.update_seconds) << other;
        if (found.plan.compiled.report.update_seconds == done) {
          EXPECT_GE(size, other) << "of equals the largest";
        }
      }
      EXPECT_LE(done, most * (1 + 1e-9)) << "a larger budget does not do more";
      most = done;
    }
    EXPECT_GT(chosen.size(), 1u) << "the budget never mattered";
    EXPECT_TRUE(chosen.contains(kGlobal)) << "where everything fits, nothing is accumulated";
  }
}

// Rates of a machine are no part of it.
TEST(MicroBatch, IsTheSameOnEveryMachine) {
  const Model model = six_blocks("gpt2");
  const NullTarget slow, fast({.flops_per_second = 1e15, .bytes_per_second = 1e10});
  const std::vector<int64_t> sizes = divisors(kGlobal);
  OuterSearch one(model, variants_of(1), slow, OuterSearch::Prices::kForgetOfLosers);
  SearchMemory on_slow(model, slow), on_fast(model, fast);
  for (double factor : {1.0, 1.3, 2.0, 4.0}) {
    const Bytes budget(static_cast<int64_t>(static_cast<double>(one.smallest_arena().value) * factor));
    EXPECT_EQ(choose_micro_batch(on_slow, sizes, variants_of, budget, kOptimal).size,
              choose_micro_batch(on_fast, sizes, variants_of, budget, kOptimal).size);
  }
}

TEST(MicroBatch, IsTheOneThatNeedsTheLeastWhereNothingFits) {
  const Model model = six_blocks("llama");
  const NullTarget target;
  SearchMemory memory(model, target);
  const MicroBatch none = choose_micro_batch(memory, divisors(kGlobal), variants_of, Bytes(1), kOptimal);
  EXPECT_FALSE(none.fits);
  OuterSearch one(model, variants_of(1), target, OuterSearch::Prices::kForgetOfLosers),
      all(model, variants_of(kGlobal), target, OuterSearch::Prices::kForgetOfLosers);
  EXPECT_EQ(none.size, one.smallest_arena() < all.smallest_arena() ? 1 : kGlobal);
}

}  // namespace
}  // namespace snug
