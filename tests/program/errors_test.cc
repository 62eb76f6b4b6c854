// What a user gets wrong and what the program answers: exit code, and words that name file, field, found and expected. Each kind of
// failure has its own code (docs/options.md). One file, though over 800 lines: a refusal is worded by looking at all the others.

#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <limits>
#include <sstream>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Errors : public testing::Test {
 protected:
  Errors()
      : scratch_(make_model(here_ / "scratch", gpt2_json())),
        text_(here_ / "verses.txt"),
        fixture_(copy_fixture("gpt2_tied", here_ / "fixture")) {
    write_text(text_, sample_text(2000));
    shard_ = here_ / "tokens.bin";
    write_text(shard_, as_uint16_tokens(sample_text(500)));
  }

  // A run that would train the fixture for one update, but for what `change`
  // says on top.
  std::vector<std::string> training(const std::vector<std::string>& change = {}) const {
    std::vector<std::string> words = {"train", "--model",      fixture_,      "--train_file",
                                      shard_,  "--output_dir", here_ / "out", "--max_steps",
                                      "1",     "--max_length", "16",          "--per_device_train_batch_size",
                                      "2"};
    words.insert(words.end(), change.begin(), change.end());
    return words;
  }

  // The fixture's weights with a change, trained.
  void expect_weights_refused(const std::function<void(Safetensors&)>& change,
                              const std::vector<std::string>& fragments) const {
    Safetensors file = Safetensors::read(fixture_ + "/model.safetensors");
    change(file);
    write_text(fixture_ + "/model.safetensors", file.bytes());
    expect_refusal(training(), kBadFile, fragments);
    EXPECT_FALSE(std::filesystem::exists(here_ / "out"));
  }

  TemporaryDirectory here_;
  std::string scratch_, text_, fixture_, shard_;
};

// --- Options

struct Wrong {
  const char* name;
  std::vector<std::string> arguments;
  std::vector<std::string> fragments;
};

class WrongUse : public testing::TestWithParam<Wrong> {};

TEST_P(WrongUse, IsRefusedWithItsNameAndWhatWasExpected) {
  const ProgramEnd end = run_program(GetParam().arguments);
  EXPECT_EQ(end.exit_code, kUsage) << end.err;
  for (const std::string& fragment : GetParam().fragments) EXPECT_THAT(end.err, HasSubstr(fragment));
}

INSTANTIATE_TEST_SUITE_P(
    Options, WrongUse,
    testing::Values(
        Wrong{"Command", {"tran", "--model", "x"}, {"unknown command tran", "did you mean train?"}},
        Wrong{"Typo", {"train", "--learning_rat", "1e-4"}, {"learning_rat", "did you mean learning_rate?"}},
        Wrong{"TypoWithDashes", {"train", "--max-step=3"}, {"max-step", "did you mean max_steps?"}},
        Wrong{"NothingNear", {"train", "--qqqqqqqqqqqq", "1"}, {"unknown option qqqqqqqqqqqq", "--help"}},
        Wrong{"OtherCommands",
              {"eval", "--learning_rate", "1"},
              {"learning_rate", "does not belong to this command"}},
        Wrong{"NoDashes", {"train", "model"}, {"\"model\"", "--name value"}},
        Wrong{"NoValue", {"train", "--model"}, {"model", "needs a value"}},
        Wrong{"NotANumber",
              {"train", "--learning_rate", "fast"},
              {"learning_rate", "\"fast\"", "expected a number"}},
        Wrong{"Negative", {"train", "--learning_rate=-1"}, {"learning_rate", "\"-1\"", "≥ 0"}},
        Wrong{"NotFinite", {"train", "--learning_rate=nan"}, {"learning_rate", "\"nan\"", "≥ 0"}},
        Wrong{"ZeroBatch",
              {"train", "--per_device_train_batch_size", "0"},
              {"per_device_train_batch_size", "\"0\"", "≥ 1"}},
        Wrong{"HalfAStep", {"train", "--max_steps", "1.5"}, {"max_steps", "\"1.5\"", "whole number"}},
        Wrong{"BetaOfOne", {"train", "--adam_beta1", "1"}, {"adam_beta1", "\"1\"", "from 0"}},
        Wrong{"NotASwitch", {"train", "--shuffle=perhaps"}, {"shuffle", "\"perhaps\"", "true or false"}},
        Wrong{"Scheduler",
              {"train", "--lr_scheduler_type", "cosin"},
              {"lr_scheduler_type", "\"cosin\"", "linear, cosine"}},
        Wrong{"Precision", {"train", "--precision", "fp8"}, {"precision", "\"fp8\"", "fp32, bf16"}},
        Wrong{"SweepAsJson", {"plan", "--sweep", "--json"}, {"json with sweep", "expected one"}},
        Wrong{"Recompute", {"train", "--recompute", "all"}, {"recompute", "\"all\"", "none, block"}},
        Wrong{"Optimizer", {"train", "--optim", "adafactor"}, {"optim", "\"adafactor\"", "adamw_torch"}},
        Wrong{"Size", {"train", "--memory", "1GiBB"}, {"memory", "1GiBB", "900MiB"}},
        Wrong{"NoSize", {"plan", "--memory", "0"}, {"memory", "\"0\"", "above 0"}},
        Wrong{"TokenDtype",
              {"train", "--token_dtype", "uint8"},
              {"token_dtype", "\"uint8\"", "uint16, uint32"}},
        Wrong{"TopP", {"generate", "--top_p", "1.5"}, {"top_p", "\"1.5\"", "to 1"}},
        Wrong{"NoModel", {"plan"}, {"--model is missing"}},
        Wrong{"NoOutput", {"train"}, {"--output_dir is missing"}},
        Wrong{"NoPrompt", {"generate", "--model", "x"}, {"--prompt is missing"}},
        Wrong{"NoConfigFile", {"train", "--config"}, {"config needs a value"}}),
    [](const testing::TestParamInfo<Wrong>& wrong) { return wrong.param.name; });

TEST(Commands, NoneIsWrongUseAndPrintsTheOverview) {
  const ProgramEnd end = run_program({});
  EXPECT_EQ(end.exit_code, kUsage);
  EXPECT_THAT(end.out, HasSubstr("Exit codes"));
}

TEST_F(Errors, UnknownYamlKeyHasFileAndLine) {
  const std::string config = here_ / "run.yaml";
  write_text(config, "# a run\nmodel: " + fixture_ + "\nlearning_rat: 1e-4\n");
  expect_refusal({"train", "--config", config}, kUsage,
                 {config + ":3", "learning_rat", "did you mean learning_rate?"});
}

TEST_F(Errors, YamlValueOutOfRangeHasFileAndLine) {
  const std::string config = here_ / "run.yaml";
  write_text(config, "model: " + fixture_ + "\nmax_grad_norm: -2\n");
  expect_refusal({"train", "--config", config}, kUsage, {config + ":2", "max_grad_norm", "\"-2\"", "≥ 0"});
}

TEST_F(Errors, BrokenYamlHasFileAndLine) {
  const std::string config = here_ / "run.yaml";
  write_text(config, "model: [1, 2\n");
  expect_refusal({"train", "--config", config}, kUsage, {config, "line 1"});
}

TEST_F(Errors, MissingYamlFileIsNamed) {
  expect_refusal({"train", "--config", here_ / "none.yaml"}, kBadFile, {here_ / "none.yaml"});
}

TEST_F(Errors, LengthBeyondTheModelsPositions) {
  expect_refusal(training({"--max_length", "65"}), kUsage, {"max_length is 65", "64"});
}

TEST_F(Errors, TrainingWithoutData) {
  expect_refusal({"train", "--model", fixture_, "--output_dir", here_ / "out"}, kUsage,
                 {"--train_file is missing"});
}

TEST_F(Errors, EvaluationWithoutData) {
  expect_refusal({"eval", "--model", fixture_}, kUsage, {"--validation_file is missing"});
}

TEST_F(Errors, BudgetAboveTheMachineIsRefusedWithBothNumbersAndPlanned) {
  expect_refusal(training({"--memory", "900TB"}), kUsage,
                 {"memory is ", "900000000000000 bytes", "allows this process"});
  const ProgramEnd plan = expect_done({"plan", "--model", fixture_, "--memory", "900TB"});
  EXPECT_THAT(plan.out, HasSubstr("train would refuse this budget here"));
}

// --- Model directories

TEST_F(Errors, NoModelDirectory) {
  expect_refusal({"plan", "--model", here_ / "nowhere"}, kBadFile,
                 {here_ / "nowhere", "does not exist", "config.json"});
}

TEST_F(Errors, NoConfigJson) {
  std::filesystem::create_directory(here_ / "empty");
  expect_refusal({"plan", "--model", here_ / "empty"}, kBadFile, {here_ / "empty", "has no config.json"});
}

TEST_F(Errors, ConfigJsonIsNoJson) {
  write_text(scratch_ + "/config.json", "{\"model_type\": ");
  expect_refusal({"plan", "--model", scratch_}, kBadFile, {scratch_ + "/config.json"});
}

TEST_F(Errors, KeysOfConfigJsonThatAreRefusedByName) {
  struct Key {
    const char* key;
    Json value;
    bool llama;
    std::vector<std::string> fragments;
  };
  const std::vector<Key> keys = {
      {"model_type", "mamba", false, {"\"mamba\"", "\"gpt2\"", "\"llama\""}},
      {"model_type", nullptr, false, {}},
      {"quantization_config", {{"bits", 4}}, false, {"quantized"}},
      {"scale_attn_by_inverse_layer_idx", true, false, {"true"}},
      {"activation_function", "swish", false, {"swish"}},
      {"n_head", 5, false, {"5"}},
      {"n_embd", "wide", false, {"wide"}},
      {"n_layer", -1, false, {"-1"}},
      {"vocab_size", 1LL << 62, false, {}},
      {"attention_bias", true, true, {"true"}},
      {"mlp_bias", true, true, {"true"}},
      {"hidden_act", "gelu", true, {"gelu"}},
      {"num_key_value_heads", 3, true, {"3"}},
      {"rope_scaling", {{"rope_type", "longrope"}, {"factor", 2.0}}, true, {"longrope"}},
  };
  for (const Key& key : keys) {
    SCOPED_TRACE(key.key);
    Json config = key.llama ? llama_json() : gpt2_json();
    config[key.key] = key.value;
    std::vector<std::string> fragments = key.fragments;
    fragments.push_back("/config.json");
    fragments.push_back(key.key);
    expect_refusal({"plan", "--model", make_model(here_ / "keys", config)}, kBadFile, fragments);
  }
}

TEST_F(Errors, PickledWeightsOnly) {
  std::filesystem::rename(fixture_ + "/model.safetensors", fixture_ + "/pytorch_model.bin");
  expect_refusal(training(), kBadFile, {fixture_, "pytorch_model.bin", "safetensors"});
}

TEST_F(Errors, NoWeights) {
  std::filesystem::remove(fixture_ + "/model.safetensors");
  expect_refusal(training(), kBadFile, {fixture_, "has no weights", "model.safetensors"});
}

TEST_F(Errors, OtherTokenizerIsRefusedForText) {
  write_text(fixture_ + "/tokenizer.json", R"({"version":"1.0","model":{"type":"Unigram","vocab":[]}})");
  expect_refusal(training({"--train_file", text_}), kBadFile,
                 {"tokenizer.json", "Unigram", "expected \"BPE\"", "token shards"});
}

// Made for 600 tokens and more; the model has 257 rows.
TEST_F(Errors, TokenizerOfAnotherModel) {
  std::filesystem::copy(std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/tokenizers/gpt2.json",
                        fixture_ + "/tokenizer.json");
  for (const auto& words :
       {training({"--train_file", text_}),
        std::vector<std::string>{"generate", "--model", fixture_, "--prompt", "x"},
        std::vector<std::string>{"eval", "--model", fixture_, "--validation_file", text_}})
    expect_refusal(words, kBadFile,
                   {"tokenizer.json", "<|endoftext|>", "600", "vocab_size (257)", "do not belong together"});
}

TEST_F(Errors, TextWithoutTokenizer) {
  expect_refusal(training({"--train_file", text_}), kBadFile, {fixture_, "has no tokenizer.json"});
}

// --- Tensors

// Takes an entry's bytes out of the file, so that the rest stays without a
// hole.
void erase_tensor(Safetensors& file, const std::string& name) {
  const auto begin = file.header.at(name)["data_offsets"][0].get<size_t>();
  const size_t size = file.header.at(name)["data_offsets"][1].get<size_t>() - begin;
  file.data.erase(begin, size);
  file.header.erase(name);
  for (auto& [other, entry] : file.header.items())
    if (entry["data_offsets"][0].get<size_t>() > begin)
      for (auto& offset : entry["data_offsets"]) offset = offset.get<size_t>() - size;
}

TEST_F(Errors, MissingTensor) {
  expect_weights_refused([](Safetensors& file) { erase_tensor(file, "transformer.h.1.mlp.c_fc.weight"); },
                         {"missing tensor", "h.1.mlp.c_fc.weight", "48", "192"});
}

TEST_F(Errors, UnexpectedTensor) {
  expect_weights_refused(
      [](Safetensors& file) {
        file.header["transformer.h.2.ln_1.weight"] = {
            {"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {file.data.size(), file.data.size() + 4}}};
        file.data += std::string(4, '\0');
      },
      {"unexpected tensor", "transformer.h.2.ln_1.weight", "model.safetensors"});
}

TEST_F(Errors, TensorOfAnotherShape) {
  expect_weights_refused(
      [](Safetensors& file) {
        file.header["transformer.h.0.ln_1.weight"]["shape"] = {24, 2};
      },
      {"transformer.h.0.ln_1.weight", "24", "expected", "48"});
}

TEST_F(Errors, TensorOfIntegers) {
  expect_weights_refused(
      [](Safetensors& file) { file.header["transformer.h.0.ln_1.weight"]["dtype"] = "I32"; },
      {"transformer.h.0.ln_1.weight", "I32", "F32"});
}

TEST_F(Errors, EveryProblemOfTheTensorsIsToldAtOnce) {
  expect_weights_refused(
      [](Safetensors& file) {
        erase_tensor(file, "transformer.ln_f.bias");
        file.header["transformer.h.0.ln_1.weight"]["shape"] = {24, 2};
      },
      {"ln_f.bias", "h.0.ln_1.weight"});
}

// The files of T7 in the list of what users met: each is refused for what it
// is.
struct Damage {
  const char* name;
  std::function<std::string(const std::string&)> of;
  std::vector<std::string> fragments;
};

class BrokenSafetensors : public Errors, public testing::WithParamInterface<Damage> {};

TEST_P(BrokenSafetensors, IsRefused) {
  const std::string path = fixture_ + "/model.safetensors";
  write_text(path, GetParam().of(file_text(path)));
  std::vector<std::string> fragments = GetParam().fragments;
  fragments.push_back(path);
  expect_refusal(training(), kBadFile, fragments);
}

TEST_F(Errors, BrokenSafetensorsAreRefusedByEvaluationAndGenerationToo) {
  const std::string path = fixture_ + "/model.safetensors";
  write_text(path, file_text(path) + "junk");
  expect_refusal({"eval", "--model", fixture_, "--validation_file", shard_}, kBadFile,
                 {path, "has 4 bytes after"});
  expect_refusal({"generate", "--model", fixture_, "--prompt_tokens", "1"}, kBadFile,
                 {path, "has 4 bytes after"});
}

std::string with_length(uint64_t length, const std::string& rest) {
  return std::string(reinterpret_cast<const char*>(&length), 8) + rest;
}

// `file` with its header's text replaced; lengths follow.
std::string with_header(const std::string& file,
                        const std::function<std::string(const std::string&)>& change) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const std::string header = change(file.substr(8, length));
  return with_length(header.size(), header + file.substr(8 + length));
}

std::string with_entry(const std::string& file, const std::function<void(Json&)>& change) {
  return with_header(file, [&](const std::string& header) {
    Json json = Json::parse(header);
    change(json);
    return json.dump();
  });
}

INSTANTIATE_TEST_SUITE_P(
    T7, BrokenSafetensors,
    testing::Values(
        Damage{"OneByteShort",
               [](const std::string& file) { return file.substr(0, file.size() - 1); },
               {"1 bytes short"}},
        Damage{
            "LengthOnly", [](const std::string& file) { return file.substr(0, 8); }, {"only 0 bytes follow"}},
        Damage{"Empty", [](const std::string&) { return std::string(); }, {"is 0 bytes"}},
        Damage{"HeaderLongerThanFile",
               [](const std::string& file) { return with_length(file.size(), file.substr(8)); },
               {"header length is", "bytes follow it"}},
        Damage{"HeaderOfExabytes",
               [](const std::string& file) { return with_length(~uint64_t{0}, file.substr(8)); },
               {"header length is 18446744073709551615", "expected at most"}},
        Damage{"FourTrailingBytes",
               [](const std::string& file) { return file + "junk"; },
               {"has 4 bytes after the last tensor"}},
        Damage{"DuplicateKey",
               [](const std::string& file) {
                 return with_header(file, [](const std::string& header) {
                   return "{\"transformer.wpe.weight\":{\"dtype\":\"F32\","
                          "\"shape\":[0],\"data_offsets\":[0,"
                          "0]}," +
                          header.substr(1);
                 });
               },
               {"transformer.wpe.weight"}},
        Damage{"Hole",
               [](const std::string& file) {
                 return with_entry(file,
                                   [](Json& header) { header.erase("transformer.h.0.attn.c_attn.weight"); });
               },
               {"hole of"}},
        Damage{"Overlap",
               [](const std::string& file) {
                 return with_entry(file, [](Json& header) {
                   header["transformer.h.1.ln_1.weight"]["data_offsets"] =
                       header["transformer.h.0.ln_1.weight"]["data_offsets"];
                 });
               },
               {"overlaps"}},
        Damage{"OffsetOverflow",
               [](const std::string& file) {
                 return with_entry(file, [](Json& header) {
                   header["transformer.ln_f.bias"]["data_offsets"] = {INT64_MAX - 191, uint64_t{1} << 63};
                 });
               },
               {"transformer.ln_f.bias"}},
        Damage{"ShapeOverflow",
               [](const std::string& file) {
                 return with_entry(file, [](Json& header) {
                   header["transformer.ln_f.bias"]["shape"] = {int64_t{1} << 40, int64_t{1} << 40};
                 });
               },
               {"transformer.ln_f.bias"}},
        Damage{"OffsetsBackwards",
               [](const std::string& file) {
                 return with_entry(file, [](Json& header) {
                   header["transformer.ln_f.bias"]["data_offsets"] = {192, 0};
                 });
               },
               {"transformer.ln_f.bias", "end before they begin"}},
        Damage{"NoJson",
               [](const std::string& file) {
                 return with_header(file, [](const std::string& h) { return h.substr(0, h.size() / 2); });
               },
               {}},
        Damage{"Pickle",
               [](const std::string&) { return "PK\3\4" + std::string(100, 'p'); },
               {"header length is"}}),
    [](const testing::TestParamInfo<Damage>& damage) { return damage.param.name; });

TEST_F(Errors, MissingShard) {
  fixture_ = copy_fixture("llama_sharded", here_ / "sharded");
  std::filesystem::remove(fixture_ + "/model-00002-of-00002.safetensors");
  write_text(shard_, std::string(400, '\0'));
  expect_refusal(training(), kBadFile, {"model-00002-of-00002.safetensors", "is missing"});
}

// --- Data

TEST_F(Errors, TokenBeyondTheVocabularyHasFilePositionAndId) {
  std::string tokens = as_uint16_tokens(sample_text(40));
  tokens[2 * 21] = '\x2c';  // token 21 becomes 300
  tokens[2 * 21 + 1] = '\1';
  write_text(shard_, tokens);
  expect_refusal(training({"--shuffle", "false", "--num_train_epochs", "1", "--max_steps", "-1"}), kBadFile,
                 {shard_, "token 21", "id 300", "257"});
}

TEST_F(Errors, EmptyText) {
  write_text(text_, "");
  expect_refusal(
      {"train", "--model", scratch_, "--from_scratch", "--train_file", text_, "--output_dir", here_ / "out"},
      kBadFile, {text_, "is empty"});
}

TEST_F(Errors, TextForAVocabularyWithoutRoomForBytes) {
  const std::string model = make_model(here_ / "few", gpt2_json({.vocabulary = 256}));
  expect_refusal(
      {"train", "--model", model, "--from_scratch", "--train_file", text_, "--output_dir", here_ / "out"},
      kBadFile, {text_, "257", "256"});
}

TEST_F(Errors, EmptyShard) {
  write_text(shard_, "");
  expect_refusal(training(), kBadFile, {shard_, "is empty"});
}

TEST_F(Errors, OneToken) {
  write_text(shard_, std::string("\1\0", 2));
  expect_refusal(training(), kBadFile, {shard_, "1 token", "2 are needed"});
}

TEST_F(Errors, HalfAToken) {
  write_text(shard_, std::string(21, '\1'));
  expect_refusal(training(), kBadFile, {shard_, "21 bytes", "multiple of 2", "--token_dtype"});
}

TEST_F(Errors, ShardHeaderThatCountsMoreThanThereIs) {
  write_text(shard_, as_llmc_shard(sample_text(40)).substr(0, 1024 + 50));
  expect_refusal(training(), kBadFile, {shard_, "1074 bytes", "1106", "41"});
}

TEST_F(Errors, MissingDataFile) {
  expect_refusal(training({"--validation_file", here_ / "none.bin"}), kBadFile, {here_ / "none.bin"});
}

TEST_F(Errors, PromptBeyondVocabularyOrPositions) {
  expect_refusal({"generate", "--model", fixture_, "--prompt_tokens", "1,257"}, kUsage, {"257", "256"});
  std::string long_prompt = "1";
  for (int i = 0; i < 64; ++i) long_prompt += ",1";
  expect_refusal({"generate", "--model", fixture_, "--prompt_tokens", long_prompt}, kUsage,
                 {"65 tokens", "64 positions"});
}

// --- Output

TEST_F(Errors, OutputDirectoryOfAnother) {
  std::filesystem::create_directory(here_ / "out");
  ASSERT_EQ(chmod((here_ / "out").c_str(), 0555), 0);
  expect_refusal(training(), kIo, {here_ / "out", "Permission denied"}, {.obeys_permissions = true});
}

TEST_F(Errors, OutputDirectoryBelowAFile) {
  expect_refusal(training({"--output_dir", shard_ + "/out"}), kIo, {shard_});
  expect_refusal(training({"--output_dir", shard_}), kIo, {shard_, "expected a directory"});
}

TEST_F(Errors, FinishedRunIsNotOverwrittenUnlessAsked) {
  expect_done(training());
  const std::string before = file_text(here_ / "out/model.safetensors");
  expect_refusal(training({"--seed", "7"}), kUsage,
                 {here_ / "out", "finished run", "--overwrite_output_dir"});
  EXPECT_TRUE(file_text(here_ / "out/model.safetensors") == before);
  expect_done(training({"--learning_rate", "1e-2", "--overwrite_output_dir"}));
  EXPECT_TRUE(file_text(here_ / "out/model.safetensors") != before);
}

// The model is 290 KiB; files may grow to 100 KiB.
TEST_F(Errors, FileSizeLimitWhileSavingLeavesTheOldModel) {
  expect_done(training());
  const auto before = all_tensors(here_ / "out");
  expect_refusal(training({"--learning_rate", "1e-2", "--overwrite_output_dir"}), kIo,
                 {here_ / "out", "File too large"}, {.largest_file_bytes = 100 << 10});
  EXPECT_TRUE(all_tensors(here_ / "out") == before);
  for (const auto& file : std::filesystem::directory_iterator(here_ / "out"))
    EXPECT_NE(file.path().extension(), ".tmp") << file.path();
}

TEST_F(Errors, TooLittleDiskIsFoundBeforeTraining) {
  std::filesystem::create_directory(here_ / "small");
  if (mount("none", (here_ / "small").c_str(), "tmpfs", 0, "size=200k") != 0)
    GTEST_SKIP() << "no right to mount a small file system: " << std::strerror(errno);
  const std::string out = here_ / "small/out";
  expect_refusal(training({"--output_dir", out}), kIo, {out, "of disk", "free"});
  umount((here_ / "small").c_str());
}

// There is room when the run begins; another program fills the disk while it
// trains.
TEST_F(Errors, DiskThatFillsUpWhileTrainingLeavesTheOldModel) {
  std::filesystem::create_directory(here_ / "small");
  if (mount("none", (here_ / "small").c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "no right to mount a small file system: " << std::strerror(errno);
  const std::string out = here_ / "small/out";
  expect_done(training({"--output_dir", out}));
  const auto before = all_tensors(out);
  RunningProgram run(training(
      {"--output_dir", out, "--overwrite_output_dir", "--max_steps", "400", "--logging_steps", "1"}));
  EXPECT_TRUE(run.wait_for_output("first update"));
  try {
    write_text(here_ / "small/filler", std::string(1 << 20, 'x'));
  } catch (const std::runtime_error&) {  // full: that is the aim
  }
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.exit_code, kIo) << end.err;
  EXPECT_THAT(end.err, AllOf(HasSubstr(out), HasSubstr("No space left")));
  EXPECT_TRUE(all_tensors(out) == before);
  umount((here_ / "small").c_str());
}

// --- Memory

int64_t sum(const Json& categories) {
  int64_t total = 0;
  for (const auto& [name, bytes] : categories.items()) total += bytes.get<int64_t>();
  return total;
}

Json plan_json_of(const std::vector<std::string>& options, Code code) {
  std::vector<std::string> words = {"plan", "--json"};
  words.insert(words.end(), options.begin(), options.end());
  const ProgramEnd end = run_program(words);
  EXPECT_EQ(end.exit_code, code) << end.err;
  return Json::parse(end.out);
}

// Ten million parameters in fp32: weights and gradients are 80 MB, with both
// moments 160 MB; the budget is 130 MB beside the reserve, activations, data
// and scratch. Whoever makes the moments at the first update dies there; here
// it is refused before anything is read.
TEST_F(Errors, OptimizerStateThatDoesNotFitIsSeenBeforeTheFirstStep) {
  if (kAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemory;
  const std::string model =
      make_model(here_ / "ten",
                 gpt2_json({.blocks = 12, .width = 256, .heads = 4, .positions = 64, .vocabulary = 1908}));
  const std::vector<std::string> shape = {"--model",
                                          model,
                                          "--per_device_train_batch_size",
                                          "1",
                                          "--max_length",
                                          "32",
                                          "--threads",
                                          "1",
                                          "--recompute",
                                          "none",
                                          "--update_placement",
                                          "after"};
  const Json roomy = plan_json_of(shape, kDone);
  EXPECT_NEAR(roomy["parameters"].get<double>(), 10e6, 0.05e6);
  const Json& categories = roomy["categories"];
  const int64_t parameters = roomy["parameters"].get<int64_t>();
  EXPECT_EQ(categories["weights"].get<int64_t>(), 4 * parameters);
  EXPECT_EQ(categories["optimizer_state"].get<int64_t>(), 8 * parameters);
  const int64_t state = 16 * parameters;
  // Gradients need not be alive at the peak's moment one by one; what else is
  // there counts beside the 130 MB.
  const int64_t others = roomy["peak_bytes"].get<int64_t>() - categories["weights"].get<int64_t>() -
                         categories["optimizer_state"].get<int64_t>() -
                         categories["gradients"].get<int64_t>();
  const int64_t budget = 130'000'000 + others;

  std::vector<std::string> tight = shape;
  tight.insert(tight.end(), {"--memory", std::to_string(budget)});
  const Json plan = plan_json_of(tight, kDoesNotFit);
  EXPECT_FALSE(plan["fits"].get<bool>());
  EXPECT_NEAR(static_cast<double>(plan["peak_bytes"].get<int64_t>() - budget),
              static_cast<double>(state - 130'000'000), 1.5e6);

  std::vector<std::string> train = {"train", "--from_scratch", "--train_file",
                                    shard_,  "--output_dir",   here_ / "out"};
  train.insert(train.end(), tight.begin(), tight.end());
  expect_refusal(
      train, kDoesNotFit,
      {"does not fit", "bytes) too much", "weights", "optimizer_state", "gradients", "reserve", "--memory "});
  EXPECT_FALSE(std::filesystem::exists(here_ / "out"));
}

TEST_F(Errors, StateAloneTooBigIsNoMatterOfTheBatch) {
  const std::string model =
      make_model(here_ / "ten",
                 gpt2_json({.blocks = 12, .width = 256, .heads = 4, .positions = 64, .vocabulary = 1908}));
  const ProgramEnd end =
      run_program({"plan", "--model", model, "--memory", "100MB", "--per_device_train_batch_size", "4"});
  EXPECT_EQ(end.exit_code, kDoesNotFit);
  EXPECT_THAT(end.err, HasSubstr("a smaller batch or length cannot help"));
  EXPECT_THAT(end.err, Not(HasSubstr("--per_device_train_batch_size")));
  EXPECT_THAT(end.err, Not(HasSubstr("--max_length")));
}

// Page tables of an arena of terabytes exceed the budget by themselves, but a
// smaller batch needs no such arena.
TEST_F(Errors, HugeBatchIsAMatterOfTheBatch) {
  if (kAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemory;
  const ProgramEnd end = run_program(
      {"plan", "--model", fixture_, "--memory", "200MB", "--per_device_train_batch_size", "33554432"});
  EXPECT_EQ(end.exit_code, kDoesNotFit);
  EXPECT_THAT(end.err, Not(HasSubstr("cannot help")));
  EXPECT_THAT(end.err,
              AllOf(HasSubstr("These would make it fit"), HasSubstr("--per_device_train_batch_size 64")));
}

// What 64 bits cannot count is refused by the name of the option that made it.
TEST_F(Errors, SizesBeyond64BitsNameTheirOptions) {
  expect_refusal({"plan", "--model", fixture_, "--per_device_train_batch_size", "1000000000000000"}, kUsage,
                 {"per_device_train_batch_size is 1000000000000000: too large"});
  expect_refusal(
      {"plan", "--model", fixture_, "--per_device_train_batch_size", "100000000",
       "--gradient_accumulation_steps", "100000000000"},
      kUsage,
      {"per_device_train_batch_size is 100000000, gradient_accumulation_steps is 100000000000: too large"});
  expect_refusal({"eval", "--model", fixture_, "--validation_file", shard_, "--per_device_eval_batch_size",
                  "1000000000000000"},
                 kUsage, {"per_device_eval_batch_size is 1000000000000000: too large"});
  expect_refusal({"train", "--model", fixture_, "--train_file", shard_, "--output_dir", here_ / "out",
                  "--per_device_train_batch_size", "1000000000000000"},
                 kUsage, {"per_device_train_batch_size is 1000000000000000: too large"});
  EXPECT_FALSE(std::filesystem::exists(here_ / "out"));
}

// The refusal repeats nothing of the table that plan has just shown.
TEST_F(Errors, PlanThatDoesNotFitShowsTheCategoriesOnce) {
  const ProgramEnd end = run_program({"plan", "--model", fixture_, "--memory", "10MB"});
  EXPECT_EQ(end.exit_code, kDoesNotFit);
  EXPECT_THAT(end.out, AllOf(HasSubstr("  weights"), HasSubstr("  reserve")));
  EXPECT_THAT(end.err, HasSubstr("the run does not fit"));
  EXPECT_THAT(end.err, Not(HasSubstr("  reserve")));
}

// A policy without a choice needs what its plan needs: the smallest budget of the planner would be refused again.
TEST_F(Errors, BudgetThatIsNamedIsEnoughForThePolicy) {
  if (kAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemory;
  const std::string model = make_model(
      here_ / "deep", gpt2_json({.blocks = 4, .width = 96, .heads = 4, .positions = 256, .vocabulary = 257}));
  for (const char* policy : {"none", "block", "memory", "optimal"}) {
    SCOPED_TRACE(policy);
    const std::vector<std::string> plan = {"plan", "--model", model,      "--recompute",
                                           policy, "--costs", "roofline", "--memory"};
    std::vector<std::string> words = plan;
    words.push_back("1MiB");
    const ProgramEnd refused = run_program(words);
    EXPECT_EQ(refused.exit_code, kDoesNotFit);
    const size_t at = refused.err.find("or --memory ");
    ASSERT_NE(at, std::string::npos) << refused.err;
    words = plan;
    words.push_back(
        std::to_string(std::stoll(refused.err.substr(at + 12)) + (1 << 20)));  // reserves of two processes
    const ProgramEnd accepted = expect_done(words);
  }
}

// What fp32 cannot hold would make every weight infinite.
TEST_F(Errors, LearningRateBeyondSinglePrecision) {
  expect_refusal(training({"--learning_rate", "1e308"}), kUsage, {"learning_rate", "\"1e308\""});
}

// Every change that the refusal offers as enough is enough, and has the peak
// that was stated.
TEST_F(Errors, ChangesThatAreOfferedDoMakeItFit) {
  if (kAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemory;
  const std::string model = make_model(
      here_ / "wide", llama_json({.blocks = 4, .width = 128, .heads = 4, .inner = 384, .positions = 512}));
  const std::vector<std::string> shape = {
      "--model", model, "--per_device_train_batch_size", "8", "--max_length", "512", "--threads", "1"};
  const Json roomy = plan_json_of(shape, kDone);
  const int64_t budget = roomy["peak_bytes"].get<int64_t>() - roomy["arena_bytes"].get<int64_t>() * 6 / 10;
  std::vector<std::string> words = {"plan", "--recompute", "none", "--memory", std::to_string(budget)};
  words.insert(words.end(), shape.begin(), shape.end());
  const ProgramEnd end = run_program(words);
  ASSERT_EQ(end.exit_code, kDoesNotFit) << end.out;
  const size_t begin = end.err.find("These would make it fit:");
  ASSERT_NE(begin, std::string::npos) << end.err;
  std::istringstream lines(end.err.substr(begin));
  std::string line;
  std::getline(lines, line);
  int tried = 0;
  bool batch = false, recompute = false;
  while (std::getline(lines, line) && line.starts_with("  --")) {
    SCOPED_TRACE(line);
    std::istringstream parts(line);
    std::vector<std::string> changed = {"plan", "--json", "--memory", std::to_string(budget)};
    changed.insert(changed.end(), shape.begin(), shape.end());
    std::vector<std::string> change;
    for (std::string word; parts >> word;) change.push_back(word);
    ASSERT_GE(change.size(), 6u);  // "12.3 MiB 0.25 s/update" at the end
    const double stated = std::stod(change[change.size() - 4]);
    EXPECT_EQ(change[change.size() - 3], "MiB");
    changed.insert(changed.end(), change.begin(), change.end() - 4);
    if (std::find(change.begin(), change.end(), "--recompute") == change.end())
      changed.insert(changed.end(), {"--recompute", "none"});
    const ProgramEnd now = expect_done(changed);
    EXPECT_NEAR(Json::parse(now.out)["peak_bytes"].get<double>() / (1 << 20), stated,
                2.5);  // reserves of two processes
    batch = batch || line.find("per_device_train_batch_size") != std::string::npos;
    recompute = recompute || line.find("recompute optimal") != std::string::npos;
    ++tried;
  }
  EXPECT_GE(tried, 2);
  EXPECT_TRUE(batch);
  EXPECT_TRUE(recompute);
}

TEST_F(Errors, PlanAsJsonHasEveryKeyAndAddsUp) {
  for (const char* memory : {"2GB", "10MB"}) {
    SCOPED_TRACE(memory);
    const Json plan = plan_json_of({"--model", fixture_, "--memory", memory, "--update_placement", "after"},
                                   std::string(memory) == "2GB" ? kDone : kDoesNotFit);
    for (const char* key : {"format",
                            "fits",
                            "budget_bytes",
                            "peak_bytes",
                            "arena_bytes",
                            "reserve_bytes",
                            "lower_bound_bytes",
                            "memories",
                            "categories",
                            "phases",
                            "peak",
                            "step_seconds",
                            "tokens_per_step",
                            "parameters",
                            "recompute",
                            "choices",
                            "slowdown",
                            "gap",
                            "smallest_budget_bytes",
                            "policies",
                            "chosen",
                            "carried_gradient_bytes"})
      EXPECT_TRUE(plan.contains(key)) << key;
    EXPECT_EQ(plan["format"], 1);
    EXPECT_EQ(plan["fits"], std::string(memory) == "2GB");
    EXPECT_EQ(plan["budget_bytes"], std::string(memory) == "2GB" ? 2'000'000'000 : 10'000'000);
    EXPECT_EQ(sum(plan["categories"]), plan["peak_bytes"].get<int64_t>());
    for (const char* category :
         {"weights", "gradients", "optimizer_state", "activations", "scratch", "data", "reserve"})
      EXPECT_TRUE(plan["categories"].contains(category)) << category;
    EXPECT_GE(plan["arena_bytes"], plan["lower_bound_bytes"]);
    ASSERT_EQ(plan["memories"].size(), 1u);
    for (const char* key : {"name", "budget_bytes", "peak_bytes", "arena_bytes"})
      EXPECT_TRUE(plan["memories"][0].contains(key)) << key;
    EXPECT_EQ(plan["memories"][0]["arena_bytes"], plan["arena_bytes"]);
    std::vector<std::string> phases;
    for (const Json& phase : plan["phases"]) {
      for (const char* key : {"name", "repeats", "peak_bytes"}) EXPECT_TRUE(phase.contains(key)) << key;
      phases.push_back(phase["name"]);
    }
    EXPECT_THAT(phases, testing::IsSupersetOf({"load", "micro_step", "update", "save"}));
    EXPECT_THAT(phases, testing::Contains(plan["peak"]["phase"].get<std::string>()));
    EXPECT_GT(plan["step_seconds"], 0.0);
    EXPECT_EQ(plan["tokens_per_step"], 8 * 64);
    EXPECT_EQ(plan["parameters"], 72048);
  }
}

TEST_F(Errors, PlanNamesMasterWeightsInBf16) {
  const Json plan = plan_json_of({"--model", fixture_, "--bf16"}, kDone);
  EXPECT_EQ(plan["categories"]["master_weights"], 2 * 72048) << "the bits that the weights lack";
  EXPECT_EQ(plan["categories"]["weights"], 2 * 72048);
  const Json full = plan_json_of({"--model", fixture_, "--bf16", "--master_weights", "full"}, kDone);
  EXPECT_EQ(full["categories"]["master_weights"], 4 * 72048);
}

TEST_F(Errors, PlanNeedsNoWeightsEvenForAModelFarLargerThanTheMachine) {
  const std::string model = make_model(here_ / "huge", llama_json({.blocks = 32,
                                                                   .width = 8192,
                                                                   .heads = 64,
                                                                   .inner = 28672,
                                                                   .positions = 4096,
                                                                   .vocabulary = 128256,
                                                                   .tied = false}));
  const Json plan = plan_json_of({"--model", model, "--memory", "64GB", "--per_device_train_batch_size", "1",
                                  "--update_placement", "after"},
                                 kDoesNotFit);
  EXPECT_GT(plan["parameters"].get<int64_t>(), 25'000'000'000);
  EXPECT_GT(plan["peak_bytes"].get<int64_t>(), 16 * plan["parameters"].get<int64_t>() * 7 / 8);
}

// --- Numbers

// The weight is finite; what it is multiplied with is not.
TEST_F(Errors, HugeWeightSkipsTwentyUpdatesAndEndsWithItsOwnCode) {
  Safetensors file = Safetensors::read(fixture_ + "/model.safetensors");
  const float huge = 3.4e38f;
  std::memcpy(file.data.data() + file.header["transformer.h.0.ln_1.weight"]["data_offsets"][0].get<size_t>(),
              &huge, 4);
  write_text(fixture_ + "/model.safetensors", file.bytes());
  const ProgramEnd end = run_program(training({"--max_steps", "30"}));
  EXPECT_EQ(end.exit_code, kNonFinite) << end.err;
  EXPECT_THAT(end.err,
              AllOf(HasSubstr("20 updates in a row"), HasSubstr("not finite"), HasSubstr("update 20")));
  EXPECT_THAT(end.out,
              AllOf(HasSubstr("update 1:"), HasSubstr("(20 in a row)"), Not(HasSubstr("(21 in a row)"))));
  EXPECT_FALSE(std::filesystem::exists(here_ / "out/memory.json"));
}

}  // namespace
}  // namespace snug
