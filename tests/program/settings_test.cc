// Files of settings as people have them: keys of other trainers, contradictions, names of files.

#include <gmock/gmock.h>

#include <cstdlib>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Settings : public testing::Test {
 protected:
  Settings() : model_(make_model(here_ / "model", gpt2_json())), config_(here_ / "run.yaml") {
    write_text(here_ / "a,b[1].txt", sample_text(1500));
  }

  // Two updates from scratch, but for what `lines` say on top.
  void write(const std::string& lines) const {
    write_text(config_,
               "model: " + model_ + "\nfrom_scratch: Yes\ntrain_file:\n  - \"" + (here_ / "a,b[1].txt") +
                   "\"\nmax_steps: 2\nmax_length: 32\nmicro_batch_size: 2\ncosts: roofline\noutput_dir: " +
                   (here_ / "out") + "\n" + lines);
  }

  TemporaryDirectory here_;
  std::string model_, config_;
};

TEST_F(Settings, AFileOfAnotherTrainerRuns) {
  write(
      "do_train: true\nreport_to: none\nwandb_project:\nwandb_entity:\nsave_total_limit: "
      "null\nlogging_strategy: steps\n"
      "dataloader_num_workers: 8\nwarmup_steps: 1\nwarmup_ratio: 0.0\npacking: False\nflash_attention: true\n"
      "gradient_checkpointing_kwargs:\n  use_reentrant: false\nspecial_tokens:\nbf16: FALSE\n");
  const ProgramEnd end = expect_done({"train", "--config", config_, "--ddp_timeout", "1800"});
  EXPECT_THAT(end.err,
              AllOf(HasSubstr("snug: note: ignored because snug train trains: do_train (" + config_ + ":10)"),
                    HasSubstr("ddp_timeout (command line)"),
                    HasSubstr("ignored because no value was given: wandb_project"),
                    HasSubstr("warmup_steps 1 (" + config_ + ":17) goes before warmup_ratio 0.0 (" + config_ +
                              ":18)")));
  EXPECT_TRUE(std::filesystem::exists(here_ / "out/model.safetensors"));
  // What it saves says the same, and nothing to note.
  const ProgramEnd again = expect_done({"plan", "--config", here_ / "out/config.yaml", "--json"});
  EXPECT_THAT(again.err, Not(HasSubstr("note: ")));
  EXPECT_EQ(Json::parse(again.out)["tokens_per_step"], 64);
}

TEST_F(Settings, AllThatCannotBeUsedIsToldAndNothingIsWritten) {
  write("bf16: true\nfp16: true\nsave_total_limit: 2\nresume_from_checkpoint: true\nlearning_rat: 1\n");
  expect_refusal({"train", "--config", config_, "--load_best_model_at_end"}, 2,
                 {"bf16 true (" + config_ + ":10) and fp16 true (" + config_ + ":11) contradict",
                  ":12: save_total_limit 2: not there yet", ":13: resume_from_checkpoint true: not there yet",
                  ":14: unknown option learning_rat; did you mean learning_rate?",
                  "command line: load_best_model_at_end true: not there yet"});
  EXPECT_FALSE(std::filesystem::exists(here_ / "out"));
}

TEST_F(Settings, HomeIsNeverADirectoryOfThatName) {
  const std::string home = here_ / "home";
  std::filesystem::create_directory(home);
  write("seed: 1\n");
  const char* before = std::getenv("HOME");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("HOME", home.c_str(), 1);
  expect_done({"train", "--config", config_, "--output_dir=~/of/me"});
  ::setenv("HOME", kept.c_str(), 1);
  EXPECT_TRUE(std::filesystem::exists(home + "/of/me/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists("~"));
}

}  // namespace
}  // namespace snug
