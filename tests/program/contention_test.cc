// A run beside other work: the same bits, and threads that do not spin for long.

#include <gmock/gmock.h>
#include <unistd.h>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using testing::HasSubstr;
using testing::Not;

class Contention : public testing::Test {
 protected:
  Contention() : model_(make_model(here_ / "model", gpt2_json())) {
    write_text(here_ / "verses.txt", sample_text(1500));
  }

  std::vector<std::string> training(const std::string& out, const std::string& updates) const {
    return {"train",        "--model",       model_,       "--from_scratch", "--train_file", here_ / "verses.txt",
            "--output_dir", here_ / out,     "--max_steps", updates,         "--max_length", "32",
            "--threads",    "2",             "--logging_steps", "1",         "--costs",      "roofline"};
  }

  TemporaryDirectory here_;
  std::string model_;
};

TEST_F(Contention, BitsBesideAreBitsAlone) {
  expect_done(training("alone", "4"));
  {
    RunningProgram one(training("busy1", "1000000")), two(training("busy2", "1000000"));
    ASSERT_TRUE(one.wait_for_output("step=2/"));
    ASSERT_TRUE(two.wait_for_output("step=2/"));
    expect_done(training("beside", "4"));
  }
  EXPECT_TRUE(file_text(here_ / "alone/model.safetensors") == file_text(here_ / "beside/model.safetensors"));
}

// The threads' waits are in the environment of the process, which is the one that was started and has its name.
TEST_F(Contention, ThreadsSpinBrieflyUnlessTheUserSaysHow) {
  {
    RunningProgram run(training("own", "1000000"), {.passive_waits = false});
    ASSERT_TRUE(run.wait_for_output("step=1/"));
    EXPECT_THAT(run.proc_file("environ"), HasSubstr("GOMP_SPINCOUNT="));
    EXPECT_EQ(run.proc_file("comm"), "snug\n");
  }
  RunningProgram run(training("passive", "1000000"));
  ASSERT_TRUE(run.wait_for_output("step=1/"));
  EXPECT_THAT(run.proc_file("environ"), Not(HasSubstr("GOMP_SPINCOUNT=")));
}

TEST_F(Contention, ArgumentsDescriptorsAndTheEndSurviveTheNewBeginning) {
  expect_refusal({"train", "--modle", "a b"}, kUsage, {"unknown option modle"}, {.passive_waits = false});
  const ProgramEnd end = run_program({"version"}, {.closed = {STDOUT_FILENO}, .passive_waits = false});
  EXPECT_EQ(end.exit_code, kIo) << end.err;
}

}  // namespace
}  // namespace snug
