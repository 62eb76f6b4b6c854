// Where the update stands and how masters are held, as users ask for it: the same model, the same numbers, and a clear end.

#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <sstream>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

class UpdateOptions : public testing::Test {
 protected:
  UpdateOptions() : tokens_(here_ / "tokens.bin") {
    write_text(tokens_, as_uint16_tokens(sample_text(1500)));
  }

  std::vector<std::string> training(const std::string& model, const std::string& out,
                                    std::vector<std::string> change) const {
    std::vector<std::string> words = {"train",     "--model",
                                      model,       "--train_file",
                                      tokens_,     "--output_dir",
                                      here_ / out, "--max_length",
                                      "32",        "--per_device_train_batch_size",
                                      "2",         "--logging_steps",
                                      "1",         "--learning_rate",
                                      "1e-3"};
    words.insert(words.end(), change.begin(), change.end());
    return words;
  }
  // Loss and gradient norm of every step.
  std::vector<std::pair<Json, Json>> numbers(const std::string& out) const {
    std::vector<std::pair<Json, Json>> rows;
    std::istringstream lines(file_text(fs::path(here_ / out) / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const Json row = Json::parse(line); row.contains("grad_norm"))
        rows.emplace_back(row["loss"], row["grad_norm"]);
    return rows;
  }

  TemporaryDirectory here_;
  fs::path tokens_;
};

TEST_F(UpdateOptions, EveryPlacementAndFormWritesTheSameModel) {
  const std::string model = make_model(here_ / "model", gpt2_json());
  const std::pair<const char*, const char*> kRuns[] = {{"fp32", "0"}, {"bf16", "0.5"}};
  for (const auto& [precision, limit] : kRuns) {
    const std::string stem = precision;
    const std::vector<std::string> common = {"--from_scratch", "--max_steps",     "4",  "--precision",
                                             precision,        "--max_grad_norm", limit};
    const auto run = [&](const std::string& out, std::vector<std::string> more) {
      more.insert(more.end(), common.begin(), common.end());
      const ProgramEnd end = expect_done(training(model, out, more));
      EXPECT_THAT(end.out, HasSubstr("28 of 28 tensors moved"));
    };
    run(stem + "after", {"--master_weights", "full"});
    run(stem + "inside", {"--update_placement", "in_backward", "--recompute", "block"});
    EXPECT_EQ(numbers(stem + "after"), numbers(stem + "inside")) << stem;
    EXPECT_EQ(numbers(stem + "after").size(), 4u);
    EXPECT_TRUE(all_tensors(here_ / (stem + "after")) == all_tensors(here_ / (stem + "inside"))) << stem;
  }
}

TEST_F(UpdateOptions, InBackwardIsRefusedWithAccumulation) {
  const ProgramEnd end = run_program(training(make_model(here_ / "model", gpt2_json()), "out",
                                              {"--from_scratch", "--max_steps", "1", "--update_placement",
                                               "in_backward", "--gradient_accumulation_steps", "2"}));
  EXPECT_EQ(end.exit_code, kUsage);
  EXPECT_THAT(end.err, AllOf(HasSubstr("update_placement in_backward"),
                             HasSubstr("gradient_accumulation_steps 2"), HasSubstr("expected 1")));
}

// A Llama whose loss is finite and whose gradients overflow in block 0 alone: its norm multiplies by 1e36, which the products
// after it take back, so that their weights' gradients are as much too large as the weights are small.
std::string overflowing_model(const TemporaryDirectory& here) {
  const std::string scratch = make_model(here / "scratch", llama_json({.tied = false}));
  const ProgramEnd made = expect_done(
      {"train", "--model", scratch, "--from_scratch", "--max_steps", "0", "--output_dir", here / "bad"});
  const fs::path file = fs::path(here / "bad") / "model.safetensors";
  Safetensors weights = Safetensors::read(file);
  const auto scale = [&](const std::string& name, float factor) {
    const Json& offsets = weights.header.at(name).at("data_offsets");
    for (size_t at = offsets[0].get<size_t>(); at < offsets[1].get<size_t>(); at += 4) {
      float value;
      std::memcpy(&value, weights.data.data() + at, 4);
      value *= factor;
      std::memcpy(weights.data.data() + at, &value, 4);
    }
  };
  scale("model.layers.0.input_layernorm.weight", 1e36f);
  for (const char* product : {"q_proj", "k_proj", "v_proj"})
    scale("model.layers.0.self_attn." + std::string(product) + ".weight", 1e-34f);
  scale("lm_head.weight", 1e8f);
  write_text(file, weights.bytes());
  return here / "bad";
}

TEST_F(UpdateOptions, AnOverflowHalfWayEndsTheRunAndSavesNothing) {
  const std::string model = overflowing_model(here_);
  const ProgramEnd end = run_program(training(
      model, "out", {"--max_steps", "2", "--max_grad_norm", "0", "--update_placement", "in_backward"}));
  EXPECT_EQ(end.exit_code, kNonFinite) << end.out;
  EXPECT_THAT(end.err, AllOf(HasSubstr("update 1: the gradient of model.layers.0.self_attn."),
                             HasSubstr("is not finite"), HasSubstr("the model saved last is as it was")));
  EXPECT_FALSE(fs::exists(fs::path(here_ / "out") / "model.safetensors"));
}

TEST_F(UpdateOptions, WithClippingTheSameOverflowIsSkippedAsAWhole) {
  const std::string model = overflowing_model(here_);
  for (const char* place : {"in_backward", "after"}) {
    const ProgramEnd end = expect_refusal(training(model, place,
                                                   {"--max_steps", "2", "--max_grad_norm", "1",
                                                    "--update_placement", place, "--save_steps", "2"}),
                                          kNonFinite, {"all 2 updates were skipped", "no model is saved"});
    EXPECT_THAT(end.out, HasSubstr("skipped, nothing changed (2 in a row)"));
    EXPECT_TRUE(all_tensors(here_ / (std::string(place) + "/checkpoint-2")) == all_tensors(model)) << place;
  }
}

}  // namespace
}  // namespace snug
