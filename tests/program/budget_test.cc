// A budget is enough: at any number of bytes between the smallest that works and what keeping everything takes, the run is planned into
// it, trains in exactly the planned arena, never holds more than the budget, also where a control group would end it, and ends with the
// same model, bit for bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "memory_group.h"
#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ProgramBudget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (kAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemory;
  }
};

TEST_P(ProgramBudget, TenBudgetsGiveOneModel) {
  const TemporaryDirectory here;
  const std::string text = here / "verses.txt";
  write_text(text, sample_text(3000));
  const std::string model = make_model(
      here / "model",
      GetParam() == "gpt2"
          ? gpt2_json({.blocks = 5, .width = 128, .heads = 4, .positions = 128, .vocabulary = 257})
          : llama_json({.blocks = 5, .width = 128, .inner = 344, .positions = 128, .vocabulary = 257}));
  const std::vector<std::string> run = {"--model",      model,         "--from_scratch",
                                        "--train_file", text,          "--per_device_train_batch_size",
                                        "16",           "--max_steps", "2"};
  const auto command = [&](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), run.begin(), run.end());
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const ProgramEnd roomy = expect_done(command({"plan", "--json"}, {"--memory", "1GiB"}));
  const Json plan = Json::parse(roomy.out);
  const int64_t smallest = plan["smallest_budget_bytes"].get<int64_t>(),
                most = plan["peak_bytes"].get<int64_t>();
  ASSERT_LT(smallest + (20 << 20), most) << "the activations are no matter here";

  constexpr int kBudgets = 10;
  std::map<std::string, std::string> first_model;
  for (int step = 0; step < kBudgets; ++step) {
    const int64_t budget = smallest + (most - smallest) * step / (kBudgets - 1);
    SCOPED_TRACE(budget);
    const std::string out = here / ("out" + std::to_string(step));
    const MemoryGroup group((budget + 4095) / 4096 * 4096);
    const ProgramEnd end =
        expect_done(command({"train", "--output_dir", out}, {"--memory", std::to_string(budget)}),
                    {.cgroup = group.path()});
    const Json memory = json_file(out + "/memory.json");
    EXPECT_EQ(memory["planned"]["arena_bytes"], memory["measured"]["arena_bytes"]);
    EXPECT_LE(memory["planned"]["process_peak_bytes"].get<int64_t>(), budget);
    EXPECT_LE(end.peak_resident_bytes, budget);
    const auto weights = all_tensors(out);
    if (first_model.empty()) first_model = weights;
    EXPECT_TRUE(weights == first_model) << "the model depends on the budget";
    std::filesystem::remove_all(out);
  }
  const ProgramEnd too_small = run_program(
      command({"train", "--output_dir", here / "none"}, {"--memory", std::to_string(smallest - (4 << 20))}));
  EXPECT_EQ(too_small.exit_code, kDoesNotFit);
  EXPECT_FALSE(std::filesystem::exists(here / "none"));
}

INSTANTIATE_TEST_SUITE_P(Families, ProgramBudget, testing::Values("gpt2", "llama"),
                         [](const auto& test) { return test.param; });

// No budget is named, and the group is smaller than the margin: no size is below 0, and the margin is told.
TEST(ProgramBudgetTests, GroupThatIsSmallerThanTheMargin) {
  if (kAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemory;
  const MemoryGroup group(60 << 20);
  if (group.path().empty()) GTEST_SKIP() << "no control group can be made here";
  const TemporaryDirectory here;
  const std::string model = make_model(
      here / "model", gpt2_json({.blocks = 1, .width = 32, .heads = 2, .positions = 64, .vocabulary = 257}));
  const std::vector<std::string> plan = {"plan", "--from_scratch", "--model", model, "--costs", "roofline",
                                         "--threads", "1"};
  const ProgramEnd refused = run_program(plan, {.cgroup = group.path()});
  EXPECT_EQ(refused.exit_code, kDoesNotFit) << refused.err;
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("of 0 B, "), HasSubstr("less a margin of 64.0 MiB"), HasSubstr(group.path())));
  EXPECT_THAT(refused.out + refused.err, Not(testing::ContainsRegex("-[0-9.]+ ([KMG]i)?B")));
  std::vector<std::string> words = plan;
  words.emplace_back("--json");
  const ProgramEnd json = run_program(words, {.cgroup = group.path()});
  EXPECT_EQ(json.exit_code, kDoesNotFit) << json.err;
  EXPECT_EQ(Json::parse(json.out)["budget_bytes"], 0);
}

// What a plan states, the smallest budget and the peak, is accepted by the training of the same options, in every process of it.
class StatedBudgets : public testing::TestWithParam<std::string> {};

TEST_P(StatedBudgets, AreAcceptedEveryTime) {
  if (kAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemory;
  const TemporaryDirectory here;
  const std::string text = here / "verses.txt";
  write_text(text, sample_text(3000));
  const std::string model = make_model(
      here / "model",
      GetParam() == "gpt2_wide"
          ? gpt2_json({.blocks = 9, .width = 208, .heads = 4, .positions = 256, .vocabulary = 257})
      : GetParam() == "gpt2_deep"
          ? gpt2_json({.blocks = 24, .width = 32, .heads = 2, .positions = 256, .vocabulary = 257})
          : llama_json({.blocks = 5, .width = 128, .inner = 344, .positions = 256, .vocabulary = 257}));
  const std::vector<std::string> run = {"--model",      model, "--from_scratch",
                                        "--train_file", text,  "--per_device_train_batch_size",
                                        "5",            "--max_length", "250"};
  const auto command = [&](std::vector<std::string> words) {
    words.insert(words.end(), run.begin(), run.end());
    return words;
  };
  for (int time = 0; time < 5; ++time) {
    const Json plan = Json::parse(expect_done(command({"plan", "--json", "--memory", "1GiB"})).out);
    for (const char* name : {"smallest_budget_bytes", "peak_bytes"}) {
      SCOPED_TRACE(name);
      const std::string budget = std::to_string(plan[name].get<int64_t>());
      const Json again = Json::parse(expect_done(command({"plan", "--json", "--memory", budget})).out);
      if (name == std::string("peak_bytes")) {
        EXPECT_EQ(again["arena_bytes"], plan["arena_bytes"]) << "a plan does not keep to its own peak";
      }
      const std::string out = here / "out";
      expect_done(command({"train", "--max_steps", "1", "--memory", budget, "--output_dir", out}));
      std::filesystem::remove_all(out);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, StatedBudgets, testing::Values("gpt2_wide", "gpt2_deep", "llama"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace snug
