// snug tokenizer, and the other commands with a model that has a trained tokenizer.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string fixture(const std::string& name) { return std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/tokenizers/" + name; }

std::vector<int64_t> numbers(const std::string& text) {
  std::istringstream words(text);
  std::vector<int64_t> list;
  for (int64_t number = 0; words >> number;) list.push_back(number);
  EXPECT_TRUE(words.eof()) << text.substr(0, 200);
  return list;
}

class TokenizerProgram : public testing::Test {
 protected:
  static std::string expect_done(const std::vector<std::string>& arguments) {
    const ProgramEnd end = run_program(arguments);
    EXPECT_EQ(end.exit_code, 0) << end.err << end.out;
    return end.out;
  }
  static void expect_refusal(const std::vector<std::string>& arguments, int code, const std::vector<std::string>& fragments) {
    const ProgramEnd end = run_program(arguments);
    EXPECT_EQ(end.exit_code, code) << end.err << end.out;
    for (const std::string& fragment : fragments) EXPECT_THAT(end.err, HasSubstr(fragment));
    EXPECT_THAT(end.err, testing::Not(HasSubstr("internal error")));
  }
  // A Llama of 1,300 rows beside a tokenizer of fewer tokens.
  std::string model_with_tokenizer(const std::string& tokenizer) const {
    Json config = llama_json({.vocabulary = 1300});
    config["eos_token_id"] = 2;
    const std::string directory = make_model(here_ / ("model_" + tokenizer), config);
    fs::copy(fixture(tokenizer + ".json"), directory + "/tokenizer.json");
    write_text(directory + "/tokenizer_config.json", R"({"eos_token":{"content":"</s>"},"chat_template":"kept"})");
    return directory;
  }

  TemporaryDirectory here_;
};

TEST_F(TokenizerProgram, EncodesAndDecodes) {
  const Json expected = json_file(fixture("expected.json"));
  for (const char* name : {"gpt2", "llama3", "llama2", "gemma"}) {
    for (const size_t i : {size_t{0}, size_t{6}, expected["texts"].size() - 1}) {
      const std::string text = expected["texts"][i].get<std::string>();
      write_text(here_ / "text.txt", text);
      expect_done({"tokenizer", "encode", "--tokenizer", fixture(std::string(name) + ".json"), "--file", here_ / "text.txt",
                   "--output", here_ / "ids.txt", "--add_special_tokens", "false"});
      const std::vector<int64_t> ids = numbers(file_text(here_ / "ids.txt"));
      EXPECT_EQ(ids, expected["tokenizers"][name]["ids"][i].get<std::vector<int64_t>>()) << name << " " << i;
      expect_done({"tokenizer", "decode", "--tokenizer", fixture(std::string(name) + ".json"), "--file", here_ / "ids.txt",
                   "--output", here_ / "again.txt", "--skip_special_tokens", "false"});
      EXPECT_EQ(file_text(here_ / "again.txt"), expected["tokenizers"][name]["decoded_all"][i].get<std::string>());
    }
  }
  // Special tokens are put around the text unless one says otherwise; without --output ids are printed.
  write_text(here_ / "text.txt", "x");
  EXPECT_EQ(numbers(expect_done({"tokenizer", "encode", "--tokenizer", fixture("llama2.json"), "--file", here_ / "text.txt"})),
            expected["tokenizers"]["llama2"]["x"].get<std::vector<int64_t>>());
}

TEST_F(TokenizerProgram, LongTextsTakeLittleMemory) {
  if (kAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemory;
  {  // gone before the program starts: a new process begins with the size of this one
    const std::string sample = file_text(fixture("training.txt"));
    std::string text;
    while (text.size() < 60'000'000) text += sample;
    write_text(here_ / "text.txt", text);
  }
  for (const char* name : {"gpt2.json", "llama2.json"}) {
    const ProgramEnd end = run_program({"tokenizer", "encode", "--tokenizer", fixture(name), "--file", here_ / "text.txt",
                                        "--output", here_ / "ids.txt"});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_LT(end.peak_resident_bytes, 30'000'000) << name;
    EXPECT_GT(fs::file_size(here_ / "ids.txt"), 60'000'000U / 3);
  }
}

TEST_F(TokenizerProgram, Refusals) {
  const std::string gpt2 = fixture("gpt2.json");
  write_text(here_ / "ids.txt", "1 2\n99999 3");
  expect_refusal({"tokenizer", "decode", "--tokenizer", gpt2, "--file", here_ / "ids.txt"}, 3, {"ids.txt", "word 3 is id 99999", "largest is 600"});
  write_text(here_ / "ids.txt", "1 two 3");
  expect_refusal({"tokenizer", "decode", "--tokenizer", gpt2, "--file", here_ / "ids.txt"}, 3, {"word 2 is \"two\""});
  write_text(here_ / "ids.txt", std::string(1'000'000, '7'));
  expect_refusal({"tokenizer", "decode", "--tokenizer", gpt2, "--file", here_ / "ids.txt"}, 3, {"word 1 is \"77777"});
  expect_refusal({"tokenizer", "encode", "--file", here_ / "ids.txt"}, 2, {"--tokenizer is missing"});
  expect_refusal({"tokenizer", "encode", "--tokenizer", gpt2}, 2, {"--file is missing"});
  expect_refusal({"tokenizer", "encode", "--tokenizer", gpt2, "--file", here_ / "none.txt"}, 3, {"none.txt"});
  expect_refusal({"tokenizer", "encode", "--tokenizer", here_ / "none.json", "--file", gpt2}, 3, {"none.json"});
  expect_refusal({"tokenizer", "encode", "--tokenizer", gpt2, "--file", gpt2, "--output", here_ / "no/where.txt"}, 6, {"where.txt"});
  expect_refusal({"tokenizer", "encode", "--tokenizer", gpt2, "--file", gpt2, "--model", "x"}, 2, {"model does not belong to this command"});
  expect_refusal({"tokenizer", "encod"}, 2, {"unknown command tokenizer encod", "tokenizer encode"});
  expect_refusal({"tokenizer", "train", "--vocab_size", "300"}, 2, {"--file is missing"});
  expect_refusal({"tokenizer", "train", "--file", fixture("training.txt"), "--vocab_size", "256"}, 2,
                 {"--vocab_size is 256", "at least 257"});
}

TEST_F(TokenizerProgram, TrainsATokenizer) {
  expect_done({"tokenizer", "train", "--file", fixture("training.txt"), "--vocab_size", "1200", "--output", here_ / "tokenizer.json"});
  EXPECT_EQ(json_file(here_ / "tokenizer.json")["model"], json_file(fixture("trained.json"))["model"]);
  write_text(here_ / "text.txt", "Any text, größer 東京 😀\n");
  expect_done({"tokenizer", "encode", "--tokenizer", here_.path().string(), "--file", here_ / "text.txt", "--output", here_ / "ids.txt"});
  EXPECT_EQ(expect_done({"tokenizer", "decode", "--tokenizer", here_.path().string(), "--file", here_ / "ids.txt"}), "Any text, größer 東京 😀\n");
}

TEST_F(TokenizerProgram, ModelsTrainOnTextWithTheirOwnTokenizer) {
  const std::string model = model_with_tokenizer("llama2");
  const std::string text = file_text(fixture("training.txt"));
  write_text(here_ / "text.txt", text);
  const std::string out = here_ / "out";
  const std::string said = expect_done({"train", "--model", model, "--from_scratch", "--train_file", here_ / "text.txt", "--validation_file",
                                        here_ / "text.txt", "--output_dir", out, "--max_steps", "3", "--max_length", "32",
                                        "--per_device_train_batch_size", "2", "--costs", "roofline"});
  // The tokenizer's files are those of the model, byte for byte.
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    EXPECT_EQ(file_text(out + "/" + file), file_text(model + "/" + file)) << file;
  // Evaluation is over the ids of the text with <s> before and </s> behind: one target fewer.
  expect_done({"tokenizer", "encode", "--tokenizer", model, "--file", here_ / "text.txt", "--output", here_ / "ids.txt"});
  const size_t ids = numbers(file_text(here_ / "ids.txt")).size();
  EXPECT_THAT(expect_done({"eval", "--model", out, "--validation_file", here_ / "text.txt", "--max_length", "32"}),
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
    const std::string line = expect_done({"eval", "--model", out, "--validation_file", file, "--max_length", "32"});
    return line.substr(0, line.find('\n'));
  };
  EXPECT_EQ(loss(here_ / "text.txt"), loss(here_ / "ids.bin"));
  // Prompt and answer are text.
  const std::string generated = expect_done({"generate", "--model", out, "--prompt", "The licence of", "--max_new_tokens", "8", "--temperature", "0"});
  EXPECT_THAT(generated, testing::StartsWith("The licence of"));
  EXPECT_THAT(generated, testing::EndsWith("\n"));
}

}  // namespace
}  // namespace snug
