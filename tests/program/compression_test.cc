// Saved activations in 8 bits, as users ask for them: the run holds less, says what it holds how, and learns the same.

#include <gmock/gmock.h>

#include <cmath>
#include <sstream>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using testing::HasSubstr;

constexpr int kDone = 0, kUsage = 2;

class CompressedActivations : public testing::TestWithParam<std::string> {
 protected:
  CompressedActivations() {
    write_text(here_ / "verses.txt", sample_text(3000));
    make_model(here_ / "model", config(64));
  }

  static Json config(int64_t width) {
    return GetParam() == "gpt2"
               ? gpt2_json({.blocks = 3, .width = width, .positions = 64})
               : llama_json({.blocks = 3, .width = width, .inner = 2 * width, .positions = 64});
  }
  std::vector<std::string> command(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {name,
                                      "--model",
                                      here_ / "model",
                                      "--from_scratch",
                                      "--train_file",
                                      here_ / "verses.txt",
                                      "--per_device_train_batch_size",
                                      "8",
                                      "--max_length",
                                      "64",
                                      "--max_steps",
                                      "40",
                                      "--learning_rate",
                                      "1e-3",
                                      "--costs",
                                      "roofline",
                                      "--logging_steps",
                                      "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<double> losses(const std::string& out, std::vector<std::string> more) const {
    more.insert(more.end(), {"--output_dir", here_ / out});
    const ProgramEnd end = run_program(command("train", more));
    EXPECT_EQ(end.exit_code, kDone) << end.err;
    std::vector<double> losses;
    std::istringstream lines(file_text(std::filesystem::path(here_ / out) / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const Json row = Json::parse(line); row.contains("grad_norm")) losses.push_back(row["loss"]);
    return losses;
  }

  TemporaryDirectory here_;
};

TEST_P(CompressedActivations, LearnTheSameInLess) {
  const std::vector<double> exact = losses("exact", {});
  const std::vector<double> found = losses("found", {"--recompute", "compress"});
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
  const ProgramEnd end = run_program(command("plan", {"--recompute", "compress_e5m2:mlp"}));
  ASSERT_EQ(end.exit_code, kDone) << end.err;
  EXPECT_THAT(end.out, HasSubstr("Blocks (policy compress_e5m2:mlp)"));
  EXPECT_THAT(end.out, HasSubstr("in 8 bits; computed again"));
  EXPECT_THAT(end.out,
              HasSubstr(GetParam() == "gpt2" ? "mlp.c_fc mlp.act; nothing" : "mlp.up_proj mlp.act; nothing"));
  const ProgramEnd refused = run_program(command("plan", {"--recompute", "compress:mpl"}));
  EXPECT_EQ(refused.exit_code, kUsage);
  EXPECT_THAT(refused.err, HasSubstr("found group \"mpl\" in compress; expected some of attention, norm"));
}

// With permission the planner compresses what a budget leaves no room for, and repeats less. Products are wide enough here to cost
// more than traffic.
TEST_P(CompressedActivations, AreChosenByThePlannerWherePermitted) {
  make_model(here_ / "model", config(256));
  const auto plan_in = [&](int64_t budget, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--json", "--memory", std::to_string(budget)};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramEnd end = run_program(command("plan", words));
    EXPECT_EQ(end.exit_code, kDone) << end.err;
    return Json::parse(end.out);
  };
  const Json roomy = plan_in(int64_t{1} << 30, {"--allow", "fp8_activations"});
  for (const Json& block : roomy["choices"]) EXPECT_EQ(block["compressed_bytes"], 0);
  const int64_t smallest = roomy["smallest_budget_bytes"].get<int64_t>(),
                most = roomy["peak_bytes"].get<int64_t>();
  const int64_t budget = smallest + (most - smallest) / 4;
  const Json exact = plan_in(budget, {}), permitted = plan_in(budget, {"--allow", "fp8_activations"});
  int64_t compressed = 0;
  for (const Json& block : exact["choices"]) EXPECT_EQ(block["compressed_bytes"], 0);
  for (const Json& block : permitted["choices"]) compressed += block["compressed_bytes"].get<int64_t>();
  EXPECT_GT(compressed, 0);
  EXPECT_EQ(permitted["chosen"]["forms"], Json::array({"fp8_activations"}));
  EXPECT_EQ(exact["chosen"]["forms"], Json::array());
  EXPECT_GE(permitted["gap"].get<double>(), 0);
  EXPECT_LE(permitted["gap"].get<double>(), 0.02);

  const std::vector<double> kept = losses("exact", {"--max_steps", "4"});
  const std::vector<double> found = losses(
      "planned", {"--max_steps", "4", "--memory", std::to_string(budget), "--allow", "fp8_activations"});
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
