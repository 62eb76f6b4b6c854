// snug tokenizer, and the other commands with a model that has a trained tokenizer.

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<int64_t> numbers(const std::string& text) {
  std::istringstream words(text);
  std::vector<int64_t> list;
  for (int64_t number = 0; words >> number;) list.push_back(number);
  EXPECT_TRUE(words.eof()) << text.substr(0, 200);
  return list;
}

class TokenizerProgram : public testing::Test {
 protected:
  // A Llama of 1,300 rows beside a tokenizer of fewer tokens.
  std::string model_with_tokenizer(const std::string& tokenizer) const {
    Json config = llama_json({.vocabulary = 1300});
    config["eos_token_id"] = 2;
    const std::string directory = make_model(here_ / ("model_" + tokenizer), config);
    fs::copy(tokenizer_fixture(tokenizer + ".json"), directory + "/tokenizer.json");
    write_text(directory + "/tokenizer_config.json",
               R"({"eos_token":{"content":"</s>"},"chat_template":"kept"})");
    return directory;
  }

  TemporaryDirectory here_;
};

TEST_F(TokenizerProgram, EncodesAndDecodes) {
  const Json expected = json_file(tokenizer_fixture("expected.json"));
  for (const char* name : {"gpt2", "llama3", "llama2", "gemma"}) {
    for (const size_t i : {size_t{0}, size_t{6}, expected["texts"].size() - 1}) {
      const std::string text = expected["texts"][i].get<std::string>();
      write_text(here_ / "text.txt", text);
      expect_done({"tokenizer", "encode", "--tokenizer", tokenizer_fixture(std::string(name) + ".json"),
                   "--file", here_ / "text.txt", "--output", here_ / "ids.txt", "--add_special_tokens",
                   "false"});
      const std::vector<int64_t> ids = numbers(file_text(here_ / "ids.txt"));
      EXPECT_EQ(ids, expected["tokenizers"][name]["ids"][i].get<std::vector<int64_t>>()) << name << " " << i;
      expect_done({"tokenizer", "decode", "--tokenizer", tokenizer_fixture(std::string(name) + ".json"),
                   "--file", here_ / "ids.txt", "--output", here_ / "again.txt", "--skip_special_tokens",
                   "false"});
      EXPECT_EQ(file_text(here_ / "again.txt"),
                expected["tokenizers"][name]["decoded_all"][i].get<std::string>());
    }
  }
  // Special tokens are put around the text unless one says otherwise; without --output ids are printed.
  write_text(here_ / "text.txt", "x");
  EXPECT_EQ(numbers(output_of({"tokenizer", "encode", "--tokenizer", tokenizer_fixture("llama2.json"),
                               "--file", here_ / "text.txt"})),
            expected["tokenizers"]["llama2"]["x"].get<std::vector<int64_t>>());
}

TEST_F(TokenizerProgram, LongTextsTakeLittleMemory) {
  if (kAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemory;
  {  // gone before the program starts: a new process begins with the size of this one
    const std::string sample = file_text(tokenizer_fixture("training.txt"));
    std::string text;
    while (text.size() < 60'000'000) text += sample;
    write_text(here_ / "text.txt", text);
  }
  for (const char* name : {"gpt2.json", "llama2.json"}) {
    const ProgramEnd end = expect_done({"tokenizer", "encode", "--tokenizer", tokenizer_fixture(name),
                                        "--file", here_ / "text.txt", "--output", here_ / "ids.txt"});
    EXPECT_LT(end.peak_resident_bytes, 30'000'000) << name;
    EXPECT_GT(fs::file_size(here_ / "ids.txt"), 60'000'000U / 3);
  }
}

TEST_F(TokenizerProgram, Refusals) {
  const std::string gpt2 = tokenizer_fixture("gpt2.json");
  write_text(here_ / "ids.txt", "1 2\n99999 3");
  expect_refusal({"tokenizer", "decode", "--tokenizer", gpt2, "--file", here_ / "ids.txt"}, kBadFile,
                 {"ids.txt", "word 3 is id 99999", "largest is 600"});
  write_text(here_ / "ids.txt", "1 two 3");
  expect_refusal({"tokenizer", "decode", "--tokenizer", gpt2, "--file", here_ / "ids.txt"}, kBadFile,
                 {"word 2 is \"two\""});
  write_text(here_ / "ids.txt", std::string(1'000'000, '7'));
  expect_refusal({"tokenizer", "decode", "--tokenizer", gpt2, "--file", here_ / "ids.txt"}, kBadFile,
                 {"word 1 is \"77777"});
  expect_refusal({"tokenizer", "encode", "--file", here_ / "ids.txt"}, kUsage, {"--tokenizer is missing"});
  expect_refusal({"tokenizer", "encode", "--tokenizer", gpt2}, kUsage, {"--file is missing"});
  expect_refusal({"tokenizer", "encode", "--tokenizer", gpt2, "--file", here_ / "none.txt"}, kBadFile,
                 {"none.txt"});
  expect_refusal({"tokenizer", "encode", "--tokenizer", here_ / "none.json", "--file", gpt2}, kBadFile,
                 {"none.json"});
  expect_refusal(
      {"tokenizer", "encode", "--tokenizer", gpt2, "--file", gpt2, "--output", here_ / "no/where.txt"}, kIo,
      {"where.txt"});
  expect_refusal({"tokenizer", "encode", "--tokenizer", gpt2, "--file", gpt2, "--model", "x"}, kUsage,
                 {"model does not belong to this command"});
  expect_refusal({"tokenizer", "encod"}, kUsage, {"unknown command tokenizer encod", "tokenizer encode"});
  expect_refusal({"tokenizer", "train", "--vocab_size", "300"}, kUsage, {"--file is missing"});
  expect_refusal({"tokenizer", "train", "--file", tokenizer_fixture("training.txt"), "--vocab_size", "256"},
                 kUsage, {"--vocab_size is 256", "at least 257"});
}

TEST_F(TokenizerProgram, TrainsATokenizer) {
  expect_done({"tokenizer", "train", "--file", tokenizer_fixture("training.txt"), "--vocab_size", "1200",
               "--output", here_ / "tokenizer.json"});
  EXPECT_EQ(json_file(here_ / "tokenizer.json")["model"],
            json_file(tokenizer_fixture("trained.json"))["model"]);
  const std::string whole = file_text(here_ / "tokenizer.json");
  // Its own --memory and --threads, whose names runs have, too.
  expect_done({"tokenizer", "train", "--file", tokenizer_fixture("training.txt"), "--vocab_size", "1200",
               "--memory", "64MiB", "--threads", "1", "--output", here_ / "tokenizer.json"});
  EXPECT_EQ(file_text(here_ / "tokenizer.json"), whole);
  expect_refusal({"tokenizer", "train", "--file", tokenizer_fixture("training.txt"), "--memory", "1000"},
                 kDoesNotFit,
                 {"the distinct pieces of the text take more than 1000 B", "give more --memory"});
  write_text(here_ / "text.txt", "Any text, größer 東京 😀\n");
  expect_done({"tokenizer", "encode", "--tokenizer", here_.path().string(), "--file", here_ / "text.txt",
               "--output", here_ / "ids.txt"});
  EXPECT_EQ(
      output_of({"tokenizer", "decode", "--tokenizer", here_.path().string(), "--file", here_ / "ids.txt"}),
      "Any text, größer 東京 😀\n");
}

// Tokens of all files beside tokenizer.json; a saved model has the files.
TEST_F(TokenizerProgram, TokensBesideTheTokenizerAreReadAndSaved) {
  const std::string model = model_with_tokenizer("llama2");
  write_text(model + "/special_tokens_map.json",
             R"({"additional_special_tokens": ["<turn>"], "pad_token": "<pad>"})");
  write_text(model + "/text.txt", "<turn>Hello, world<turn>the fox<pad> jumps over the lazy dog. ");
  const auto ids = [&](const std::string& directory) {
    return numbers(
        output_of({"tokenizer", "encode", "--tokenizer", directory, "--file", model + "/text.txt"}));
  };
  const std::vector<int64_t> here = ids(model);
  EXPECT_EQ(std::count(here.begin(), here.end(), here[1]), 2) << "<turn>, behind <s>";
  EXPECT_LT(here.size() + 10, ids(model + "/tokenizer.json").size()) << "which is read alone";
  const std::string out = here_ / "out";
  expect_done({"train", "--model", model, "--from_scratch", "--train_file", model + "/text.txt",
               "--output_dir", out, "--max_steps", "1", "--max_length", "8", "--costs", "roofline"});
  EXPECT_EQ(ids(out), here);
}

TEST_F(TokenizerProgram, ModelsTrainOnTextWithTheirOwnTokenizer) {
  const std::string model = model_with_tokenizer("llama2");
  const std::string text = file_text(tokenizer_fixture("training.txt"));
  write_text(here_ / "text.txt", text);
  const std::string out = here_ / "out";
  const std::string said =
      output_of({"train", "--model", model, "--from_scratch", "--train_file", here_ / "text.txt",
                 "--validation_file", here_ / "text.txt", "--output_dir", out, "--max_steps", "3",
                 "--max_length", "32", "--per_device_train_batch_size", "2", "--costs", "roofline"});
  // The tokenizer's files are those of the model, byte for byte.
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    EXPECT_EQ(file_text(out + "/" + file), file_text(model + "/" + file)) << file;
  // Evaluation is over the ids of the text with <s> before and </s> behind: one target fewer.
  expect_done({"tokenizer", "encode", "--tokenizer", model, "--file", here_ / "text.txt", "--output",
               here_ / "ids.txt"});
  const size_t ids = numbers(file_text(here_ / "ids.txt")).size();
  EXPECT_THAT(
      output_of({"eval", "--model", out, "--validation_file", here_ / "text.txt", "--max_length", "32"}),
      HasSubstr(std::to_string(ids)));
  // The same ids as a shard are the same data.
  std::string shard;
  std::vector<int64_t> all = numbers(file_text(here_ / "ids.txt"));
  all.push_back(2);
  for (const int64_t id : all) {
    shard += static_cast<char>(id & 0xFF);
    shard += static_cast<char>(id >> 8);
  }
  write_text(here_ / "ids.bin", shard);
  const auto loss = [&](const std::string& file) {
    const std::string line =
        output_of({"eval", "--model", out, "--validation_file", file, "--max_length", "32"});
    return line.substr(0, line.find('\n'));
  };
  EXPECT_EQ(loss(here_ / "text.txt"), loss(here_ / "ids.bin"));
  // Prompt and answer are text.
  const std::string generated = output_of({"generate", "--model", out, "--prompt", "The licence of",
                                           "--max_new_tokens", "8", "--temperature", "0"});
  EXPECT_THAT(generated, testing::StartsWith("The licence of"));
  EXPECT_THAT(generated, testing::EndsWith("\n"));
}

}  // namespace
}  // namespace snug
