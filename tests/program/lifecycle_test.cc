// A run from beginning to end: what it writes, that what it writes can be used
// again, that it repeats to the bit, and that it ends well when it is
// interrupted.

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <regex>
#include <sstream>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsSupersetOf;

namespace fs = std::filesystem;

class Lifecycle : public testing::Test {
 protected:
  Lifecycle() : text_(here_ / "verses.txt"), model_(make_model(here_ / "model", gpt2_json())) {
    write_text(text_, sample_text(1500));
  }

  // Three updates from scratch on the text into `out`, but for what `change`
  // says on top.
  std::vector<std::string> training(const std::string& out,
                                    const std::vector<std::string>& change = {}) const {
    std::vector<std::string> words = {"train",
                                      "--model",
                                      model_,
                                      "--from_scratch",
                                      "--train_file",
                                      text_,
                                      "--output_dir",
                                      here_ / out,
                                      "--max_steps",
                                      "3",
                                      "--max_length",
                                      "32",
                                      "--per_device_train_batch_size",
                                      "2",
                                      "--logging_steps",
                                      "1",
                                      "--learning_rate",
                                      "1e-3"};
    words.insert(words.end(), change.begin(), change.end());
    return words;
  }

  std::vector<Json> metrics(const std::string& out) const {
    return json_lines(here_ / (out + "/metrics.jsonl"));
  }
  // The losses of all logged updates.
  std::vector<double> losses(const std::string& out) const {
    std::vector<double> list;
    for (const Json& line : metrics(out))
      if (line.contains("loss")) list.push_back(line["loss"]);
    return list;
  }
  double eval_loss(const std::string& out) const {
    for (const Json& line : metrics(out))
      if (line.contains("eval_loss")) return line["eval_loss"];
    return std::nan("");
  }

  TemporaryDirectory here_;
  std::string text_, model_;
};

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const fs::directory_entry& file : fs::directory_iterator(directory))
    names.push_back(file.path().filename().string());
  return names;
}

TEST_F(Lifecycle, FromScratchOnTextWritesAWholeRun) {
  const ProgramEnd end =
      expect_done(training("out", {"--validation_file", text_, "--eval_steps", "2", "--memory", "1GiB"}));
  EXPECT_THAT(names_in(here_ / "out"),
              testing::UnorderedElementsAre("config.json", "model.safetensors", "tokenizer.json",
                                            "tokenizer_config.json", "plan.json", "config.yaml",
                                            "metrics.jsonl", "memory.json"));
  EXPECT_THAT(end.out,
              AllOf(HasSubstr("Model: gpt2, 2 blocks, 72048 parameters"), HasSubstr("Memory at the peak"),
                    HasSubstr("first update: loss 5.5"), HasSubstr("28 of 28 tensors moved"),
                    HasSubstr("Evaluation loss"), HasSubstr("Memory planned")));

  EXPECT_EQ(json_file(here_ / "out/config.json"), json_file(model_ + "/config.json"));
  const Json plan = json_file(here_ / "out/plan.json");
  EXPECT_EQ(plan["budget_bytes"], 1 << 30);
  const Json memory = json_file(here_ / "out/memory.json");
  EXPECT_EQ(memory["planned"]["process_peak_bytes"], plan["peak_bytes"]);
  EXPECT_EQ(memory["planned"]["arena_bytes"], plan["arena_bytes"]);
  EXPECT_EQ(memory["measured"]["arena_bytes"], plan["arena_bytes"]);
  EXPECT_EQ(memory["measured"]["allocations_during_steps"], 0);

  int64_t tokens = 0, updates = 0, evaluations = 0;
  for (const Json& line : metrics("out")) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : line.items()) keys.push_back(key);
    if (line.contains("eval_loss")) {
      EXPECT_THAT(keys, IsSupersetOf({"step", "epoch", "eval_loss"}));
      EXPECT_NEAR(line["eval_loss"].get<double>(), std::log(257.0), 0.5);
      ++evaluations;
    } else if (line.contains("loss")) {
      EXPECT_THAT(keys,
                  IsSupersetOf({"step", "epoch", "loss", "learning_rate", "grad_norm", "tokens_per_second",
                                "tokens_seen", "step_seconds", "memory_rss_bytes"}));
      EXPECT_EQ(line["step"], ++updates);
      tokens += 64;
      EXPECT_EQ(line["tokens_seen"], tokens);
      EXPECT_NEAR(line["loss"].get<double>(), std::log(257.0),
                  0.5);  // an untrained model knows nothing
      EXPECT_GT(line["grad_norm"], 0.0);
      EXPECT_NEAR(line["learning_rate"].get<double>(), 1e-3 * static_cast<double>(4 - updates) / 3, 1e-9);
      EXPECT_GT(line["memory_rss_bytes"], plan["arena_bytes"]);
      EXPECT_NEAR(line["epoch"].get<double>(), static_cast<double>(updates) / 24,
                  1e-9);  // 47 windows, 24 updates
    }
  }
  EXPECT_EQ(updates, 3);
  EXPECT_EQ(evaluations, 2);  // after update 2 and at the end
}

TEST_F(Lifecycle, SavedConfigurationRepeatsTheRun) {
  expect_done(training("out"));
  const auto tensors = all_tensors(here_ / "out");
  fs::copy_file(here_ / "out/config.yaml", here_ / "run.yaml");
  const std::vector<std::string> again = {"train", "--config", here_ / "run.yaml", "--output_dir",
                                          here_ / "again"};
  expect_done(again);
  EXPECT_TRUE(all_tensors(here_ / "again") == tensors);
  EXPECT_EQ(losses("again"), losses("out"));
  // The command line wins over the file.
  std::vector<std::string> longer = {
      "train", "--config", here_ / "run.yaml", "--output_dir=" + (here_ / "longer"), "--max-steps", "4"};
  expect_done(longer);
  EXPECT_EQ(losses("longer").size(), 4u);
  // The plan of that run is asked for with the same file.
  const Json plan = Json::parse(expect_done({"plan", "--json", "--config", here_ / "run.yaml"}).out);
  EXPECT_EQ(plan["arena_bytes"], json_file(here_ / "out/plan.json")["arena_bytes"]);
}

TEST_F(Lifecycle, SeedDecidesEverything) {
  expect_done(training("a", {"--seed", "5"}));
  expect_done(training("b", {"--seed", "5"}));
  expect_done(training("c", {"--seed", "6"}));
  EXPECT_TRUE(file_text(here_ / "a/model.safetensors") == file_text(here_ / "b/model.safetensors"));
  EXPECT_EQ(losses("a"), losses("b"));
  EXPECT_TRUE(file_text(here_ / "a/model.safetensors") != file_text(here_ / "c/model.safetensors"));
  EXPECT_NE(losses("a"), losses("c"));
}

TEST_F(Lifecycle, SameThreadsGiveTheSameBits) {
  for (const char* threads : {"1", "2", "3"}) {
    const std::string a = std::string("a") + threads, b = std::string("b") + threads;
    expect_done(training(a, {"--threads", threads}));
    expect_done(training(b, {"--threads", threads}));
    EXPECT_TRUE(all_tensors(here_ / a) == all_tensors(here_ / b)) << threads;
    EXPECT_EQ(losses(a), losses(b));
  }
}

TEST_F(Lifecycle, OutputDirectoryMayBeTheModelsOwn) {
  expect_done(training("out"));
  const auto before = all_tensors(here_ / "out");
  expect_done({"train", "--model", here_ / "out", "--train_file", text_, "--output_dir", here_ / "out",
               "--overwrite_output_dir", "--max_steps", "2", "--max_length", "32"});
  EXPECT_FALSE(all_tensors(here_ / "out") == before);
  expect_done(
      {"eval", "--model", here_ / "out", "--validation_file", text_, "--max_length", "32", "--check_memory"});
}

TEST_F(Lifecycle, RecomputationGivesTheSameBits) {
  for (const char* precision : {"fp32", "bf16"}) {
    const std::string kept = std::string("kept-") + precision,
                      repeated = std::string("repeated-") + precision;
    expect_done(training(kept, {"--precision", precision}));
    expect_done(training(repeated, {"--precision", precision, "--gradient-checkpointing"}));
    EXPECT_TRUE(file_text(here_ / (kept + "/model.safetensors")) ==
                file_text(here_ / (repeated + "/model.safetensors")));
    EXPECT_EQ(losses(kept), losses(repeated));
  }
}

TEST_F(Lifecycle, AliasesAndDashesMeanTheSame) {
  expect_done(training("a", {"--precision", "bf16", "--warmup_steps", "0.5"}));
  expect_done({"train", "--model-name-or-path=" + model_, "--from-scratch", "true", "--train-file", text_,
               "--output-dir", here_ / "b", "--max_steps", "3", "--block_size=32", "--micro-batch-size=2",
               "--logging_steps=1", "--learning-rate=0.001", "--bf16", "--fp16=false", "--warmup_ratio",
               "0.5"});
  EXPECT_TRUE(file_text(here_ / "a/model.safetensors") == file_text(here_ / "b/model.safetensors"));
}

TEST_F(Lifecycle, TokenShardsAreTheSameStreamAsText) {
  write_text(here_ / "raw.bin", as_uint16_tokens(sample_text(1500)));
  write_text(here_ / "llmc.bin", as_llmc_shard(sample_text(1500)));
  expect_done(training("text", {"--validation_file", text_}));
  for (const char* shard : {"raw.bin", "llmc.bin"}) {
    SCOPED_TRACE(shard);
    const std::string out = std::string("of-") + shard;
    expect_done({"train",
                 "--model",
                 model_,
                 "--from_scratch",
                 "--train_file",
                 here_ / shard,
                 "--validation_file",
                 here_ / shard,
                 "--output_dir",
                 here_ / out,
                 "--max_steps",
                 "3",
                 "--max_length",
                 "32",
                 "--per_device_train_batch_size",
                 "2",
                 "--logging_steps",
                 "1",
                 "--learning_rate",
                 "1e-3"});
    EXPECT_EQ(losses(out), losses("text"));
    EXPECT_EQ(eval_loss(out), eval_loss("text"));
  }
}

TEST_F(Lifecycle, EvaluationOfTheOutputIsTrainingsOwn) {
  for (const char* precision : {"fp32", "bf16"}) {
    SCOPED_TRACE(precision);
    const std::string out = std::string("out-") + precision;
    expect_done(training(out, {"--validation_file", text_, "--precision", precision}));
    const ProgramEnd eval = expect_done({"eval", "--model", here_ / out, "--validation_file", text_,
                                         "--max_length", "32", "--precision", precision});
    std::smatch loss;
    ASSERT_TRUE(std::regex_search(eval.out, loss, std::regex("loss ([0-9.]+)"))) << eval.out;
    // bf16 rounds the saved fp32 weights as training did, so that even there
    // nothing but the printed digits is lost.
    EXPECT_NEAR(std::stod(loss[1]), eval_loss(out), 1e-6);
    EXPECT_THAT(eval.out, HasSubstr("tokens 1500"));
  }
}

// The text's 1501 tokens are 1500 targets; the last window holds 28 of 32, and
// no batch size divides 47 windows.
TEST_F(Lifecycle, EvaluationCountsEveryTargetOnceInAnyBatch) {
  expect_done(training("out"));
  std::string first;
  for (const char* batch : {"1", "5", "64"}) {
    const ProgramEnd eval = expect_done({"eval", "--model", here_ / "out", "--validation_file", text_,
                                         "--max_length", "32", "--per_device_eval_batch_size", batch});
    EXPECT_THAT(eval.out, HasSubstr("tokens 1500"));
    std::smatch loss;
    ASSERT_TRUE(std::regex_search(eval.out, loss, std::regex("loss ([0-9.]+)")));
    if (first.empty()) first = loss[1];
    EXPECT_NEAR(std::stod(loss[1]), std::stod(first), 2e-6);
  }
}

TEST_F(Lifecycle, NoStepLoadsAndSavesEveryTensorByteByByte) {
  for (const char* name : {"gpt2_tied", "gpt2_hub", "gpt2_both_heads", "llama_gqa_untied", "llama_sharded"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      SCOPED_TRACE(std::string(name) + " " + precision);
      const std::string to = here_ / (std::string(name) + "-" + precision);
      const std::string from = copy_fixture(name, to + "-from");
      expect_done(
          {"train", "--model", from, "--max_steps", "0", "--output_dir", to, "--precision", precision});
      auto before = all_tensors(from);
      const auto after = all_tensors(to);
      // Buffers that old exports hold (causal masks, rotary frequencies) are no
      // weights: transformers does not write them either.
      std::erase_if(before, [](const auto& tensor) {
        return tensor.first.ends_with(".attn.bias") || tensor.first.ends_with(".attn.masked_bias") ||
               tensor.first.ends_with(".rotary_emb.inv_freq");
      });
      // A tied head that the file holds a second time is written once.
      if (std::string(name) == "gpt2_both_heads")
        std::erase_if(before, [&](const auto& tensor) { return !after.contains(tensor.first); });
      EXPECT_FALSE(after.empty());
      for (const auto& [tensor, bytes] : before)
        EXPECT_TRUE(after.contains(tensor) && after.at(tensor) == bytes) << tensor;
      EXPECT_EQ(after.size(), before.size());
      EXPECT_EQ(file_text(to + "/config.json"), file_text(from + "/config.json"));
    }
  }
}

TEST_F(Lifecycle, SaveDtypeIsObeyedAndToldToTheConfiguration) {
  const std::string from = copy_fixture("llama_gqa_tied", here_ / "model32"), to = here_ / "model16";
  expect_done({"train", "--model", from, "--max_steps", "0", "--output_dir", to, "--save_dtype", "bf16"});
  const Safetensors saved = Safetensors::read(to + "/model.safetensors");
  for (const auto& [name, entry] : saved.header.items()) EXPECT_EQ(entry["dtype"], "BF16") << name;
  EXPECT_EQ(json_file(to + "/config.json")["dtype"], "bfloat16");
  // Narrowed once, it stays what it is.
  expect_done({"train", "--model", to, "--max_steps", "0", "--output_dir", here_ / "again"});
  EXPECT_TRUE(all_tensors(here_ / "again") == all_tensors(to));
}

// transformers loads in the type that the configuration names: it must not round what the file holds.
TEST_F(Lifecycle, TheConfigurationSaysWhatTheFileHolds) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    Json config = gpt2_json();
    config[key] = "bfloat16";
    const std::string scratch = make_model(here_ / (std::string("scratch-") + key), config),
                      out = here_ / key;
    expect_done({"train", "--model", scratch, "--from_scratch", "--train_file", text_, "--max_length", "32",
                 "--max_steps", "2", "--save_steps", "1", "--output_dir", out});
    for (const std::string& directory : {out, out + "/checkpoint-1"}) {
      EXPECT_EQ(json_file(directory + "/config.json")[key], "float32") << directory;
      EXPECT_EQ(
          Safetensors::read(directory + "/model.safetensors").header["transformer.ln_f.weight"]["dtype"],
          "F32");
    }
    // A configuration that was untrue before is mended, too.
    write_text(out + "/config.json", file_text(scratch + "/config.json"));
    expect_done({"train", "--model", out, "--max_steps", "0", "--output_dir", out + "-tuned"});
    EXPECT_EQ(json_file(out + "-tuned/config.json")[key], "float32");
  }
}

TEST_F(Lifecycle, CheckpointsAreModelDirectories) {
  expect_done(training("out", {"--max_steps", "5", "--save_steps", "2", "--lr_scheduler_type", "constant"}));
  EXPECT_THAT(names_in(here_ / "out"), IsSupersetOf({"checkpoint-2", "checkpoint-4"}));
  EXPECT_FALSE(fs::exists(here_ / "out/checkpoint-5"));
  for (const char* checkpoint : {"checkpoint-2", "checkpoint-4"}) {
    const std::string path = here_ / (std::string("out/") + checkpoint);
    EXPECT_THAT(names_in(path), testing::UnorderedElementsAre("config.json", "model.safetensors",
                                                              "tokenizer.json", "tokenizer_config.json"));
    expect_done({"eval", "--model", path, "--validation_file", text_, "--max_length", "32"});
  }
  // What a run of two updates ends with is what a longer one holds after two.
  expect_done(training("two", {"--max_steps", "2", "--lr_scheduler_type", "constant"}));
  EXPECT_TRUE(all_tensors(here_ / "two") == all_tensors(here_ / "out/checkpoint-2"));
}

TEST_F(Lifecycle, GenerationRepeatsBySeed) {
  expect_done(training("out"));
  const auto sample = [&](const std::vector<std::string>& how) {
    std::vector<std::string> words = {"generate", "--model",          here_ / "out", "--prompt",
                                      "And the ", "--max_new_tokens", "12"};
    words.insert(words.end(), how.begin(), how.end());
    return expect_done(words).out;
  };
  const std::string greedy = sample({"--temperature", "0"});
  EXPECT_TRUE(greedy.starts_with("And the ")) << greedy;
  EXPECT_EQ(greedy.size(), 8u + 12 + 1);
  EXPECT_EQ(sample({"--temperature", "0", "--seed", "9"}), greedy);
  EXPECT_EQ(sample({"--top_k", "1"}), greedy);
  const std::string one = sample({"--seed", "1", "--top_k", "0"});
  EXPECT_EQ(sample({"--seed", "1", "--top_k", "0"}), one);
  EXPECT_NE(sample({"--seed", "2", "--top_k", "0"}), one);
}

TEST_F(Lifecycle, GenerationByIdsForModelsOfAnotherTokenizer) {
  const std::string model = copy_fixture("llama_gqa_untied", here_ / "llama");
  const ProgramEnd end = expect_done({"generate", "--model", model, "--prompt_tokens", "1,2,3",
                                      "--temperature", "0", "--max_new_tokens", "20"});
  std::istringstream ids(end.out);
  int count = 0;
  for (int id = 0; ids >> id; ++count) EXPECT_TRUE(id >= 0 && id < 257) << id;
  EXPECT_GT(count, 0);
  EXPECT_LE(count, 20);
}

TEST_F(Lifecycle, MemoryCheckPasses) {
  for (const char* precision : {"fp32", "bf16"})
    expect_done(training(
        std::string("checked-") + precision,
        {"--check_memory", "--precision", precision, "--recompute", "block", "--validation_file", text_}));
}

TEST_F(Lifecycle, InterruptFinishesTheStepAndSaves) {
  for (int signal : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(signal);
    const std::string out = "out-" + std::to_string(signal);
    RunningProgram run(training(out, {"--max_steps", "1000000"}));
    ASSERT_TRUE(run.wait_for_output("step=3/"));
    run.send(signal);
    const ProgramEnd end = run.wait();
    EXPECT_EQ(end.exit_code, kInterrupted) << end.err;
    EXPECT_THAT(end.out, AllOf(HasSubstr("signal " + std::to_string(signal)), HasSubstr("saving"),
                               HasSubstr("Saved")));
    EXPECT_GE(losses(out).size(), 3u);
    expect_done({"eval", "--model", here_ / out, "--validation_file", text_, "--max_length", "32"});
  }
}

// A step of some seconds: the second signal arrives while the first one waits
// for its end.
TEST_F(Lifecycle, SecondInterruptEndsAtOnce) {
  write_text(text_, sample_text(200'000));  // more than 64 micro-steps take
  model_ = make_model(here_ / "slow", gpt2_json({.blocks = 6, .width = 256, .heads = 4, .positions = 512}));
  RunningProgram run(training("out", {"--max_length", "512", "--per_device_train_batch_size", "4",
                                      "--gradient_accumulation_steps", "64"}));
  ASSERT_TRUE(run.wait_for_output("Memory at the peak"));
  // The handler is there once the weights are; the first signal before that would end the program as any other.
  ASSERT_TRUE(run.wait_for_handler(SIGINT));
  run.send(SIGINT);
  usleep(200'000);
  run.send(SIGINT);
  const ProgramEnd end = run.wait();
  EXPECT_FALSE(end.timed_out);
  EXPECT_EQ(end.exit_code, 128 + SIGINT) << end.err;
  EXPECT_FALSE(fs::exists(here_ / "out/model.safetensors"));
  EXPECT_FALSE(fs::exists(here_ / "out/memory.json"));
}

TEST_F(Lifecycle, NonFiniteUpdateIsSkippedByNameAndTheRunGoesOn) {
  // Byte 255 at position 8 is beyond fp32: its embedding and the position's are finite, their sum is not. Only the second of four windows
  // has it there.
  Json config = gpt2_json({.dropout = 0});
  config["tie_word_embeddings"] = false;
  const std::string model = here_ / "huge";
  expect_done({"train", "--model", make_model(here_ / "untied", config), "--from_scratch", "--max_steps", "0",
               "--output_dir", model});
  Safetensors file = Safetensors::read(model + "/model.safetensors");
  const float huge = 2e38f;
  for (const auto& [name, row] :
       {std::pair("transformer.wte.weight", 255), std::pair("transformer.wpe.weight", 8)}) {
    const auto begin = file.header.at(name)["data_offsets"][0].get<size_t>();
    std::memcpy(file.data.data() + begin + static_cast<size_t>(row) * 48 * 4, &huge, 4);
  }
  write_text(model + "/model.safetensors", file.bytes());
  std::string text = sample_text(4 * 32 - 1);
  text[40] = '\xff';
  write_text(here_ / "tokens.bin", as_uint16_tokens(text));
  const ProgramEnd end = expect_done({"train",
                                      "--model",
                                      model,
                                      "--train_file",
                                      here_ / "tokens.bin",
                                      "--output_dir",
                                      here_ / "out",
                                      "--shuffle",
                                      "false",
                                      "--num_train_epochs",
                                      "2",
                                      "--per_device_train_batch_size",
                                      "1",
                                      "--max_length",
                                      "32",
                                      "--logging_steps",
                                      "1",
                                      "--lr_scheduler_type",
                                      "linear",
                                      "--warmup_steps",
                                      "2"});
  EXPECT_THAT(end.out, AllOf(HasSubstr("update 2: the loss is not finite; "
                                       "skipped, nothing changed (1 in a row)"),
                             HasSubstr("update 6: the loss is not finite; "
                                       "skipped, nothing changed (1 in a row)"),
                             HasSubstr("Trained 8 updates (2 skipped)")));
  const std::vector<Json> rows = metrics("out");
  ASSERT_GE(rows.size(), 8u);
  EXPECT_TRUE(rows[1]["loss"].is_null());
  EXPECT_EQ(rows[1]["tokens_seen"], 64);  // its data is consumed …
  EXPECT_EQ(rows[2]["learning_rate"],
            rows[1]["learning_rate"]);  // … but the schedule stays where it was
  EXPECT_EQ(rows[7]["skipped_steps"], 2);
}

TEST_F(Lifecycle, HelpAndVersionOfEveryCommand) {
  for (const char* command : {"plan", "train", "eval", "generate", "inspect", "version"}) {
    const ProgramEnd end = expect_done({command, "--help"});
    EXPECT_THAT(end.out, AllOf(HasSubstr(std::string("Usage: snug ") + command), HasSubstr("Example:"),
                               HasSubstr("--config")));
  }
  const Json version = Json::parse(expect_done({"version", "--json"}).out);
  for (const char* key :
       {"version", "build", "compiler", "libraries", "processor", "dispatch", "dispatch_reason", "threads"})
    EXPECT_TRUE(version.contains(key)) << key;
  expect_done({"--version"});
  EXPECT_THAT(expect_done({"--help"}).out, HasSubstr("Exit codes"));
}

TEST_F(Lifecycle, InspectPrintsEveryPoint) {
  for (const char* point :
       {"forward", "differentiate", "cast", "accumulate", "final", "schedule", "layout", "kernels", "plan"}) {
    SCOPED_TRACE(point);
    EXPECT_GT(expect_done({"inspect", "--model", model_, "--at", point, "--bf16",
                           "--gradient_accumulation_steps", "2"})
                  .out.size(),
              100u);
  }
  const ProgramEnd wrong = run_program({"inspect", "--model", model_, "--at", "middle"});
  EXPECT_EQ(wrong.exit_code, kUsage);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("\"middle\""), HasSubstr("schedule")));
}

}  // namespace
}  // namespace snug
