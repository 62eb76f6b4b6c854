#include "formats/model_directory.h"

#include "base/testing.h"

namespace snug {
namespace {

const std::string kGpt2 =
    R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"vocab_size":61,"n_embd":16,"n_head":2})";

TEST(ModelDirectory, OpensOnTheConfigurationAlone) {
  const TemporaryDirectory directory;
  directory.add("config.json", kGpt2);
  const ModelDirectory model = ModelDirectory::open(directory.path());
  EXPECT_EQ(model.family(), ModelFamily::kGpt2);
  EXPECT_EQ(model.gpt2_config().hidden, 16);
  EXPECT_EQ(model.vocab_size(), 61);
  EXPECT_FALSE(model.has_weights());
  EXPECT_THROW(model.llama_config(), InternalError);
  expect_user_error(ExitCode::kBadFile, "has no weights", [&] { model.open_weights(); });
}

TEST(ModelDirectory, OpensLlamaAndItsWeights) {
  const TemporaryDirectory directory;
  directory.add("config.json", R"({"model_type":"llama","vocab_size":99})");
  WeightSink sink(directory.path(), {{"w", FileDType::kU8, {1}}});
  sink.write("w", 0, std::as_bytes(std::span("x", 1)));
  sink.commit();
  const ModelDirectory model = ModelDirectory::open(directory.path());
  EXPECT_EQ(model.family(), ModelFamily::kLlama);
  EXPECT_EQ(model.vocab_size(), 99);
  EXPECT_TRUE(model.has_weights());
  EXPECT_EQ(model.open_weights().tensors().size(), 1U);
}

TEST(ModelDirectory, RefusesByName) {
  const TemporaryDirectory directory;
  expect_user_error(ExitCode::kBadFile, "none: does not exist; expected a model directory",
                    [&] { ModelDirectory::open(directory / "none"); });
  expect_user_error(ExitCode::kBadFile, "file: is a file; expected a model directory",
                    [&] { ModelDirectory::open(directory.add("file", "")); });
  expect_user_error(ExitCode::kBadFile, "has no config.json; expected a Hugging Face model directory",
                    [&] { ModelDirectory::open(directory.path()); });
  struct Case {
    const char* config;
    const char* message;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"{", "config.json: byte 2: not valid JSON"},
           {"[]", "config.json: the top is [] (array); expected an object"},
           {"{}", "config.json: model_type is missing; expected a string"},
           {R"({"model_type":"gemma2"})",
            "config.json: model_type is \"gemma2\"; expected \"gpt2\" or \"llama\""},
           {R"({"model_type":7})", "model_type is 7 (number); expected a string"},
           {R"({"model_type":"llama","quantization_config":{"bits":4}})",
            "config.json: has a quantization_config"},
           {R"({"model_type":"mine","auto_map":{"AutoModel":"x.py"}})", "config.json: has an auto_map"},
           {R"({"model_type":"llama","architectures":["LlamaForSequenceClassification"]})",
            "architectures is \"LlamaForSequenceClassification\" (string); expected LlamaForCausalLM"},
           {R"({"model_type":"gpt2","architectures":["LlamaForCausalLM"]})", "expected GPT2LMHeadModel"},
           {R"({"model_type":"gpt2","architectures":"GPT2LMHeadModel"})",
            "expected an array of class names"}}) {
    SCOPED_TRACE(c.config);
    directory.add("config.json", c.config);
    expect_user_error(ExitCode::kBadFile, c.message, [&] { ModelDirectory::open(directory.path()); });
  }
}

TEST(ModelDirectory, PickledWeightsAloneAreRefusedWhenWeightsAreNeeded) {
  const TemporaryDirectory directory;
  directory.add("config.json", kGpt2);
  directory.add("pytorch_model.bin", "PK");
  const ModelDirectory model = ModelDirectory::open(directory.path());
  expect_user_error(ExitCode::kBadFile, "has weights only as pytorch_model.bin; convert to safetensors",
                    [&] { model.open_weights(); });
}

TEST(ModelDirectory, GenerationEndsAtAnIdOrAList) {
  const TemporaryDirectory directory;
  const auto ids = [&](const std::string& config, const std::string& generation) {
    directory.add("config.json", R"({"model_type":"llama")" + config + "}");
    directory.add("generation_config.json", generation);
    return ModelDirectory::open(directory.path()).end_of_text_ids();
  };
  using testing::ElementsAre;
  EXPECT_THAT(ids("", "{}"), ElementsAre());
  EXPECT_THAT(ids(R"(,"eos_token_id":2)", "{}"), ElementsAre(2));
  EXPECT_THAT(ids(R"(,"eos_token_id":2)", R"({"eos_token_id":null})"), ElementsAre(2));
  EXPECT_THAT(ids(R"(,"eos_token_id":2)", R"({"temperature":0.6,"eos_token_id":[128001,128009]})"),
              ElementsAre(128001, 128009));
  EXPECT_THAT(ids(R"(,"eos_token_id":[3,4])", R"({"eos_token_id":-1})"), ElementsAre(3, 4));
  for (const auto& [generation, message] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "generation_config.json: the top is [] (array); expected an object"},
           {R"({"eos_token_id":"</s>"})",
            "eos_token_id is \"</s>\" (string); expected an id or a list of ids"},
           {R"({"eos_token_id":[1,null]})", "eos_token_id is null; expected an id or a list of ids"},
           {R"({"eos_token_id":1.5})", "eos_token_id is 1.5 (number); expected an integer"},
           {R"({"eos_token_id":4294967296})",
            "eos_token_id is 4294967296; expected an id of at most 2147483647"},
           {R"({"eos_token_id":1)", "generation_config.json: byte 18: not valid JSON"}}) {
    SCOPED_TRACE(generation);
    expect_user_error(ExitCode::kBadFile, message, [&] { ids("", generation); });
  }
}

TEST(ModelDirectory, WritesTheConfigurationBackWithEveryKey) {
  const TemporaryDirectory directory;
  // Formatting that no writer of ours would choose.
  const std::string text =
      "{ \"zeta\":null,\n\t\"model_type\": \"llama\", \"vocab_size\":10, \"_note\": {\"a\":[1, 2.50]}}\n\n";
  directory.add("config.json", text);
  make_directories(directory / "out");
  const ModelDirectory model = ModelDirectory::open(directory.path());
  const auto written = [&] { return read_small_file(directory / "out/config.json", kMiB); };
  model.write_config(directory / "out");
  EXPECT_EQ(written(), text);
  model.write_config(directory / "out", {{"vocab_size", 10}});  // no change is no change
  EXPECT_EQ(written(), text);
  model.write_config(directory / "out", {{"vocab_size", 12}, {"torch_dtype", "bfloat16"}});
  EXPECT_EQ(
      parse_json(written(), "out").dump(),
      R"({"zeta":null,"model_type":"llama","vocab_size":12,"_note":{"a":[1,2.5]},"torch_dtype":"bfloat16"})");
}

TEST(ModelDirectory, CopiesSideFilesByteForByte) {
  const TemporaryDirectory directory;
  directory.add("model/config.json", kGpt2);
  const std::string tokenizer("{\"a\" :1}\r\n\0\xff", 12);
  directory.add("model/tokenizer.json", tokenizer);
  directory.add("model/generation_config.json", "{}");
  directory.add("model/LICENSE.txt", "free");
  directory.add("model/chat_template.jinja", "{{ x }}");
  directory.add("model/model.safetensors", "no");
  directory.add("model/optimizer.pt", "no");
  directory.add("model/tokenizer_config.json/inside", "a directory of that name");
  make_directories(directory / "out");
  const ModelDirectory model = ModelDirectory::open(directory / "model");
  EXPECT_THAT(model.side_files(), testing::ElementsAre("LICENSE.txt", "chat_template.jinja",
                                                       "generation_config.json", "tokenizer.json"));
  model.copy_side_files(directory / "out");
  EXPECT_EQ(list_directory(directory / "out"), model.side_files());
  EXPECT_EQ(read_small_file(directory / "out/tokenizer.json", kMiB), tokenizer);
  model.copy_side_files(directory / "model");  // onto itself: nothing happens
  EXPECT_EQ(read_small_file(directory / "model/tokenizer.json", kMiB), tokenizer);
}

}  // namespace
}  // namespace snug
