// Rows made to harm: read or refused in bounded time, with at most 4 bytes for each byte of the row beyond a constant.
#include <chrono>
#include <variant>

#include "base/json.h"
#include "base/peak_new.h"
#include "base/testing.h"
#include "formats/dataset/dataset_reader.h"

namespace snug {
namespace {

constexpr int64_t kConstant = int64_t{3} << 20;
constexpr int64_t kConversation = int64_t{40} << 20;  // what a conversation's structure may cost

std::string repeat(std::string_view text, size_t count) {
  std::string made;
  made.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) made += text;
  return made;
}

// Reads a file of one row; returns the number of rows, or what was wrong.
std::string read(const std::string& bytes, DatasetFormat format, int64_t constant = kConstant) {
  TemporaryDirectory directory;
  const std::vector<DataFile> files = {{.path = directory.add("row.jsonl", bytes), .format = format}};
  std::string outcome;
  const auto begin = std::chrono::steady_clock::now();
  const int64_t peak = peak_new::peak_of([&] {
    try {
      DatasetReader reader(files,
                           {.has_chat_template = format == DatasetFormat::kAlpaca && bytes.size() % 2 == 0});
      int rows = 0;
      while (const std::optional<PlacedRow> row = reader.next()) ++rows;
      outcome = fmt::format("{} rows", rows);
    } catch (const UserError& error) {
      outcome = error.what();
      outcome.erase(0, outcome.find("row.jsonl") + 10);
    }
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LE(peak, 4 * static_cast<int64_t>(bytes.size()) + constant) << bytes.substr(0, 60);
  EXPECT_LT(seconds, 20) << bytes.substr(0, 60);
  return outcome;
}

constexpr size_t kLong = 12'000'000;

TEST(DatasetMemory, OneLongLine) {
  EXPECT_EQ(read(R"({"text": ")" + std::string(50'000'000, 'a') + "\"}", DatasetFormat::kJsonText), "1 rows");
  EXPECT_EQ(read(R"({"text": ")" + repeat(R"(\u00e9\n)", kLong / 8) + "\"}", DatasetFormat::kJsonText),
            "1 rows");
  EXPECT_EQ(read(R"([{"text": ")" + std::string(kLong, 'a') + "\"}]", DatasetFormat::kJsonText), "1 rows");
  EXPECT_THAT(read(R"({"text": ")" + std::string(kLong, 'a'), DatasetFormat::kJsonText),
              testing::HasSubstr("a string does not end"));
  for (const std::string end : {"", " "})  // with and without a chat template
    EXPECT_EQ(read(R"({"instruction": ")" + std::string(kLong / 4, 'a') + R"(", "input": ")" +
                       std::string(kLong / 2, 'b') + R"(", "output": ")" + std::string(kLong / 4, 'c') +
                       "\"}" + end,
                   DatasetFormat::kAlpaca),
              "1 rows");
  EXPECT_EQ(read(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": ")" +
                     std::string(kLong / 2, 'a') + R"("}, {"type": "text", "text": ")" +
                     std::string(kLong / 2, 'b') + R"("}]}]})",
                 DatasetFormat::kMessages),
            "1 rows");
}

TEST(DatasetMemory, ManyNumbers) {
  const std::string ids = repeat("1,", kLong / 4) + "1";
  EXPECT_EQ(read(R"({"input_ids": [)" + ids + R"(], "labels": [)" + ids + "]}", DatasetFormat::kTokens),
            "1 rows");
  EXPECT_EQ(
      read(R"({"attention_mask": [)" + ids + R"(], "input_ids": [)" + ids + "]}", DatasetFormat::kTokens),
      "1 rows");
  EXPECT_THAT(read(R"({"input_ids": [")" + std::string(kLong, ',') + "\"]}", DatasetFormat::kTokens),
              testing::HasSubstr("input_ids[0] is"));
  EXPECT_EQ(read(R"({"other": [)" + ids + R"(], "text": ""})", DatasetFormat::kJsonText), "1 rows");
}

TEST(DatasetMemory, DeepNesting) {
  const std::string deep = repeat("[", 100'000) + repeat("]", 100'000), open = repeat(R"({"a":)", 100'000);
  EXPECT_EQ(read(R"({"other": )" + deep + R"(, "text": "a"})", DatasetFormat::kJsonText), "1 rows");
  EXPECT_THAT(read(R"({"other": )" + open, DatasetFormat::kJsonText),
              testing::HasSubstr("a value is missing"));
  EXPECT_THAT(read(R"({"messages": )" + deep + "}", DatasetFormat::kMessages),
              testing::HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(read(deep, DatasetFormat::kJsonText), testing::HasSubstr("1: "));
}

TEST(DatasetMemory, ManyKeys) {
  const std::string same = repeat(R"("a":1,)", 1'000'000);
  EXPECT_EQ(read("{" + same + R"("text": "a"})", DatasetFormat::kJsonText), "1 rows");
  EXPECT_THAT(read("{" + repeat(R"("text":"",)", 1'000'000) + R"("a":1})", DatasetFormat::kJsonText),
              testing::HasSubstr("text occurs twice"));
  EXPECT_THAT(read(R"({"messages": [{)" + repeat(R"("a":1,)", 190'000) + R"("b":1}]})",
                   DatasetFormat::kMessages, kConversation),
              testing::HasSubstr(R"(has the key "a" (string) twice)"));
}

TEST(DatasetMemory, AConversationOfManyTurns) {
  const std::string turn = R"({"role":"user","content":""},)";
  EXPECT_EQ(read(R"({"messages":[)" + repeat(turn, 66'000) + R"({"role":"user","content":""}]})",
                 DatasetFormat::kMessages, kConversation),
            "1 rows");
  EXPECT_THAT(
      read(R"({"messages":[)" + repeat(turn, 500'000) + "]}", DatasetFormat::kMessages, kConversation),
      testing::HasSubstr("messages brings it to more than 200000 values"));
}

TEST(DatasetMemory, Segments) {
  const std::string piece = R"({"text":"a","label":true},)";
  const auto row = [](const std::string& pieces) {
    return R"({"segments":[)" + pieces + R"({"text":"a","label":false}]})";
  };
  EXPECT_EQ(read(row(repeat(piece, 199'999)), DatasetFormat::kSegments, kConversation), "1 rows");
  EXPECT_EQ(
      read(row(R"({"text":")" + std::string(kLong, 'a') + R"(","label":true},)"), DatasetFormat::kSegments),
      "1 rows");
  EXPECT_THAT(read(row(repeat(piece, 1'000'000)), DatasetFormat::kSegments, kConversation),
              testing::HasSubstr("segments has more than 200000 elements; expected fewer"));
}

}  // namespace
}  // namespace snug
