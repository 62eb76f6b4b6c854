// --overwrite_output_dir: the earlier run is whole until the new model is saved, and nothing of it lies under the new model afterwards.

#include <gmock/gmock.h>

#include <csignal>
#include <map>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using testing::UnorderedElementsAre;

namespace fs = std::filesystem;

class Overwrite : public testing::Test {
 protected:
  Overwrite() : text_(here_ / "verses.txt"), out_(here_ / "out") {
    write_text(text_, sample_text(1500));
    // What the hub's directories have beside the model: byte-level ids again, so that both runs read the same text.
    expect_done({"train", "--model", make_model(here_ / "made", gpt2_json()), "--from_scratch",
                 "--train_file", text_, "--output_dir", here_ / "hub", "--max_steps", "0", "--max_length",
                 "32"});
    for (const char* name : {"generation_config.json", "special_tokens_map.json"})
      write_text(here_ / (std::string("hub/") + name), "{}");
    write_text(here_ / "hub/chat_template.jinja", "{{ messages }}");
    write_text(here_ / "hub/README.md", "A card.");
    for (const char* name : {"memory.json", "plan.json", "config.yaml", "metrics.jsonl"})
      fs::remove(here_ / (std::string("hub/") + name));
  }

  std::vector<std::string> training(const std::string& model,
                                    const std::vector<std::string>& change = {}) const {
    std::vector<std::string> words = {
        "train", "--model",         model, "--train_file", text_,     "--output_dir",
        out_,    "--max_steps",     "4",   "--max_length", "32",      "--per_device_train_batch_size",
        "2",     "--logging_steps", "1",   "--costs",      "roofline"};
    words.insert(words.end(), change.begin(), change.end());
    return words;
  }
  // A run of the hub's model with two checkpoints, and a file of the user beside it.
  void earlier_run() {
    expect_done(training(here_ / "hub", {"--save_steps", "2"}));
    write_text(out_ + "/notes.txt", "mine");
  }

  // Every file below a directory, by its name there.
  static std::map<std::string, std::string> files_in(const fs::path& directory) {
    std::map<std::string, std::string> files;
    for (const fs::directory_entry& file : fs::recursive_directory_iterator(directory))
      if (file.is_regular_file())
        files[file.path().lexically_relative(directory).string()] = file_text(file.path());
    return files;
  }
  static std::vector<std::string> names_in(const fs::path& directory) {
    std::vector<std::string> names;
    for (const fs::directory_entry& file : fs::directory_iterator(directory))
      names.push_back(file.path().filename().string());
    return names;
  }

  TemporaryDirectory here_;
  std::string text_, out_;
};

TEST_F(Overwrite, WhatTheNewRunDidNotWriteIsGone) {
  earlier_run();
  EXPECT_THAT(names_in(out_), IsSupersetOf({"checkpoint-2", "checkpoint-4", "generation_config.json",
                                            "special_tokens_map.json", "chat_template.jinja", "README.md"}));
  // Another shape from scratch on bytes: its tokenizer is the byte tokenizer, not what lay there.
  const std::string model = make_model(here_ / "other", gpt2_json({.blocks = 1, .width = 32}));
  expect_done(training(model, {"--from_scratch", "--overwrite_output_dir", "--save_steps", "3"}));
  EXPECT_THAT(names_in(out_),
              UnorderedElementsAre("config.json", "model.safetensors", "tokenizer.json",
                                   "tokenizer_config.json", "plan.json", "config.yaml", "metrics.jsonl",
                                   "memory.json", "checkpoint-3", "notes.txt", "README.md"));
  EXPECT_EQ(json_file(out_ + "/config.json")["n_embd"], 32);
  EXPECT_EQ(json_lines(out_ + "/metrics.jsonl").size(), 5u);
  expect_done({"eval", "--model", out_, "--validation_file", text_, "--max_length", "32"});
}

TEST_F(Overwrite, WhileTheNewRunGoesOnTheEarlierModelIsInItsPlace) {
  earlier_run();
  const auto before = files_in(out_);
  RunningProgram run(training(here_ / "hub", {"--overwrite_output_dir", "--max_steps", "100000",
                                              "--learning_rate", "1e-2", "--save_steps", "3"}));
  ASSERT_TRUE(run.wait_for_output("saved " + out_ + "/checkpoint-3"));
  EXPECT_TRUE(file_text(out_ + "/model.safetensors") == before.at("model.safetensors"));
  EXPECT_FALSE(fs::exists(out_ + "/memory.json")) << "it would say that this is a finished run";
  EXPECT_THAT(names_in(out_), Contains("checkpoint-3"));
  EXPECT_THAT(names_in(out_), Not(Contains("checkpoint-2")));
  for (const char* name :
       {"checkpoint-2/model.safetensors", "checkpoint-4/config.json", "memory.json", "metrics.jsonl"})
    EXPECT_TRUE(file_text(out_ + "/earlier-run-1/" + name) == before.at(name)) << name;
  run.send(SIGKILL);
  run.wait();
  // Killed, it left both. A run that may not overwrite is refused, the next that may cleans up.
  expect_refusal(training(here_ / "hub"), kUsage, {out_, "--overwrite_output_dir"});
  expect_done(training(here_ / "hub", {"--overwrite_output_dir"}));
  EXPECT_THAT(names_in(out_),
              UnorderedElementsAre("config.json", "model.safetensors", "tokenizer.json",
                                   "tokenizer_config.json", "generation_config.json",
                                   "special_tokens_map.json", "chat_template.jinja", "plan.json",
                                   "config.yaml", "metrics.jsonl", "memory.json", "notes.txt", "README.md"));
}

TEST_F(Overwrite, ARunThatFailsLeavesTheEarlierOneWhole) {
  earlier_run();
  const auto before = files_in(out_);
  // The weights are some 290 KB: the configuration and the tokenizer of the new model can be written, and it cannot.
  const ProgramEnd end = expect_refusal(training(make_model(here_ / "other", gpt2_json({.blocks = 3})),
                                                 {"--from_scratch", "--overwrite_output_dir"}),
                                        kIo, {out_, "File too large"}, {.largest_file_bytes = 100 << 10});
  EXPECT_THAT(end.out, HasSubstr(out_ + " holds the earlier run as it was; what this one wrote is in " +
                                 out_ + "/failed-run-1"));
  EXPECT_THAT(names_in(out_ + "/failed-run-1"),
              UnorderedElementsAre("plan.json", "config.yaml", "metrics.jsonl"));
  EXPECT_EQ(json_lines(out_ + "/failed-run-1/metrics.jsonl").size(), 5u);
  fs::remove_all(out_ + "/failed-run-1");
  EXPECT_TRUE(files_in(out_) == before);
}

TEST_F(Overwrite, CheckpointsOfARunThatDidNotFinishAreNotLost) {
  expect_refusal(
      training(here_ / "hub", {"--save_steps", "2", "--learning_rate", "1e30", "--max_steps", "40",
                               "--lr_scheduler_type", "constant_with_warmup", "--warmup_steps", "3"}),
      kNonFinite, {});
  EXPECT_THAT(names_in(out_), Contains("checkpoint-2"));
  expect_refusal(training(here_ / "hub"), kUsage,
                 {out_, "checkpoints of an earlier run (checkpoint-", "--overwrite_output_dir"});
}

TEST_F(Overwrite, AModelIsNotOverwrittenUnlessAsked) {
  const auto before = files_in(here_ / "hub");
  expect_refusal(training(here_ / "hub", {"--output_dir", here_ / "hub"}), kUsage,
                 {here_ / "hub", "holds a model (model.safetensors)", "--overwrite_output_dir"});
  EXPECT_TRUE(files_in(here_ / "hub") == before);
}

TEST_F(Overwrite, TheModelIsNoneOfTheCheckpointsThatGo) {
  earlier_run();
  const auto before = files_in(out_);
  expect_refusal(training(out_ + "/checkpoint-2", {"--overwrite_output_dir"}), kUsage,
                 {"checkpoint-2", "another output_dir"});
  EXPECT_TRUE(files_in(out_) == before);
}

}  // namespace
}  // namespace snug
