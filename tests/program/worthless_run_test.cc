// Numbers that are none: weights are refused by name, a run that learned nothing is no success and saves nothing, and no summary states what is
// not known.

#include <gmock/gmock.h>

#include <cmath>
#include <csignal>
#include <cstring>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace fs = std::filesystem;

class WorthlessRun : public testing::Test {
 protected:
  WorthlessRun() : tokens_(here_ / "tokens.bin") { write_text(tokens_, as_uint16_tokens(sample_text(1500))); }

  // Updates of two windows on the tokens, into `out`, but for what `change` says on top.
  std::vector<std::string> training(const std::string& model, const std::string& out,
                                    const std::vector<std::string>& change) const {
    std::vector<std::string> words = {"train",     "--model",
                                      model,       "--train_file",
                                      tokens_,     "--output_dir",
                                      here_ / out, "--max_length",
                                      "32",        "--per_device_train_batch_size",
                                      "2",         "--logging_steps",
                                      "1",         "--costs",
                                      "roofline"};
    words.insert(words.end(), change.begin(), change.end());
    return words;
  }
  std::string scratch_model() const { return make_model(here_ / "scratch", gpt2_json({.dropout = 0})); }
  Json last_row(const std::string& out) const { return json_lines(here_ / (out + "/metrics.jsonl")).back(); }

  TemporaryDirectory here_;
  std::string tokens_;
};

// Writes `bits` into element `element` of a tensor whose elements have as many bytes.
template <typename Bits>
void plant(const std::string& file, const std::string& tensor, size_t element, Bits bits) {
  Safetensors weights = Safetensors::read(file);
  const auto begin = weights.header.at(tensor).at("data_offsets")[0].get<size_t>();
  std::memcpy(weights.data.data() + begin + element * sizeof bits, &bits, sizeof bits);
  write_text(file, weights.bytes());
}

TEST_F(WorthlessRun, AWeightThatIsNotFiniteIsRefusedByName) {
  const std::string model = copy_fixture("gpt2_tied", here_ / "model");
  plant(model + "/model.safetensors", "transformer.h.1.mlp.c_fc.weight", 100, std::nanf(""));
  const std::vector<std::string> words = {"model.safetensors",
                                          "tensor transformer.h.1.mlp.c_fc.weight holds a NaN (element 100)"};
  for (const char* precision : {"fp32", "bf16", "fp16"})
    expect_refusal(training(model, "out", {"--precision", precision, "--max_steps", "3"}), kBadFile, words);
  EXPECT_TRUE(fs::is_empty(here_ / "out"));
  expect_refusal({"eval", "--model", model, "--validation_file", tokens_, "--max_length", "32"}, kBadFile,
                 words);
  expect_refusal({"generate", "--model", model, "--prompt_tokens", "1,2"}, kBadFile, words);

  // The same of a shard in bf16.
  const std::string sharded = copy_fixture("llama_sharded", here_ / "sharded");
  plant<uint16_t>(sharded + "/model-00002-of-00002.safetensors", "model.norm.weight", 0, 0xFF80);
  expect_refusal({"generate", "--model", sharded, "--prompt_tokens", "1,2"}, kBadFile,
                 {"model-00002-of-00002.safetensors", "model.norm.weight holds an infinity (element 0)"});
}

TEST_F(WorthlessRun, ARateThatBreaksTheModelSavesNothing) {
  const std::string model = scratch_model();
  expect_done(training(model, "out", {"--from_scratch", "--max_steps", "2", "--validation_file", tokens_}));
  const auto before = all_tensors(here_ / "out");
  const ProgramEnd end = expect_refusal(
      training(model, "out",
               {"--from_scratch", "--max_steps", "15", "--learning_rate", "1e30", "--overwrite_output_dir",
                "--validation_file", tokens_}),
      kNonFinite, {"1 of 15 updates were applied", "14 behind them were skipped", "no model is saved"});
  EXPECT_TRUE(all_tensors(here_ / "out") == before);
  EXPECT_THAT(end.out, AllOf(HasSubstr("evaluation after update 15: loss non-finite (perplexity non-finite)"),
                             HasSubstr("loss=non-finite"), Not(HasSubstr("nan")), Not(HasSubstr("Saved"))));
  // The row of the whole run is there all the same.
  EXPECT_GT(last_row("out/failed-run-1")["train_loss"], 5.0);
  EXPECT_EQ(last_row("out/failed-run-1")["skipped_steps"], 14);
}

TEST_F(WorthlessRun, TheLastEvaluationDecides) {
  // One update at that rate: its loss is that of the model before it.
  const std::vector<std::string> change = {"--from_scratch", "--max_steps", "1", "--learning_rate", "1e30"};
  std::vector<std::string> evaluated = change;
  evaluated.insert(evaluated.end(), {"--validation_file", tokens_});
  expect_refusal(training(scratch_model(), "out", evaluated), kNonFinite,
                 {"the loss of the last evaluation is not finite", "no model is saved"});
  EXPECT_FALSE(fs::exists(here_ / "out/model.safetensors"));
  EXPECT_FALSE(fs::exists(here_ / "out/memory.json"));
  for (const Json& row : json_lines(here_ / "out/metrics.jsonl"))
    if (row.contains("eval_loss")) {
      EXPECT_TRUE(row["eval_loss"].is_null());
    }
}

TEST_F(WorthlessRun, NoUpdateAppliedIsNoSuccess) {
  // The head's weights are so large that the gradient of its input overflows at the first loss scale.
  const std::string made = here_ / "made";
  expect_done(training(make_model(here_ / "llama", llama_json({.tied = false})), "made",
                       {"--from_scratch", "--max_steps", "0"}));
  Safetensors weights = Safetensors::read(made + "/model.safetensors");
  const auto offsets = weights.header.at("lm_head.weight").at("data_offsets");
  for (size_t at = offsets[0]; at < offsets[1].get<size_t>(); at += 4) {
    float value;
    std::memcpy(&value, weights.data.data() + at, 4);
    value *= 3e3f;
    std::memcpy(weights.data.data() + at, &value, 4);
  }
  write_text(made + "/model.safetensors", weights.bytes());
  const ProgramEnd end =
      expect_refusal(training(made, "out", {"--fp16", "--max_grad_norm", "0", "--max_steps", "1"}),
                     kNonFinite, {"the only update was skipped", "no model is saved"});
  EXPECT_THAT(end.out, Not(HasSubstr("mean loss")));
  EXPECT_TRUE(last_row("out")["train_loss"].is_null());
  EXPECT_FALSE(fs::exists(here_ / "out/model.safetensors"));
  // The scale is halved and the next update is applied: it is the first with a rate above 0, but not the first.
  const ProgramEnd longer =
      expect_done(training(made, "longer", {"--fp16", "--max_grad_norm", "0", "--max_steps", "16"}));
  EXPECT_THAT(longer.out, AllOf(HasSubstr("update 1: the gradient of"),
                                HasSubstr("the first with a rate above 0 that was not skipped: loss"),
                                Not(HasSubstr("first update:"))));
}

TEST_F(WorthlessRun, NoStepIsNotAFailure) {
  const std::string model = copy_fixture("gpt2_tied", here_ / "model");
  const ProgramEnd end = expect_done(training(model, "out", {"--max_steps", "0"}));
  EXPECT_THAT(end.out, AllOf(HasSubstr("No update was made"), Not(HasSubstr("loss 0.0")),
                             Not(HasSubstr("mean loss"))));
}

TEST_F(WorthlessRun, WhatTheFilesTypeCannotHoldIsNotSaved) {
  const std::string model = copy_fixture("gpt2_tied", here_ / "model");
  plant(model + "/model.safetensors", "transformer.ln_f.weight", 3, 1e5f);
  expect_refusal(
      training(model, "out", {"--max_steps", "0", "--save_dtype", "fp16"}), kNonFinite,
      {"transformer.ln_f.weight holds 100000 (element 3), which F16 cannot hold", "no model is saved"});
  EXPECT_FALSE(fs::exists(here_ / "out/config.json"));
  expect_done(training(model, "out", {"--max_steps", "0", "--save_dtype", "bf16"}));
}

TEST_F(WorthlessRun, AfterASignalTheModelIsSavedAndSaidToBeWorthless) {
  RunningProgram run(
      training(scratch_model(), "out",
               {"--from_scratch", "--max_steps", "1000", "--learning_rate", "1e30", "--validation_file",
                tokens_, "--gradient_accumulation_steps", "600", "--num_train_epochs", "100"}));
  ASSERT_TRUE(run.wait_for_output("Memory at the peak"));
  ASSERT_TRUE(run.wait_for_handler(SIGTERM));
  run.send(SIGTERM);
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.exit_code, kInterrupted) << end.err;
  EXPECT_THAT(end.out, AllOf(HasSubstr("warning: the loss of the last evaluation is not finite"),
                             HasSubstr("Evaluation loss non-finite"), HasSubstr("Saved")));
  expect_refusal({"eval", "--model", here_ / "out", "--validation_file", tokens_, "--max_length", "32"},
                 kNonFinite, {"the loss of window 0 is not finite", "The first tensor that is not finite: "});
  expect_refusal({"generate", "--model", here_ / "out", "--prompt_tokens", "72,101"}, kNonFinite,
                 {"the logits behind token 2 are not finite", "The first tensor that is not finite: "});
}

}  // namespace
}  // namespace snug
