// Standard input, output and error that are closed, full or without a reader, and the hang-up of a terminal.

#include <gmock/gmock.h>

#include <unistd.h>

#include <csignal>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using testing::HasSubstr;

namespace fs = std::filesystem;

class StandardStreams : public testing::Test {
 protected:
  StandardStreams() : text_(here_ / "verses.txt"), model_(make_model(here_ / "model", gpt2_json())) {
    write_text(text_, sample_text(1500));
  }
  std::vector<std::string> training(const std::vector<std::string>& change = {}) const {
    std::vector<std::string> words = {"train",
                                      "--model",
                                      model_,
                                      "--from_scratch",
                                      "--train_file",
                                      text_,
                                      "--output_dir",
                                      here_ / "out",
                                      "--max_steps",
                                      "3",
                                      "--max_length",
                                      "32",
                                      "--per_device_train_batch_size",
                                      "2",
                                      "--logging_steps",
                                      "1",
                                      "--costs",
                                      "roofline"};
    words.insert(words.end(), change.begin(), change.end());
    return words;
  }

  TemporaryDirectory here_;
  std::string text_, model_;
};

TEST_F(StandardStreams, ResultsThatCannotBeWrittenAreAnError) {
  expect_done(training());
  const std::string out = here_ / "out", ids = here_ / "ids";
  write_text(ids, "72 101\n");
  const std::vector<std::vector<std::string>> commands = {
      {"--help"},
      {"train", "--help"},
      {"version", "--json"},
      {"plan", "--model", model_, "--json", "--costs", "roofline"},
      {"plan", "--model", model_, "--costs", "roofline"},
      {"inspect", "--model", model_, "--at", "plan"},
      {"eval", "--model", out, "--validation_file", text_, "--max_length", "32"},
      {"generate", "--model", out, "--prompt", "And the ", "--max_new_tokens", "3"},
      {"generate", "--model", out, "--prompt_tokens", "72,101", "--max_new_tokens", "3"},
      {"data", "inspect", text_, "--model", out},
      {"tokenizer", "encode", "--tokenizer", out, "--file", text_},
      {"tokenizer", "decode", "--tokenizer", out, "--file", ids}};
  for (const std::vector<std::string>& command : commands) {
    SCOPED_TRACE(command[0] + " " + command.back());
    expect_refusal(command, kIo, {"standard output: cannot write"}, {.output = "/dev/full"});
    expect_refusal(command, kIo, {"standard output: cannot write"}, {.closed = {STDOUT_FILENO}});
  }
}

TEST_F(StandardStreams, NoFileOfARunTakesAClosedDescriptor) {
  expect_done(training({"--output_dir", here_ / "usual"}));
  const std::string cache = here_ / "cache";
  const ProgramEnd end = run_program(training({"--data_cache", cache, "--no-progress"}),
                                     {.closed = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}});
  EXPECT_EQ(end.exit_code, kDone);
  EXPECT_TRUE(file_text(here_ / "out/model.safetensors") == file_text(here_ / "usual/model.safetensors"));
  for (const fs::directory_entry& file : fs::recursive_directory_iterator(here_.path()))
    if (file.is_regular_file()) {
      EXPECT_THAT(file_text(file.path()), testing::Not(HasSubstr("Memory at the peak"))) << file.path();
    }
}

TEST_F(StandardStreams, TrainingGoesOnWithoutAReader) {
  RunningProgram run(training({"--max_steps", "40"}));
  ASSERT_TRUE(run.wait_for_output("step=2/"));
  run.close_output();
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.exit_code, kDone) << "signal " << end.signal << end.err;
  EXPECT_EQ(json_lines(here_ / "out/metrics.jsonl").size(), 41u);
}

TEST_F(StandardStreams, TrainingGoesOnWhereItsProgressCannotBeWritten) {
  const ProgramEnd end = run_program(training(), {.output = "/dev/full"});
  EXPECT_EQ(end.exit_code, kDone) << end.err;
  EXPECT_TRUE(fs::exists(here_ / "out/memory.json"));
}

TEST_F(StandardStreams, AHangUpFinishesTheStepAndSaves) {
  RunningProgram run(training({"--max_steps", "1000000"}));
  ASSERT_TRUE(run.wait_for_output("step=3/"));
  run.send(SIGHUP);
  run.send(SIGHUP);  // a closed terminal and its shell each send one
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.exit_code, kInterrupted) << "signal " << end.signal << end.err;
  EXPECT_THAT(end.out, testing::AllOf(HasSubstr("signal 1: finished update"), HasSubstr("Saved")));
}

TEST_F(StandardStreams, AHangUpThatIsIgnoredStaysIgnored) {
  RunningProgram run(training({"--max_steps", "60"}), {.no_hang_up = true});
  ASSERT_TRUE(run.wait_for_output("step=2/"));
  run.send(SIGHUP);
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.exit_code, kDone) << "signal " << end.signal << end.err;
  EXPECT_EQ(json_lines(here_ / "out/metrics.jsonl").size(), 61u);
}

}  // namespace
}  // namespace snug
