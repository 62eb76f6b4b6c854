// Saved activations in 8 bits, as users ask for them: the run holds less, says what it holds how, and learns the same.

#include <gmock/gmock.h>

#include "family_run.h"

namespace snug {
namespace {

using testing::HasSubstr;

class CompressedActivations : public FamilyRun {
 protected:
  CompressedActivations() : FamilyRun({.blocks = 3, .steps = 40}) {}

  std::vector<double> losses_of(const std::string& out, const std::vector<std::string>& more) const {
    train(out, more);
    return losses(out);
  }
};

TEST_P(CompressedActivations, LearnTheSameInLess) {
  const std::vector<double> exact = losses_of("exact", {});
  const std::vector<double> found = losses_of("found", {"--recompute", "compress"});
  ASSERT_EQ(exact.size(), 40u);
  ASSERT_EQ(found.size(), 40u);
  EXPECT_LT(exact.back(), 0.9 * exact.front());
  EXPECT_EQ(found.front(), exact.front());
  EXPECT_NE(found.back(), exact.back());
  EXPECT_NEAR(found.back(), exact.back(), 0.01 * exact.back());

  const Json kept = json_file(here_ / "exact/plan.json"), plan = json_file(here_ / "found/plan.json");
  EXPECT_EQ(plan["recompute"], "compress");
  EXPECT_LT(plan["arena_bytes"].get<int64_t>(), kept["arena_bytes"].get<int64_t>());
  for (const Json& block : plan["choices"]) {
    EXPECT_GT(block["compressed_bytes"].get<int64_t>(), 0);
    EXPECT_EQ(block["recomputed_bytes"], 0);
    EXPECT_GE(block["compressed"].size(), 5u);
    // What leaves the block and statistics are kept as they are: less than 40 % of what a block makes, in f32.
    EXPECT_LT(block["kept_bytes"].get<int64_t>(), 4 * block["compressed_bytes"].get<int64_t>());
  }
  for (const Json& block : kept["choices"]) EXPECT_EQ(block["compressed_bytes"], 0);
}

TEST_P(CompressedActivations, AreNamedInTheTable) {
  const ProgramEnd end = expect_done(command("plan", {"--recompute", "compress_e5m2:mlp"}));
  EXPECT_THAT(end.out, HasSubstr("Blocks (policy compress_e5m2:mlp)"));
  EXPECT_THAT(end.out, HasSubstr("in 8 bits; computed again"));
  EXPECT_THAT(end.out, HasSubstr(GetParam() == "gpt2" ? "mlp.c_fc mlp.act;" : "mlp.up_proj mlp.act;"));
  const ProgramEnd refused = run_program(command("plan", {"--recompute", "compress:mpl"}));
  EXPECT_EQ(refused.exit_code, kUsage);
  EXPECT_THAT(refused.err, HasSubstr("found group \"mpl\" in compress; expected some of attention, norm"));
}

// With permission the planner compresses what a budget leaves no room for, and repeats less. Products are wide enough here to cost
// more than traffic.
TEST_P(CompressedActivations, AreChosenByThePlannerWherePermitted) {
  if (kAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemory;
  make_model_of(256);
  // Runs, not plans: these say what every other option would make of them as well, and that takes longest.
  const auto plan_of_run = [&](const std::string& out, int64_t budget, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--max_steps", "4", "--memory", std::to_string(budget)};
    words.insert(words.end(), more.begin(), more.end());
    train(out, words);
    return json_file(here_ / out + "/plan.json");
  };
  const Json roomy = plan_of_run("roomy", int64_t{1} << 30, {"--allow", "fp8_activations"});
  for (const Json& block : roomy["choices"]) EXPECT_EQ(block["compressed_bytes"], 0);
  const int64_t smallest = roomy["smallest_budget_bytes"].get<int64_t>(),
                most = roomy["peak_bytes"].get<int64_t>();
  const int64_t budget = smallest + (most - smallest) / 4;
  const Json exact = plan_of_run("exact", budget, {}),
             permitted = plan_of_run("planned", budget, {"--allow", "fp8_activations"});
  int64_t compressed = 0;
  for (const Json& block : exact["choices"]) EXPECT_EQ(block["compressed_bytes"], 0);
  for (const Json& block : permitted["choices"]) compressed += block["compressed_bytes"].get<int64_t>();
  EXPECT_GT(compressed, 0);
  EXPECT_EQ(permitted["chosen"]["forms"], Json::array({"fp8_activations"}));
  EXPECT_EQ(exact["chosen"]["forms"], Json::array());
  EXPECT_GE(permitted["gap"].get<double>(), 0);
  EXPECT_LE(permitted["gap"].get<double>(), 0.02);

  const std::vector<double> kept = losses("exact"), found = losses("planned");
  EXPECT_EQ(losses("roomy"), kept) << "everything is kept there";
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found.front(), kept.front());
  EXPECT_NEAR(found.back(), kept.back(), 0.01 * kept.back());
  const Json memory = json_file(here_ / "planned/memory.json");
  EXPECT_EQ(memory["planned"]["arena_bytes"], memory["measured"]["arena_bytes"]);
  EXPECT_LE(memory["measured"]["process_peak_bytes"].get<int64_t>(), budget);
}

INSTANTIATE_TEST_SUITE_P(Families, CompressedActivations, testing::Values("gpt2", "llama"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace snug
