// Rows of JSON from the file to the trained model: formats, the cache, what is held out, and what is refused.

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using testing::HasSubstr;
using testing::Not;

namespace fs = std::filesystem;

class DataProgram : public testing::Test {
 protected:
  // No tokenizer: text is read byte by byte.
  DataProgram() : model_(make_model(here_ / "model", llama_json({.positions = 256}))) {}

  std::vector<std::string> training(const std::string& file,
                                    const std::vector<std::string>& change = {}) const {
    std::vector<std::string> words = {"train",
                                      "--model",
                                      model_,
                                      "--from_scratch",
                                      "--train_file",
                                      file,
                                      "--output_dir",
                                      here_ / "out",
                                      "--overwrite_output_dir",
                                      "--max_steps",
                                      "2",
                                      "--max_length",
                                      "64",
                                      "--per_device_train_batch_size",
                                      "2",
                                      "--data_cache",
                                      here_ / "cache",
                                      "--costs",
                                      "roofline"};
    words.insert(words.end(), change.begin(), change.end());
    return words;
  }
  std::string add(const std::string& name, const std::string& text) const {
    write_text(here_ / name, text);
    return here_ / name;
  }
  // Rows whose prompts and completions are of different lengths.
  std::string completions(int count) const {
    std::string text;
    for (int i = 0; i < count; ++i)
      text +=
          Json{{"prompt", "Say " + std::string(static_cast<size_t>(i % 7), 'a') + ": "},
               {"completion", std::string(static_cast<size_t>(1 + i % 11), static_cast<char>('a' + i % 26))}}
              .dump() +
          "\n";
    return text;
  }
  std::vector<fs::path> cached() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(here_ / "cache")) files.push_back(entry.path());
    return files;
  }
  // metrics.jsonl but for what time and memory make of it.
  std::vector<Json> numbers() const {
    std::vector<Json> rows;
    for (Json row : json_lines(here_ / "out/metrics.jsonl")) {
      Json kept;
      for (const char* key : {"step", "loss", "grad_norm", "supervised_tokens", "eval_loss", "eval_tokens"})
        if (row.contains(key)) kept[key] = row[key];
      rows.push_back(kept);
    }
    return rows;
  }

  TemporaryDirectory here_;
  std::string model_;
};

TEST_F(DataProgram, AFileOfAnUnknownEndingIsNeverTakenForTokens) {
  const std::string text = sample_text(4000);
  for (const char* name : {"notes.log", "train.py", "ids.u16"})
    expect_refusal(training(add(name, text)), kBadFile,
                   {name, "its ending says neither text, rows nor tokens", "--dataset_format text"});
  EXPECT_THAT(expect_done(training(add("notes.md", text))).out, HasSubstr("Data: text, "));
  const std::string log = add("notes.log", text);
  EXPECT_THAT(expect_done(training(log, {"--dataset_format", "text"})).out, HasSubstr("Data: text, 4,001"));
  EXPECT_THAT(
      expect_done(training(add("ids.u16", as_uint16_tokens(text)), {"--dataset_format", "shards"})).out,
      HasSubstr("Data: shards, 4,001 tokens"));
}

TEST_F(DataProgram, AFileThatIsGivenTwiceIsTold) {
  const std::string file = add("a.txt", sample_text(4000));
  const ProgramEnd twice = expect_done(training(file, {"--train_file", file + "," + file}));
  EXPECT_THAT(twice.out + twice.err, HasSubstr("a.txt is given more than once as training data"));
  const ProgramEnd both = expect_done(training(file, {"--validation_file", file}));
  EXPECT_THAT(both.out + both.err, HasSubstr("a.txt is training and validation data"));
}

TEST_F(DataProgram, TrainsOnCompletionsFromAFileAndTheSecondTimeFromTheCache) {
  const std::string file = add("rows.jsonl", completions(40));
  const ProgramEnd first = expect_done(training(file));
  EXPECT_THAT(first.out, HasSubstr("Data: prompt_completion, 40 samples"));
  EXPECT_THAT(first.out, HasSubstr("windows of 64: packed, "));
  EXPECT_THAT(first.out, HasSubstr("are learned\n"));
  EXPECT_THAT(first.out, HasSubstr("0 allocations during steps"));
  ASSERT_EQ(cached().size(), 1u);
  const std::vector<Json> expected = numbers();
  EXPECT_GT(expected.at(0)["supervised_tokens"], 0);

  const ProgramEnd second = expect_done(training(file));
  EXPECT_THAT(second.out, HasSubstr("(prepared by an earlier run)"));
  EXPECT_EQ(numbers(), expected);

  // Another content under the same name is another key; so is another reading of the same content.
  write_text(file, completions(41));
  EXPECT_THAT(expect_done(training(file)).out, HasSubstr("41 samples"));
  expect_done(training(file, {"--train_on_inputs"}));
  EXPECT_EQ(cached().size(), 3u);
  // The same in another program's words.
  EXPECT_THAT(expect_done(training(file, {"--mask_prompt", "false"})).out,
              HasSubstr("(prepared by an earlier run)"));
  for (const fs::path& path : cached()) fs::resize_file(path, fs::file_size(path) / 2);
  const ProgramEnd broken = expect_done(training(file));
  EXPECT_THAT(broken.err, HasSubstr("prepared data is made anew"));
}

TEST_F(DataProgram, TheWayOfDataDoesNotChangeTheNumbers) {
  const std::string file = add("rows.jsonl", completions(40));
  expect_done(training(file, {"--threads", "1"}));
  const std::vector<Json> one = numbers();
  expect_done(training(
      file, {"--threads", "1", "--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "2"}));
  const std::vector<Json> accumulated = numbers();
  ASSERT_EQ(one.size(), accumulated.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].value("supervised_tokens", 0), accumulated[i].value("supervised_tokens", 0));
    if (!one[i].contains("loss")) continue;
    EXPECT_NEAR(one[i]["loss"].get<double>(), accumulated[i]["loss"].get<double>(), 1e-5);
  }
  for (const Json& row : json_lines(here_ / "out/metrics.jsonl"))
    if (row.contains("step_seconds")) {
      EXPECT_GE(row["data_wait_share"].get<double>(), 0);
      EXPECT_LE(row["data_wait_share"].get<double>(), 1);
    }
}

// Three windows, one a micro-step, two an update: the last micro-step of the epoch holds nothing, and adds nothing.
TEST_F(DataProgram, AMicroStepOfNothingAddsNothing) {
  const std::string file = add("rows.jsonl", completions(3));
  const auto run = [&](const std::string& batch, const std::string& accumulation) {
    expect_done(training(file, {"--packing", "false", "--per_device_train_batch_size", batch,
                                "--gradient_accumulation_steps", accumulation, "--logging_steps", "1"}));
    return numbers();
  };
  const std::vector<Json> apart = run("1", "2"), together = run("2", "1");
  ASSERT_EQ(apart.size(), together.size());
  ASSERT_EQ(apart.at(1)["step"], 2);
  for (size_t i = 0; i < apart.size(); ++i) {
    EXPECT_EQ(apart[i].value("supervised_tokens", 0), together[i].value("supervised_tokens", 0));
    for (const char* key : {"loss", "grad_norm"}) {
      if (!together[i].contains(key)) continue;
      EXPECT_NEAR(apart[i][key].get<double>(), together[i][key].get<double>(),
                  2e-5 * together[i][key].get<double>())
          << i << key;
    }
  }
}

// 64 rows of at most 60 ids and one of 200 at place 50. The plan holds windows, whatever is in them; a shorter window cuts it, which is told.
TEST_F(DataProgram, OneLongRowChangesNoPlan) {
  const std::string spike = Json{{"prompt", "Say: "}, {"completion", std::string(195, 's')}}.dump() + "\n";
  const auto memory = [&](const std::string& file) {
    expect_done(training(file, {"--packing", "false", "--max_length", "256", "--per_device_train_batch_size",
                                "1", "--max_steps", "-1", "--num_train_epochs", "1"}));
    return json_file(here_ / "out/memory.json");
  };
  const Json even = memory(add("even.jsonl", completions(65))),
             one = memory(add("one.jsonl", completions(50) + spike + completions(14)));
  EXPECT_EQ(one["planned"]["arena_bytes"], even["planned"]["arena_bytes"]);
  EXPECT_EQ(one["measured"]["arena_bytes"], one["planned"]["arena_bytes"]);
  EXPECT_EQ(one["measured"]["allocations_during_steps"], 0);
  if (!kAddressSanitizer) {
    EXPECT_LE(one["measured"]["process_peak_bytes"], one["planned"]["process_peak_bytes"]);
  }
  EXPECT_THAT(output_of(training(here_ / "one.jsonl", {"--max_length", "128"})),
              HasSubstr("1 samples truncated to 128 positions (the longest has 200)"));
}

TEST_F(DataProgram, ShardsByAPatternAreOneStream) {
  fs::create_directories(here_ / "shards");
  for (const char* name : {"shards/b_0.bin", "shards/b_1.bin", "shards/c.bin"})
    add(name, as_uint16_tokens(sample_text(300)));
  EXPECT_THAT(output_of(training(here_ / "shards/b_*.bin")),
              HasSubstr("Data: shards, 602 tokens from 2 files in "));
}

TEST_F(DataProgram, ConversationsThroughATemplate) {
  const std::string chat =
      add("chat.jsonl",
          R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes!"}]})"
          "\n");
  // "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" is 52 bytes, "Yes!<|im_end|>" is 14, a line feed is the last.
  const ProgramEnd end = expect_done(training(chat, {"--chat_template", "chatml", "--max_length", "128"}));
  EXPECT_THAT(end.out, HasSubstr("Data: messages, 1 samples, 66 positions of which 21.2 % are learned"));
  const ProgramEnd shown = expect_done({"data", "inspect", chat, "--model", model_, "--chat_template",
                                        "chatml", "--max_length", "128", "--data_cache", here_ / "cache"});
  EXPECT_THAT(shown.out, HasSubstr("assistant\n[[Yes!<|im_end|>]]\n"));
  EXPECT_THAT(shown.out, HasSubstr("(prepared by an earlier run)"));
  expect_refusal(training(chat), kBadFile, {"chat.jsonl:1", "chat template"});
  expect_refusal(training(chat, {"--chat_template", "unknown"}), kUsage, {"unknown", "chatml"});

  const std::string alpaca =
      add("alpaca.json", R"([{"instruction": "Say it", "input": "", "output": "it"}])");
  EXPECT_THAT(expect_done(training(alpaca, {"--max_length", "256"})).out,
              HasSubstr("Data: alpaca, 1 samples"));
}

TEST_F(DataProgram, TextsFoldersAndTokens) {
  const std::string texts =
      add("texts.jsonl", "{\"text\": \"" + std::string(150, 'x') + "\"}\n{\"text\": \"short\"}\n");
  const ProgramEnd text = expect_done(training(texts));
  EXPECT_THAT(text.out, HasSubstr("Data: json_text, 2 samples, 155 positions of which 100.0 % are learned"));
  EXPECT_THAT(text.out, HasSubstr("1 documents cut into pieces"));

  const std::string tokens =
      add("tokens.jsonl", R"({"input_ids": [1, 2, 3, 4], "labels": [-100, -100, 3, 4]})"
                          "\n"
                          R"({"input_ids": [5, 6, 7]})"
                          "\n");
  EXPECT_THAT(expect_done(training(tokens)).out,
              HasSubstr("Data: tokens, 2 samples, 5 positions of which 80.0 % are learned"));

  // A folder, and files of it by a pattern.
  fs::create_directories(here_ / "folder");
  add("folder/a.jsonl", completions(3));
  add("folder/b.jsonl", completions(4));
  EXPECT_THAT(expect_done(training(here_ / "folder")).out, HasSubstr("7 samples from 2 files"));
  EXPECT_THAT(expect_done(training(here_ / "folder/b*.jsonl")).out, HasSubstr("4 samples, "));
}

TEST_F(DataProgram, EvaluatesRowsAndAPartThatIsHeldOut) {
  const std::string file = add("rows.jsonl", completions(40));
  const ProgramEnd trained = expect_done(training(file, {"--validation_split", "0.25"}));
  EXPECT_THAT(trained.out, HasSubstr("Data: prompt_completion, 30 samples"));
  EXPECT_THAT(trained.out, HasSubstr("Validation: prompt_completion, 10 samples"));
  const std::vector<Json> rows = numbers();
  EXPECT_TRUE(
      std::any_of(rows.begin(), rows.end(), [](const Json& row) { return row.contains("eval_loss"); }));
  EXPECT_THAT(expect_done(training(file, {"--validation_split", "7"})).out,
              HasSubstr("Validation: prompt_completion, 7 samples"));

  // Packed or padded, the loss is the same.
  std::vector<double> losses;
  for (const char* packing : {"true", "false"}) {
    const ProgramEnd end =
        expect_done({"eval", "--model", here_ / "out", "--validation_file", file, "--max_length", "64",
                     "--packing", packing, "--data_cache", here_ / "cache"});
    std::smatch found;
    ASSERT_TRUE(std::regex_search(end.out, found, std::regex("loss ([0-9.]+)"))) << end.out;
    losses.push_back(std::stod(found[1]));
  }
  EXPECT_NEAR(losses[0], losses[1], 2e-6 * losses[0]);

  const std::string text = add("text.txt", sample_text(2000));
  EXPECT_THAT(expect_done(training(text, {"--validation_split", "0.1"})).out,
              HasSubstr("Validation: text, 200 tokens in 4 windows of 64"));
  expect_refusal(training(text, {"--validation_split", "5"}), kUsage,
                 {"validation_split is 5; expected a share below 1"});
  expect_refusal(training(file, {"--validation_split", "40"}), kUsage,
                 {"validation_split 40 takes 40 of the 40 rows", "left to train on"});
  expect_refusal(training(file, {"--validation_split", "0.1", "--validation_file", file}), kUsage,
                 {"expected one of them"});
}

TEST_F(DataProgram, InspectsRowsBeforeAnybodyTrainsOnThem) {
  const std::string once = R"({"prompt": "Q: \u001b[31m", "completion": "yes"})",
                    long_one = Json{{"prompt", std::string(80, 'p')}, {"completion", "c"}}.dump();
  const std::string file = add("rows.jsonl", once + "\n" + long_one + "\n" + once + "\n");
  const std::vector<std::string> words = {"data",         "inspect", file,           "--model",      model_,
                                          "--max_length", "64",      "--data_cache", here_ / "cache"};
  const ProgramEnd end = expect_done(words);
  EXPECT_THAT(end.out, HasSubstr("Data: prompt_completion, 3 samples"));
  EXPECT_THAT(end.out, HasSubstr("1 samples have the ids of an earlier one"));
  EXPECT_THAT(end.out, HasSubstr("1 samples truncated to 64 positions"));
  EXPECT_THAT(end.out, HasSubstr("Q: \\x1b[31m[[yes<|endoftext|>]]"))
      << "no byte of the data reaches the terminal as a command";
  EXPECT_THAT(end.out, HasSubstr("--- truncated here: max_length is 64"));

  std::vector<std::string> json = words;
  json.insert(json.end(), {"--json", "--samples", "1"});
  const Json report = Json::parse(expect_done(json).out);
  EXPECT_EQ(report["samples"], 3);
  EXPECT_EQ(report["duplicates"], 1);
  EXPECT_EQ(report["positions"]["longest"], 81);
  EXPECT_EQ(report["shown"].size(), 1u);
  // The run that follows has the file already.
  EXPECT_THAT(expect_done(training(file)).out, HasSubstr("(prepared by an earlier run)"));
  expect_refusal({"data", "inspect", "--model", model_}, kUsage, {"no data file is named"});
  expect_refusal({"train", file}, kUsage, {"found \"" + file + "\" where an option was expected"});
}

TEST_F(DataProgram, InspectShowsTheWindowsOfTextsAndShards) {
  // Windows of 8: "12345678" twice, then "abc\x1b" and the end.
  const std::vector<std::string> text = {"data",    "inspect",   add("text.txt", "1234567812345678abc\x1b"),
                                         "--model", model_,      "--max_length",
                                         "8",       "--samples", "9"};
  const ProgramEnd end = expect_done(text);
  EXPECT_THAT(end.out, HasSubstr("Data: text, 21 tokens in 3 windows of 8\n"
                                 "13 of the vocabulary's 257 ids occur; the largest is 256\n"
                                 "1 times the end of text (256)\n"
                                 "1 windows have the ids of an earlier one\n"));
  EXPECT_THAT(end.out, HasSubstr("--- window 2: 8 positions, 8 learned\n12345678\n"));
  EXPECT_THAT(end.out, HasSubstr("--- window 3: 4 positions, 4 learned\nabc\\x1b<|endoftext|>\n"));

  std::vector<std::string> shard = text;
  shard[2] = add("tokens.bin", std::string("\x05\0\0\0\x06\0\0\0\0\x01\0\0", 12));
  shard.insert(shard.end(), {"--token_dtype", "uint32", "--json"});
  const Json report = Json::parse(expect_done(shard).out);
  EXPECT_EQ(report["format"], "shards");
  EXPECT_EQ(report["tokens"], 3);
  EXPECT_EQ(report["largest_id"], 256);
  EXPECT_EQ(report["different_ids"], 3);
  EXPECT_EQ(report["shown"][0]["parts"][0]["text"], "5 6 256 ") << "a model without a tokenizer";
}

TEST_F(DataProgram, BadRowsAreToldOrCounted) {
  const std::string file =
      add("rows.jsonl", completions(5) + "{\"prompt\": \"no completion\"}\n" + completions(2));
  expect_refusal(training(file), kBadFile, {"rows.jsonl:6", "completion"});
  EXPECT_FALSE(fs::exists(here_ / "out/metrics.jsonl"));
  const ProgramEnd skipped = expect_done(training(file, {"--skip_bad_rows"}));
  EXPECT_THAT(skipped.out, HasSubstr("1 of 8 rows skipped because they are broken"));
  EXPECT_THAT(skipped.out, HasSubstr("rows.jsonl:6"));
  // A later run, which reads the cache, says the same.
  const ProgramEnd again = expect_done(training(file, {"--skip_bad_rows"}));
  EXPECT_THAT(again.out, HasSubstr("(prepared by an earlier run)"));
  EXPECT_THAT(again.out, HasSubstr("1 of 8 rows skipped because they are broken"));
  EXPECT_THAT(again.out, HasSubstr("rows.jsonl:6: completion is missing"));
}

TEST_F(DataProgram, SegmentsAreTakenAsTheyStand) {
  const std::string file = add(
      "rows.jsonl",
      R"({"segments": [{"label": false, "text": "Q: "}, {"label": true, "text": "yes"}, {"label": false, "text": "\n"}]})"
      "\n");
  const std::vector<std::string> words = {"data", "inspect",      file,           "--model",
                                          model_, "--data_cache", here_ / "cache"};
  const ProgramEnd end = expect_done(words);
  EXPECT_THAT(end.out, HasSubstr("Data: segments, 1 samples, 6 positions of which 50.0 % are learned"));
  EXPECT_THAT(end.out, HasSubstr("\nQ: [[yes]]\n"));
  write_text(file, R"({"segments": [{"text": "a"}]})");
  expect_refusal(words, kBadFile,
                 {"rows.jsonl:1: segments[0].label is missing; expected true for what is learned"});
}

TEST_F(DataProgram, ChatTemplatesHaveVariablesOfTheRowAndOfTheRun) {
  const std::string turns =
      R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
  const std::string file = add(
      "rows.jsonl", "{" + turns + "}\n{" + turns + R"(, "chat_template_kwargs": {"mood": "sunny"}})" + "\n");
  const std::string chat = add("chat.jinja",
                               "{% for m in messages %}{{ m.role }} {{ mood }}: {% generation %}{{ m.content "
                               "}}{% endgeneration %} {% endfor %}");
  const std::vector<std::string> words = {
      "data", "inspect", file, "--model", model_, "--data_cache", here_ / "cache", "--chat_template", chat};
  const auto with = [&](const std::string& variables) {
    std::vector<std::string> more = words;
    more.insert(more.end(), {"--chat_template_kwargs", variables});
    return more;
  };
  EXPECT_THAT(expect_done(words).out, HasSubstr("assistant : [[b]]"));
  const ProgramEnd end = expect_done(with(R"({"mood": "grey"})"));
  EXPECT_THAT(end.out, HasSubstr("assistant grey: [[b]]"));
  EXPECT_THAT(end.out, HasSubstr("assistant sunny: [[b]]"));
  expect_refusal(with("grey"), kUsage, {"chat_template_kwargs", "not valid JSON"});
  expect_refusal(with(R"({"messages": []})"), kUsage,
                 {"chat_template_kwargs sets messages; expected variables"});
  write_text(file, "{" + turns + R"(, "chat_template_kwargs": ["mood"]})" + "\n");
  expect_refusal(words, kBadFile,
                 {R"(rows.jsonl:1: chat_template_kwargs is ["mood"] (array); expected an object)"});
}

// Three times as many rows take no more memory, whether they are prepared or read back.
TEST_F(DataProgram, MemoryDoesNotGrowWithTheData) {
  // Row by row: what the kernel counts of a child begins with what its parent holds.
  const auto rows_file = [&](int megabytes) {
    std::ofstream file(here_ / "rows.jsonl");
    for (int i = 0; file.tellp() < megabytes << 20; ++i)
      file << Json{{"text", std::string(1500, static_cast<char>('a' + i % 26))}}.dump() << "\n";
    return here_ / "rows.jsonl";
  };
  const auto peak = [&](int megabytes) {
    const std::string file = rows_file(megabytes);
    const std::vector<std::string> words = {"data",      "inspect", file,           "--model",      model_,
                                            "--samples", "0",       "--data_cache", here_ / "cache"};
    return std::pair(expect_done(words).peak_resident_bytes, expect_done(words).peak_resident_bytes);
  };
  const auto small = peak(10), large = peak(30);
  EXPECT_LT(large.first, small.first + (8 << 20));
  EXPECT_LT(large.second, small.second + (4 << 20));
}

// Killed while it prepares: the next run goes on with what is there, and comes to the same file.
TEST_F(DataProgram, APreparationThatWasKilledGoesOn) {
  std::string rows;
  for (int i = 0; i < 40000; ++i)
    rows += Json{{"text", std::to_string(i) + std::string(400, 'x')}}.dump() + "\n";
  const std::string file = add("rows.jsonl", rows);
  const std::vector<std::string> words = {"data",         "inspect", file,        "--model", model_,
                                          "--samples",    "0",       "--threads", "1",       "--data_cache",
                                          here_ / "cache"};
  {
    RunningProgram killed(words);
    const auto part_bytes = [&] {
      if (!fs::exists(here_ / "cache")) return uintmax_t{0};
      const auto files = cached();
      return files.empty() ? uintmax_t{0} : fs::file_size(files.front());
    };
    for (int i = 0; i < 20000 && part_bytes() < 5 << 20; ++i) usleep(1000);
    killed.send(SIGKILL);
    killed.wait();
  }
  ASSERT_EQ(cached().size(), 1u);
  if (cached().front().extension() == ".samples") GTEST_SKIP() << "it was done before it could be killed";
  expect_done(words);
  ASSERT_EQ(cached().size(), 1u);
  const std::string resumed = file_text(cached().front());
  fs::remove(cached().front());
  expect_done(words);
  EXPECT_TRUE(resumed == file_text(cached().front()));
}

TEST_F(DataProgram, NothingToLearnIsRefused) {
  Json long_prompt = {{"prompt", std::string(100, 'p')}, {"completion", "c"}};
  const std::string file = add("rows.jsonl", long_prompt.dump() + "\n");
  expect_refusal(training(file), kBadFile, {"none of 1 samples has a supervised token within max_length 64"});
  const ProgramEnd mixed =
      expect_done(training(add("mixed.jsonl", completions(3) + long_prompt.dump() + "\n")));
  EXPECT_THAT(mixed.out,
              HasSubstr("1 samples truncated to 64 positions (the longest has 101): 2 learned tokens lost"));
  EXPECT_THAT(mixed.out, HasSubstr("warning: 1 samples have no learned token within 64 positions and are "
                                   "left out; the first is number 4"));
}

}  // namespace
}  // namespace snug
