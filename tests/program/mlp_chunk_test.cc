// MLPs over chunks of rows, as users ask for them and as the planner takes them: less is held, losses stay, and what was chosen is said.

#include <gmock/gmock.h>

#include <cmath>

#include "family_run.h"

namespace snug {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// 8 · 128 = 1024 rows, MLPs of 4 · 128 features; where the planner is to choose, 2048 rows and twice the width, for planning takes memory
// as well.
class MlpChunks : public FamilyRun {
 protected:
  MlpChunks()
      : FamilyRun({.blocks = 4,
                   .width = 128,
                   .inner_widths = 4,
                   .positions = 512,
                   .batch = 8,
                   .length = 128,
                   .steps = 10,
                   .text_bytes = 6000}) {}

  void expect_close(const std::string& found, const std::string& expected) const {
    const std::vector<double> a = losses(found), b = losses(expected);
    EXPECT_GE(b.size(), 2u);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5 * b[i]) << i;
  }
};

TEST_P(MlpChunks, HoldLessAndLearnTheSame) {
  train("whole", {});
  train("all", {"--mlp_chunk_rows", "1024"});
  EXPECT_TRUE(all_tensors(here_ / "all") == all_tensors(here_ / "whole")) << "one chunk is the whole";
  train("chunks", {"--mlp-chunk-rows", "96"});
  expect_close("chunks", "whole");
  const Json whole = json_file(here_ / "whole/plan.json"), chunks = json_file(here_ / "chunks/plan.json");
  EXPECT_EQ(whole["chosen"]["mlp_chunk_rows"], 0);
  EXPECT_EQ(chunks["chosen"]["mlp_chunk_rows"], 96);
  EXPECT_THAT(chunks["chosen"]["planned"], testing::Not(testing::Contains("mlp_chunk_rows")));
  // 4 blocks hold no hidden values any more: two tensors of 512 features, or three.
  const int64_t hidden = int64_t{4} * 1024 * 512 * 4 * (GetParam() == "gpt2" ? 2 : 3);
  EXPECT_LT(chunks["arena_bytes"].get<int64_t>(), whole["arena_bytes"].get<int64_t>() - hidden * 9 / 10);
  const Json memory = json_file(here_ / "chunks/memory.json");
  EXPECT_EQ(memory["planned"]["arena_bytes"], memory["measured"]["arena_bytes"]);
  EXPECT_THAT(file_text(here_ / "chunks/config.yaml"), HasSubstr("mlp_chunk_rows: 96"));
}

TEST_P(MlpChunks, AreThePlannersWherePermitted) {
  if (kAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemory;
  make_model_of(256);
  const std::vector<std::string> shape = {"--max_length", "256", "--max_steps", "2"};
  // With the update inside the backward there is no other micro-batch.
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), shape.begin(), shape.end());
    more.insert(more.end(), {"--update_placement", "in_backward"});
    return more;
  };
  // Runs, not plans: these say what every other option would make of them as well, and that takes longest.
  const auto plan_of_run = [&](const std::string& out, const std::vector<std::string>& more) {
    train(out, with(more));
    return json_file(here_ / out + "/plan.json");
  };
  const Json exact = plan_of_run("whole", {}),
             roomy = plan_of_run("roomy", {"--memory", "2GiB", "--allow", "reassociation"});
  EXPECT_EQ(roomy["chosen"]["mlp_chunk_rows"], 0);
  EXPECT_THAT(roomy["chosen"]["planned"], testing::Not(testing::Contains("mlp_chunk_rows")));
  const int64_t smallest = roomy["smallest_budget_bytes"].get<int64_t>(),
                without = exact["smallest_budget_bytes"].get<int64_t>();
  const Json head =
      plan_of_run("head", {"--memory", "2GiB", "--allow", "reassociation", "--mlp_chunk_rows", "0"});
  EXPECT_LT(smallest + (4 << 20), without);
  EXPECT_LT(smallest, head["smallest_budget_bytes"].get<int64_t>()) << "rows of the head alone";

  const int64_t budget = smallest + (1 << 20);
  const std::string out =
      train("tight", with({"--memory", std::to_string(budget), "--allow", "reassociation"}));
  expect_close("tight", "whole");
  const Json chosen = json_file(here_ / "tight/plan.json")["chosen"];
  const int64_t rows = chosen["mlp_chunk_rows"].get<int64_t>();
  EXPECT_EQ(rows, 256);
  EXPECT_EQ(chosen["forms"], Json::array({"reassociation"}));
  EXPECT_THAT(chosen["planned"], testing::Contains("mlp_chunk_rows"));
  EXPECT_THAT(out,
              AllOf(HasSubstr("MLP of 256 rows"), HasSubstr("mlp_chunk_rows               256 (planned)")));
  EXPECT_THAT(file_text(here_ / "tight/config.yaml"), HasSubstr("mlp_chunk_rows: 256"));
  const Json memory = json_file(here_ / "tight/memory.json");
  EXPECT_EQ(memory["planned"]["arena_bytes"], memory["measured"]["arena_bytes"]);
  EXPECT_LE(memory["measured"]["process_peak_bytes"].get<int64_t>(), budget);
}

TEST_P(MlpChunks, AreRefusedBelowZero) {
  const ProgramEnd refused = run_program(command("plan", {"--mlp_chunk_rows", "-1"}));
  EXPECT_EQ(refused.exit_code, kUsage);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("mlp_chunk_rows"), HasSubstr("found \"-1\"")));
}

INSTANTIATE_TEST_SUITE_P(Families, MlpChunks, testing::Values("gpt2", "llama"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace snug
