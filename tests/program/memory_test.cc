// Every command keeps to its plan, by what the kernel says of the process from outside. process_memory_test.cc holds training to
// its plan in every combination; here are evaluation, generation, saving, and a vocabulary that makes the head the largest part.

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

constexpr int64_t kMiB = 1 << 20;
// Two processes of one run measure their reserves apart: what observe/reserve.h allows for (kReserveStep).
constexpr int64_t kPages = 1 << 20;

class ProgramMemory : public testing::TestWithParam<std::string> {
 protected:
  ProgramMemory() : text_(here_ / "verses.txt") {
    write_text(text_, sample_text(3000));
    const std::string family = GetParam().substr(0, GetParam().find('_'));
    precision_ = GetParam().substr(family.size() + 1);
    model_ = make_model(
        here_ / "model",
        family == "gpt2"
            ? gpt2_json({.blocks = 3, .width = 128, .positions = 256, .vocabulary = 20000})
            : llama_json({.blocks = 3, .width = 128, .inner = 344, .positions = 256, .vocabulary = 20000}));
  }

  void SetUp() override {
    if (kAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemory;
  }

  // The peak that the refusal of a budget of one byte states.
  static int64_t planned_peak(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--memory", "1"});
    const ProgramEnd end = run_program(arguments);
    EXPECT_EQ(end.exit_code, kDoesNotFit) << end.err;
    std::smatch peak;
    EXPECT_TRUE(std::regex_search(end.err, peak, std::regex("or --memory ([0-9]+) and more"))) << end.err;
    return peak.empty() ? 0 : std::stoll(peak[1]);
  }

  // Runs in the planned peak, and takes it: page tables and kernel stacks (below 1 MiB here) belong to the plan but not to the
  // resident set.
  static void expect_as_planned(std::vector<std::string> arguments) {
    const int64_t planned = planned_peak(arguments);
    arguments.insert(arguments.end(), {"--memory", std::to_string(planned + kPages)});
    const ProgramEnd end = expect_done(arguments);
    EXPECT_LE(end.peak_resident_bytes, planned + kPages);
    EXPECT_GE(end.peak_resident_bytes, planned - std::max(17 * kMiB, planned / 100));
  }

  TemporaryDirectory here_;
  std::string text_, model_, precision_;
};

TEST_P(ProgramMemory, EveryCommandKeepsToItsPlan) {
  const std::string out = here_ / "out";
  expect_as_planned({"train", "--model", model_, "--from_scratch", "--train_file", text_, "--validation_file",
                     text_, "--output_dir", out, "--max_steps", "2", "--per_device_train_batch_size", "2",
                     "--precision", precision_});
  const Json memory = json_file(out + "/memory.json");
  EXPECT_EQ(memory["planned"]["arena_bytes"], memory["measured"]["arena_bytes"]);
  EXPECT_GE(memory["planned"]["arena_bytes"], 30 * kMiB);
  expect_as_planned({"eval", "--model", out, "--validation_file", text_, "--precision", precision_});
  expect_as_planned({"generate", "--model", out, "--prompt", "And the evening", "--max_new_tokens", "8",
                     "--precision", precision_});
}

// Two hundred updates with evaluations and checkpoints between them: what is resident stays where it was after the first of each.
TEST_P(ProgramMemory, StaysFlatOverALongRun) {
  const std::string out = here_ / "out";
  write_text(text_, sample_text(2000));
  const std::string model = make_model(
      here_ / "small", GetParam().starts_with("gpt2")
                           ? gpt2_json({.blocks = 2, .width = 64, .positions = 64})
                           : llama_json({.blocks = 2, .width = 64, .inner = 172, .positions = 64}));
  const ProgramEnd end = expect_done({"train",
                                      "--model",
                                      model,
                                      "--from_scratch",
                                      "--train_file",
                                      text_,
                                      "--validation_file",
                                      text_,
                                      "--output_dir",
                                      out,
                                      "--max_steps",
                                      "200",
                                      "--per_device_train_batch_size",
                                      "2",
                                      "--eval_steps",
                                      "20",
                                      "--save_steps",
                                      "40",
                                      "--logging_steps",
                                      "1",
                                      "--precision",
                                      precision_});
  std::vector<int64_t> resident;
  for (const Json& line : json_lines(out + "/metrics.jsonl"))
    if (line.contains("memory_rss_bytes")) resident.push_back(line["memory_rss_bytes"]);
  ASSERT_EQ(resident.size(), 200u);
  // From the update after the first evaluation and checkpoint on.
  const int64_t settled = resident[40];
  EXPECT_LE(*std::max_element(resident.begin() + 40, resident.end()), settled + kMiB / 4);
  const Json memory = json_file(out + "/memory.json");
  EXPECT_EQ(memory["measured"]["allocations_during_steps"], 0);
  EXPECT_LE(memory["measured"]["process_peak_bytes"], memory["planned"]["process_peak_bytes"]);
}

INSTANTIATE_TEST_SUITE_P(Families, ProgramMemory, testing::Values("gpt2_fp32", "llama_bf16"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace snug
