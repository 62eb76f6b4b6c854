// fp16 as users ask for it: it trains like fp32, the loss scale finds its way, and what does not fit into fp16 ends by name.

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace fs = std::filesystem;

class Fp16 : public testing::Test {
 protected:
  Fp16() : tokens_(here_ / "tokens.bin") { write_text(tokens_, as_uint16_tokens(sample_text(3000))); }

  ProgramEnd train(const std::string& model, const std::string& out, std::vector<std::string> change) const {
    std::vector<std::string> words = {"train",     "--model",
                                      model,       "--train_file",
                                      tokens_,     "--output_dir",
                                      here_ / out, "--max_length",
                                      "32",        "--per_device_train_batch_size",
                                      "2",         "--logging_steps",
                                      "1",         "--learning_rate",
                                      "1e-3",      "--costs",
                                      "roofline"};
    words.insert(words.end(), change.begin(), change.end());
    return run_program(words);
  }
  // The rows of updates.
  std::vector<Json> updates(const std::string& out) const {
    std::vector<Json> rows;
    for (const Json& row : json_lines(fs::path(here_ / out) / "metrics.jsonl"))
      if (row.contains("grad_norm")) rows.push_back(row);
    return rows;
  }
  // A saved model whose tensors were multiplied by factors.
  std::string scaled_model(const Json& config,
                           const std::vector<std::pair<std::string, float>>& factors) const {
    const std::string made = here_ / "made";
    expect_done({"train", "--model", make_model(here_ / "scratch", config), "--from_scratch", "--max_steps",
                 "0", "--output_dir", made});
    const fs::path file = fs::path(made) / "model.safetensors";
    Safetensors weights = Safetensors::read(file);
    for (const auto& [name, factor] : factors) {
      const Json& offsets = weights.header.at(name).at("data_offsets");
      for (size_t at = offsets[0].get<size_t>(); at < offsets[1].get<size_t>(); at += 4) {
        float value;
        std::memcpy(&value, weights.data.data() + at, 4);
        value *= factor;
        std::memcpy(weights.data.data() + at, &value, 4);
      }
    }
    write_text(file, weights.bytes());
    return made;
  }

  TemporaryDirectory here_;
  fs::path tokens_;
};

TEST_F(Fp16, TrainsLikeFp32InBothFamilies) {
  const std::pair<const char*, Json> kModels[] = {{"gpt2", gpt2_json()}, {"llama", llama_json()}};
  for (const auto& [family, config] : kModels) {
    const std::string model = make_model(here_ / (std::string(family) + "_model"), config), stem = family;
    for (const std::string precision : {"fp32", "fp16"}) {
      const ProgramEnd end =
          train(model, stem + precision,
                {"--from_scratch", "--max_steps", "12", "--precision", precision, "--save_steps", "6",
                 "--gradient_accumulation_steps", "2", "--check_memory", "true"});
      ASSERT_EQ(end.exit_code, kDone) << end.err;
      EXPECT_THAT(end.out, HasSubstr("tensors moved"));
      EXPECT_THAT(end.out, Not(HasSubstr("did not move")));
    }
    const std::vector<Json> fp32 = updates(stem + "fp32"), fp16 = updates(stem + "fp16");
    ASSERT_EQ(fp32.size(), 12u);
    ASSERT_EQ(fp16.size(), 12u);
    for (size_t i = 0; i < fp32.size(); ++i) {
      const double expected = fp32[i]["loss"], norm = fp32[i]["grad_norm"];
      EXPECT_NEAR(fp16[i]["loss"].get<double>(), expected, 1e-2 * expected) << family << " update " << i + 1;
      EXPECT_NEAR(fp16[i]["grad_norm"].get<double>(), norm, 3e-2 * norm) << family << " update " << i + 1;
      EXPECT_EQ(fp16[i]["loss_scale"], 65536) << i;
      EXPECT_EQ(fp16[i]["loss_scale_good_updates"], i + 1);
      EXPECT_FALSE(fp32[i].contains("loss_scale")) << "fp32 has none";
    }
    EXPECT_NE(fp16.back()["loss"], fp32.back()["loss"]) << "nothing was rounded";
    EXPECT_EQ(json_file(fs::path(here_ / (stem + "fp16")) / "loss_scale.json"),
              (Json{{"scale", 65536.0}, {"good_updates", 12}}));
    EXPECT_EQ(
        json_file(fs::path(here_ / (stem + "fp16")) / "checkpoint-6" / "loss_scale.json")["good_updates"], 6);
    EXPECT_FALSE(fs::exists(fs::path(here_ / (stem + "fp32")) / "loss_scale.json"));

    // The trained model evaluates in fp16 as it does in fp32, and generates.
    double losses[2];
    for (const std::string precision : {"fp32", "fp16"}) {
      const ProgramEnd end = expect_done({"eval", "--model", here_ / (stem + "fp16"), "--validation_file",
                                          tokens_, "--max_length", "32", "--precision", precision});
      const size_t at = end.out.find("loss ");
      ASSERT_NE(at, std::string::npos) << end.out;
      losses[precision == "fp16" ? 1 : 0] = std::stod(end.out.substr(at + 5));
    }
    EXPECT_NEAR(losses[1], losses[0], 1e-2 * losses[0]);
    const ProgramEnd spoken =
        expect_done({"generate", "--model", here_ / (stem + "fp16"), "--fp16", "--prompt_tokens", "72,101",
                     "--max_new_tokens", "5", "--temperature", "0"});
  }
}

TEST_F(Fp16, AnOverflowingGradientHalvesTheScaleAndChangesNothingElse) {
  // The head's weights are so large that its input's gradient overflows at the first scales.
  const std::string model = scaled_model(llama_json({.tied = false}), {{"lm_head.weight", 3e3f}});
  const ProgramEnd end =
      train(model, "out", {"--max_steps", "12", "--fp16", "--max_grad_norm", "0", "--warmup_steps", "6"});
  ASSERT_EQ(end.exit_code, kDone) << end.err;
  EXPECT_THAT(end.out, HasSubstr("is not finite; skipped, nothing changed (1 in a row); loss scale 32768"));
  const std::vector<Json> rows = updates("out");
  ASSERT_EQ(rows.size(), 12u);
  double scale = 65536;
  int64_t skipped = 0, good = 0;
  for (const Json& row : rows) {
    if (row["skipped_steps"] > skipped) {
      scale /= 2;
      good = 0;
      skipped = row["skipped_steps"];
      EXPECT_EQ(row["learning_rate"], rows[0]["learning_rate"]) << "the schedule counts applied updates only";
    } else {
      ++good;
    }
    EXPECT_EQ(row["loss_scale"], scale);
    EXPECT_EQ(row["loss_scale_good_updates"], good);
  }
  EXPECT_GE(skipped, 1);
  EXPECT_GE(good, 3);
  EXPECT_GT(rows.back()["learning_rate"], rows[0]["learning_rate"]);
  EXPECT_EQ(json_file(fs::path(here_ / "out") / "loss_scale.json")["scale"], scale);
}

TEST_F(Fp16, AForwardThatOverflowsEndsTheRunAtOnce) {
  // The first product of the second block's MLP leaves the range of fp16, not that of bf16.
  const std::string model =
      scaled_model(gpt2_json({.dropout = 0}),
                   {{"transformer.h.1.mlp.c_fc.weight", 2e6f}, {"transformer.h.1.mlp.c_proj.weight", 1e-6f}});
  const ProgramEnd end = train(model, "out", {"--max_steps", "30", "--fp16"});
  EXPECT_EQ(end.exit_code, kNonFinite) << end.out;
  EXPECT_THAT(end.err, AllOf(HasSubstr("update 1: the loss is not finite before the first update"),
                             HasSubstr("The first tensor that is not finite: "),
                             HasSubstr("transformer.h.1.mlp.c_fc.weight (f16"), HasSubstr("an infinity"),
                             HasSubstr("--precision bf16")));
  EXPECT_FALSE(fs::exists(fs::path(here_ / "out") / "model.safetensors"));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"eval", "--validation_file", tokens_, "--max_length", "32"},
        std::vector<std::string>{"generate", "--prompt_tokens", "72,101", "--max_new_tokens", "2"}}) {
    std::vector<std::string> words = command;
    words.insert(words.end(), {"--model", model, "--fp16"});
    const ProgramEnd refused = run_program(words);
    EXPECT_EQ(refused.exit_code, kNonFinite) << command[0] << refused.out;
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("transformer.h.1.mlp.c_fc.weight (f16"), HasSubstr("--precision bf16")));
  }
  const ProgramEnd other = train(model, "bf16", {"--max_steps", "2", "--bf16"});
  EXPECT_EQ(other.exit_code, kDone) << other.err;
}

TEST_F(Fp16, TheFloorEndsTheRunByName) {
  // Even unscaled, the gradient in front of the last norm is too large: the norm multiplies by the inverse of a tiny deviation.
  const std::string model =
      scaled_model(llama_json({.tied = false}), {{"lm_head.weight", 5e5f}, {"model.norm.weight", 2e3f}});
  const ProgramEnd end = train(model, "out", {"--max_steps", "40", "--fp16"});
  EXPECT_EQ(end.exit_code, kNonFinite) << end.out;
  EXPECT_THAT(end.err,
              AllOf(HasSubstr("update 17: "), HasSubstr("although the loss scale is down to 1"),
                    HasSubstr("The first tensor that is not finite: d."), HasSubstr("--precision bf16")));
  EXPECT_THAT(end.out, HasSubstr("(16 in a row); loss scale 1"));
}

TEST_F(Fp16, WhatItHasNotIsRefusedByName) {
  const std::string model = make_model(here_ / "model", gpt2_json());
  const ProgramEnd placed =
      train(model, "a", {"--from_scratch", "--fp16", "--update_placement", "in_backward"});
  EXPECT_EQ(placed.exit_code, kUsage);
  EXPECT_THAT(placed.err, AllOf(HasSubstr("update_placement in_backward"), HasSubstr("precision fp16"),
                                HasSubstr("expected after")));
  const ProgramEnd split = train(model, "b", {"--from_scratch", "--fp16", "--master_weights", "split"});
  EXPECT_EQ(split.exit_code, kUsage);
  EXPECT_THAT(split.err, AllOf(HasSubstr("master_weights split"), HasSubstr("precision fp16"),
                               HasSubstr("expected full")));
}

TEST_F(Fp16, PlansAndIsInspected) {
  const std::string model = make_model(here_ / "model", gpt2_json());
  const auto plan = [&](std::vector<std::string> words) {
    words.insert(words.begin(),
                 {"plan", "--model", model, "--json", "--costs", "roofline", "--recompute", "none"});
    return Json::parse(output_of(words));
  };
  const Json fp16 = plan({"--precision", "fp16"}),
             bf16 = plan({"--precision", "bf16", "--master_weights", "full"});
  for (const char* category : {"weights", "master_weights", "gradients", "optimizer_state"})
    EXPECT_EQ(fp16["categories"][category], bf16["categories"][category]) << category;
  const ProgramEnd graph =
      expect_done({"inspect", "--model", model, "--fp16", "--max_length", "32", "--phase", "micro_step"});
  EXPECT_THAT(graph.out,
              AllOf(HasSubstr("f16["), HasSubstr("input %loss_scale : f32[1]"), HasSubstr("scaled=1")));
}

}  // namespace
}  // namespace snug
