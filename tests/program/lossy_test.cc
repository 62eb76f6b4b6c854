// What saves memory by changing numbers, as users ask for it: it trains, the plan counts its bytes, and what needs a permission is refused without.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <sstream>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

class Lossy : public testing::Test {
 protected:
  Lossy() : tokens_(here_ / "tokens.bin"), model_(make_model(here_ / "model", gpt2_json())) {
    write_text(tokens_, as_uint16_tokens(sample_text(1500)));
  }

  std::vector<std::string> run_words(const char* command, std::vector<std::string> change) const {
    std::vector<std::string> words = {command,
                                      "--model",
                                      model_,
                                      "--from_scratch",
                                      "--train_file",
                                      tokens_,
                                      "--max_length",
                                      "32",
                                      "--max_steps",
                                      "20",
                                      "--seed",
                                      "5",
                                      "--costs",
                                      "roofline",
                                      "--per_device_train_batch_size",
                                      "2"};
    words.insert(words.end(), change.begin(), change.end());
    return words;
  }
  ProgramEnd train(const std::string& out, std::vector<std::string> change) const {
    change.insert(change.end(),
                  {"--output_dir", here_ / out, "--learning_rate", "3e-3", "--logging_steps", "1"});
    return run_program(run_words("train", change));
  }
  Json plan(std::vector<std::string> change) const {
    change.push_back("--json");
    return Json::parse(output_of(run_words("plan", change)));
  }
  std::vector<double> losses(const std::string& out) const {
    std::vector<double> losses;
    for (const Json& row : json_lines(fs::path(here_ / out) / "metrics.jsonl"))
      if (row.contains("grad_norm")) losses.push_back(row["loss"]);
    return losses;
  }
  // The sum of `bytes(elements)` over the tensors of the model that `out` has saved.
  int64_t sum_over_tensors(const std::string& out, const std::function<int64_t(int64_t)>& bytes) const {
    int64_t sum = 0;
    const Safetensors saved = Safetensors::read(fs::path(here_ / out) / "model.safetensors");
    for (const auto& [name, entry] : saved.header.items()) {
      int64_t elements = 1;
      for (int64_t dim : entry.at("shape")) elements *= dim;
      sum += bytes(elements);
    }
    return sum;
  }

  TemporaryDirectory here_;
  fs::path tokens_;
  std::string model_;
};

struct Choice {
  std::string name;
  std::vector<std::string> words;
};

TEST_F(Lossy, EveryFormTrainsNearFp32InTheBytesThatAreSaid) {
  const std::function<int64_t(int64_t)> whole = [](int64_t n) { return 8 * n; };
  const std::function<int64_t(int64_t)> half = [](int64_t n) { return n < 4096 ? 8 * n : 4 * n; };
  const std::function<int64_t(int64_t)> coded = [](int64_t n) {
    return n < 4096 ? 8 * n : 2 * n + 2 * 4 * ((n + 255) / 256);
  };
  const std::pair<const char*, const std::function<int64_t(int64_t)>*> kOptimizers[] = {
      {"adamw_torch", &whole}, {"adamw_bf16", &half}, {"adamw_8bit", &coded}};
  const Choice kMasters[] = {
      {"fp32", {}},
      {"split", {"--bf16"}},
      {"full", {"--bf16", "--master_weights", "full"}},
      {"none", {"--bf16", "--master_weights", "none", "--allow", "no_master_weights"}}};
  std::vector<double> exact;
  for (const Choice& master : kMasters)
    for (const auto& [optimizer, bytes] : kOptimizers) {
      const std::string out = master.name + "_" + optimizer;
      std::vector<std::string> words = master.words;
      words.insert(words.end(), {"--optim", optimizer});
      const ProgramEnd end = train(out, words);
      ASSERT_EQ(end.exit_code, kDone) << out << end.err;
      EXPECT_THAT(end.out, HasSubstr("28 of 28 tensors moved")) << out;
      const std::vector<double> found = losses(out);
      ASSERT_EQ(found.size(), 20u);
      if (exact.empty()) exact = found;
      EXPECT_LT(found.back(), found.front() - 0.5) << out;
      EXPECT_NEAR(found.back(), exact.back(), 0.05 * exact.back()) << out;
      EXPECT_EQ(found == exact, out == "fp32_adamw_torch")
          << out << ": these numbers are changed by something";

      const Json planned = plan(words);
      EXPECT_EQ(planned["categories"]["optimizer_state"], sum_over_tensors(out, *bytes)) << out;
      EXPECT_EQ(json_file(fs::path(here_ / out) / "plan.json")["categories"]["optimizer_state"],
                planned["categories"]["optimizer_state"]);
      const int64_t master_bytes = master.name == "split" ? 2 : master.name == "full" ? 4 : 0;
      EXPECT_EQ(planned["categories"].value("master_weights", 0),
                sum_over_tensors(out, [&](int64_t n) { return master_bytes * n; }))
          << out;
    }
}

TEST_F(Lossy, BitsAreTheSameAgainAndInsideTheBackward) {
  for (const char* optimizer : {"adamw_bf16", "adamw_8bit"}) {
    const std::vector<std::string> words = {"--bf16",
                                            "--optim",
                                            optimizer,
                                            "--master_weights",
                                            "none",
                                            "--allow",
                                            "no_master_weights",
                                            "--max_grad_norm",
                                            "0.5",
                                            "--max_steps",
                                            "4"};
    const std::string stem = optimizer;
    ASSERT_EQ(train(stem, words).exit_code, kDone);
    ASSERT_EQ(train(stem + "_again", words).exit_code, kDone);
    std::vector<std::string> inside = words;
    inside.insert(inside.end(), {"--update_placement", "in_backward"});
    ASSERT_EQ(train(stem + "_inside", inside).exit_code, kDone);
    for (const char* other : {"_again", "_inside"}) {
      EXPECT_EQ(losses(stem), losses(stem + other)) << other;
      EXPECT_TRUE(all_tensors(here_ / stem) == all_tensors(here_ / (stem + other))) << other;
    }
  }
}

TEST_F(Lossy, OtherTrainersNamesMeanTheSame) {
  for (const char* name : {"adamw_bnb_8bit", "adamw_torch_8bit"}) {
    const ProgramEnd end = train(name, {"--optim", name, "--max_steps", "0"});
    EXPECT_EQ(end.exit_code, kDone) << end.err;
    EXPECT_THAT(file_text(fs::path(here_ / name) / "config.yaml"), HasSubstr("optim: adamw_8bit"));
  }
}

TEST_F(Lossy, NoMastersNeedAPermissionAndBf16) {
  const ProgramEnd refused = train("out", {"--bf16", "--master_weights", "none"});
  EXPECT_EQ(refused.exit_code, kUsage);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("2 bytes of a weight where split keeps 4"),
                    HasSubstr("--allow no_master_weights"), HasSubstr("--master_weights split")));
  const ProgramEnd fp32 = train("out", {"--master_weights", "none", "--allow", "no_master_weights"});
  EXPECT_EQ(fp32.exit_code, kUsage);
  EXPECT_THAT(fp32.err, HasSubstr("goes with precision bf16 alone"));
  const ProgramEnd misspelt = train("out", {"--allow", "8bit_optimiser"});
  EXPECT_EQ(misspelt.exit_code, kUsage);
  EXPECT_THAT(misspelt.err,
              AllOf(HasSubstr("allow: found \"8bit_optimiser\""), HasSubstr("did you mean 8bit_optimizer?")));
}

TEST_F(Lossy, WhatIsAllowedIsSavedAndReadBack) {
  const ProgramEnd end = train("out", {"--max_steps", "0", "--allow", "8bit_optimizer,bf16_optimizer"});
  ASSERT_EQ(end.exit_code, kDone) << end.err;
  const std::string config = (fs::path(here_ / "out") / "config.yaml").string();
  EXPECT_THAT(file_text(config), HasSubstr("allow: \"bf16_optimizer,8bit_optimizer\""));
  const ProgramEnd again = expect_done({"train", "--config", config, "--overwrite_output_dir"});
  EXPECT_THAT(file_text(config), HasSubstr("allow: \"bf16_optimizer,8bit_optimizer\""));
}

TEST_F(Lossy, GradientsInBf16TakeHalf) {
  ASSERT_EQ(train("exact", {}).exit_code, kDone);
  const std::vector<std::string> words = {"--gradients", "bf16"};
  const ProgramEnd end = train("half", words);
  ASSERT_EQ(end.exit_code, kDone) << end.err;
  EXPECT_NE(losses("half"), losses("exact"));
  EXPECT_NEAR(losses("half").back(), losses("exact").back(), 0.02 * losses("exact").back());
  const ProgramEnd update = run_program(run_words("inspect", {"--gradients", "bf16", "--update_placement",
                                                              "after", "--at", "plan", "--phase", "update"}));
  EXPECT_THAT(update.out,
              AllOf(HasSubstr("tensor d.transformer.h.0.mlp.c_fc.weight bf16[48,192] gradients carried"),
                    HasSubstr("tensor d.transformer.h.0.mlp.c_fc.bias f32[192] gradients carried")));
  // What one more option would change: several micro-steps sum in fp32.
  expect_done(run_words("plan", words));

  std::vector<std::string> inside = {"--gradients", "bf16", "--update_placement", "in_backward"};
  ASSERT_EQ(train("inside", inside).exit_code, kDone);
  EXPECT_TRUE(all_tensors(here_ / "inside") == all_tensors(here_ / "half"));
  const ProgramEnd refused = train("out", {"--gradients", "bf16", "--gradient_accumulation_steps", "2"});
  EXPECT_EQ(refused.exit_code, kUsage);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("gradients bf16"), HasSubstr("gradient_accumulation_steps 2"),
                                 HasSubstr("expected 1")));
}

// Sums over micro-steps stay fp32 in bf16 runs, and all of them are counted through the whole micro-step.
TEST_F(Lossy, GradientsAccumulateInFp32) {
  ASSERT_EQ(train("sizes", {"--max_steps", "0"}).exit_code, kDone);
  // Many tokens, so that the micro-step has the peak.
  const Json planned =
      plan({"--bf16", "--gradient_accumulation_steps", "2", "--per_device_train_batch_size", "64"});
  EXPECT_EQ(planned["peak"]["phase"], "micro_step");
  EXPECT_EQ(planned["categories"]["gradients"], sum_over_tensors("sizes", [](int64_t n) { return 4 * n; }));
}

}  // namespace
}  // namespace snug
