// What reading a model's files takes: 4 bytes for each byte of JSON at most, the text itself among them, however it is made.
#include "base/peak_new.h"
#include "base/testing.h"
#include "formats/model_directory.h"
#include "formats/safetensors.h"
#include "formats/tokenizer_config.h"
#include "formats/weights.h"

namespace snug {
namespace {

using peak_new::peak_of;

constexpr int64_t kConstant = int64_t{1} << 20;

// `count` pieces with commas between them.
std::string joined(int count, const std::function<std::string(int)>& piece) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + piece(i);
  return text;
}

std::string safetensors(const std::string& header) {
  std::string length;
  for (int shift = 0; shift < 64; shift += 8) length += static_cast<char>(header.size() >> shift & 0xFF);
  return length + header;
}

TEST(FileMemory, ASafetensorsHeaderOfTheSmallestTensors) {
  const TemporaryDirectory directory;
  constexpr int kTensors = 100'000;
  const std::string header =
      "{" +
      joined(
          kTensors,
          [](int i) { return fmt::format(R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", i); }) +
      "}";
  const std::string path = directory.add("model.safetensors", safetensors(header));
  size_t read = 0;
  const int64_t peak = peak_of([&] { read = SafetensorsFile(path).entries().size(); });
  EXPECT_EQ(read, size_t{kTensors});
  EXPECT_LE(peak, 4 * static_cast<int64_t>(header.size()) + kConstant);
}

TEST(FileMemory, ASafetensorsHeaderThatIsManyEmptyObjects) {
  const TemporaryDirectory directory;
  const std::string header =
      "{" + joined(300'000, [](int i) { return fmt::format(R"("{}":{{}})", i); }) + "}";
  const std::string path = directory.add("model.safetensors", safetensors(header));
  const int64_t peak = peak_of([&] {
    expect_user_error(ExitCode::kBadFile, "tensor \"0\" has no dtype", [&] { SafetensorsFile file(path); });
  });
  EXPECT_LE(peak, 4 * static_cast<int64_t>(header.size()) + kConstant);
}

TEST(FileMemory, AnIndexOfManyTensors) {
  const TemporaryDirectory directory;
  const std::string index =
      R"({"weight_map":{)" + joined(400'000, [](int i) { return fmt::format(R"("{}":"f")", i); }) + "}}";
  directory.add("model.safetensors.index.json", index);
  const int64_t peak = peak_of([&] {
    expect_user_error(ExitCode::kBadFile,
                      "f: is missing; model.safetensors.index.json lists 400000 tensors in it",
                      [&] { WeightSource::open(directory.path()); });
  });
  EXPECT_LE(peak, 4 * static_cast<int64_t>(index.size()) + kConstant);
}

// Its tree takes far more than its text, so its values are limited (kConfigLimits): this is all that they can take.
constexpr int64_t kConfiguration = int64_t{16} << 20;

TEST(FileMemory, AConfigurationOfManyValues) {
  const TemporaryDirectory directory;
  const auto outcome = [&](const std::string& more) {
    const std::string text = R"({"model_type":"llama","_more":)" + more + "}";
    directory.add("config.json", text);
    std::string message = "read";
    const int64_t peak = peak_of([&] {
      try {
        ModelDirectory::open(directory.path()).end_of_text_ids();
      } catch (const UserError& error) {
        message = error.what();
      }
    });
    EXPECT_LE(peak, 4 * static_cast<int64_t>(text.size()) + kConfiguration) << more.substr(0, 40);
    return message;
  };
  constexpr int kMost = 49'000;
  const std::string long_text = "\"" + std::string(4'100'000, 'x') + "\"";
  EXPECT_EQ(outcome("{" + joined(kMost, [](int i) { return fmt::format(R"("{}":0)", i); }) + "}"), "read");
  EXPECT_EQ(
      outcome("{" +
              joined(kMost, [](int i) { return fmt::format(R"("a key of {} bytes and more":"")", i); }) +
              "}"),
      "read");
  EXPECT_EQ(outcome("[" + joined(kMost / 2, [](int) { return std::string(R"({"":0})"); }) + "]"), "read");
  EXPECT_EQ(outcome("[" + joined(kMost, [](int) { return std::string("[]"); }) + "]"), "read");
  EXPECT_EQ(outcome("[" + joined(kMost, [](int i) { return fmt::format(R"("{:040}")", i); }) + "]"), "read");
  EXPECT_EQ(outcome(long_text), "read");
  EXPECT_EQ(outcome("{" + long_text + ":0}"), "read");
  EXPECT_THAT(outcome("[" + joined(2'000'000, [](int) { return std::string("0"); }) + "]"),
              testing::HasSubstr("more than 50000 values"));
  EXPECT_THAT(outcome(std::string(100'000, '[') + std::string(100'000, ']')),
              testing::HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(outcome(std::string(5'000'000, ' ') + "0"), testing::HasSubstr("expected at most 4.00 MiB"));
}

// What is not wanted of these files costs nothing beside their text; what is wanted costs its own size.
TEST(FileMemory, SettingsOfATokenizer) {
  const auto outcome = [](const std::string& text) {
    std::string message = "read";
    const int64_t peak = peak_of([&] {
      try {
        const std::string held = text;  // as who reads the file holds it
        parse_tokenizer_config(held, "t.json");
      } catch (const UserError& error) {
        message = error.what();
      }
    });
    EXPECT_LE(peak, 4 * static_cast<int64_t>(text.size()) + kConstant) << text.substr(0, 60);
    return message;
  };
  const std::string zeros = joined(4'000'000, [](int) { return std::string("0"); });
  EXPECT_EQ(outcome(R"({"other":[)" + zeros + R"(],"eos_token":"</s>"})"), "read");
  const auto tokens = [](int count, const char* entry) {
    return joined(count, [&](int i) { return fmt::format(fmt::runtime(entry), i); });
  };
  EXPECT_EQ(outcome(R"({"added_tokens_decoder":{)" +
                    tokens(100'000, R"("{0}":{{"content":"<{0}>","lstrip":false,"special":true}})") + "}}"),
            "read");
  EXPECT_THAT(outcome(R"({"added_tokens_decoder":{)" +
                      tokens(200'000, R"("{0}":{{"content":"<{0}>","lstrip":false,"special":true}})") + "}}"),
              testing::HasSubstr("more than 100000 tokens"));
  EXPECT_THAT(outcome(R"({"extra_special_tokens":[)" + tokens(300'000, R"("{0}")") + "]}"),
              testing::HasSubstr("more than 10000 tokens"));
  EXPECT_EQ(outcome("{" + joined(500'000, [](int i) { return fmt::format(R"("{}":{{}})", i); }) + "}"),
            "read");
  EXPECT_EQ(outcome(R"({"chat_template":")" + std::string(8'000'000, 'x') + "\"}"), "read");
  EXPECT_EQ(
      outcome(R"({"chat_template":")" + joined(2'000'000, [](int) { return std::string("\\n"); }) + "\"}"),
      "read");
  EXPECT_EQ(outcome(R"({"other":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}"), "read");
  EXPECT_THAT(outcome(R"({"eos_token":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}"),
              testing::HasSubstr("eos_token is [[["));
  EXPECT_THAT(outcome(R"({"bos_token":{"content":[)" + zeros + "]}}"),
              testing::HasSubstr("bos_token.content is [0,0"));
  EXPECT_THAT(
      outcome(R"({"chat_template":[)" +
              joined(300'000, [](int) { return std::string(R"({"name":"","template":""})"); }) + "]}"),
      testing::HasSubstr("more than 100 templates"));
}

TEST(FileMemory, AGenerationConfigurationOfManyEnds) {
  const TemporaryDirectory directory;
  directory.add("config.json", R"({"model_type":"llama"})");
  const std::string text = R"({"other":[[[{}]]],"eos_token_id":[)" +
                           joined(2'000'000, [](int) { return std::string("7"); }) + "]}";
  directory.add("generation_config.json", text);
  const ModelDirectory model = ModelDirectory::open(directory.path());
  size_t read = 0;
  EXPECT_LE(peak_of([&] { read = model.end_of_text_ids().size(); }),
            4 * static_cast<int64_t>(text.size()) + kConstant);
  EXPECT_EQ(read, 2'000'000U);
}

}  // namespace
}  // namespace snug
