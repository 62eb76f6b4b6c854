#include "formats/dataset/dataset_reader.h"

#include <variant>

#include "base/json.h"
#include "base/testing.h"

namespace snug {
namespace {

std::vector<PlacedRow> read_all(const std::vector<std::string>& paths, const DatasetOptions& options = {}) {
  DatasetReader reader(find_data_files(paths), options);
  std::vector<PlacedRow> rows;
  while (std::optional<PlacedRow> row = reader.next()) rows.push_back(std::move(*row));
  return rows;
}

template <typename T>
const T& only(const std::vector<PlacedRow>& rows) {
  EXPECT_EQ(rows.size(), 1U);
  return std::get<T>(rows.at(0).row);
}

TEST(DatasetReader, EveryFormatIsToldByItsFields) {
  TemporaryDirectory directory;
  const auto format = [&](std::string_view row) {
    return dataset_format_name(
        find_data_files(std::vector{directory.add("rows.jsonl", std::string(row) + "\n")}).front().format);
  };
  EXPECT_EQ(format(R"({"text": "a"})"), "json_text");
  EXPECT_EQ(format(R"({"id": 3, "content": "a"})"), "json_text");
  EXPECT_EQ(format(R"({"instruction": "a", "input": "", "output": "b", "text": "all of it"})"), "alpaca");
  EXPECT_EQ(format(R"({"conversations": []})"), "sharegpt");
  EXPECT_EQ(format(R"({"prompt": "a", "prompt_id": 7, "messages": []})"), "messages");
  EXPECT_EQ(format(R"({"completion": "b", "prompt": "a"})"), "prompt_completion");
  EXPECT_EQ(format(R"({"input_ids": [1], "labels": [1]})"), "tokens");
  expect_user_error(ExitCode::kBadFile, "preference data",
                    [&] { format(R"({"prompt": "a", "chosen": "b", "rejected": "c"})"); });
  expect_user_error(ExitCode::kBadFile,
                    R"(rows.jsonl:1: has the fields "question, answer" (string); expected those of)",
                    [&] { format(R"({"question": "a", "answer": "b"})"); });
}

TEST(DatasetReader, LinesAndArraysGiveTheSameRows) {
  TemporaryDirectory directory;
  const std::string lines =
      directory.add("a.jsonl", "{\"text\": \"one\"}\n\n{\"text\": \"two\"}\r\n{\"text\": \"three\"}");
  const std::string array = directory.add(
      "b.json",
      "\xEF\xBB\xBF [\n  {\"text\": \"one\"},\n  {\"text\":\n \"two\"}, {\"text\": \"three\"}\n]\n");
  for (const std::string& path : {lines, array}) {
    std::vector<std::string> texts;
    std::vector<int64_t> places;
    for (const PlacedRow& row : read_all({path})) {
      texts.push_back(std::get<TextRow>(row.row).text);
      places.push_back(row.place.line);
      EXPECT_EQ(row.place.file, path);
    }
    EXPECT_EQ(texts, (std::vector<std::string>{"one", "two", "three"}));
    // Lines of the file, empty ones counted; elements of the array.
    EXPECT_EQ(places, path == lines ? (std::vector<int64_t>{1, 3, 4}) : (std::vector<int64_t>{1, 2, 3}));
  }
}

TEST(DatasetReader, GoesOnAtTheRowBehindAnyOther) {
  TemporaryDirectory directory;
  const std::vector<std::string> paths = {
      directory.add("a.jsonl", "\xEF\xBB\xBF{\"text\": \"1\"}\n{\"text\": \"2\"}\n\n{\"text\": \"3\"}"),
      directory.add("b.json", "[{\"text\": \"4\"}, {\"text\": \"5\"}]"),
      directory.add("c.jsonl", "{\"text\": \"6\"}\n")};
  const std::vector<PlacedRow> rows = read_all(paths);
  ASSERT_EQ(rows.size(), 6U);
  DatasetReader reader(find_data_files(paths), {});
  for (size_t i = 0; i < rows.size(); ++i) {
    reader.seek(rows[i].next);
    for (size_t j = i + 1; j < rows.size(); ++j) {
      const std::optional<PlacedRow> row = reader.next();
      ASSERT_TRUE(row) << i << " " << j;
      EXPECT_EQ(std::get<TextRow>(row->row).text, std::get<TextRow>(rows[j].row).text) << i;
      EXPECT_EQ(row->place.line, rows[j].place.line);
    }
    EXPECT_FALSE(reader.next());
    EXPECT_EQ(reader.bytes_read(), reader.total_bytes());
  }
}

TEST(DatasetReader, TokensHaveLabelsAndPaddingByPlace) {
  TemporaryDirectory directory;
  // T4: padding is 50256, as the end of text is; the labels of the true ends stay.
  const std::string path = directory.add(
      "t.jsonl",
      R"({"input_ids": [50256, 50256, 5, 6, 50256], "attention_mask": [0, 0, 1, 1, 1], "labels": [-100, -100, -100, 6, 50256]})");
  const TokenRow row = only<TokenRow>(read_all({path}));
  EXPECT_EQ(row.ids, (std::vector<int32_t>{5, 6, 50256}));
  EXPECT_EQ(row.labels, (std::vector<int32_t>{-100, 6, 50256}));
}

TEST(DatasetReader, BadRowsAreCountedWhenTheyMayBe) {
  TemporaryDirectory directory;
  const std::string path =
      directory.add("x.jsonl", "{\"text\": \"a\"}\n{\"text\": 5}\n{\"text\": \"b\"\n{\"text\": \"c\"}\n");
  expect_user_error(ExitCode::kBadFile, "x.jsonl:2: text is 5 (number); expected a string",
                    [&] { read_all({path}); });
  DatasetReader reader(find_data_files(std::vector{path}), {.skip_bad_rows = true});
  EXPECT_EQ(std::get<TextRow>(reader.next()->row).text, "a");
  EXPECT_EQ(std::get<TextRow>(reader.next()->row).text, "c");
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(reader.skipped().count, 2);
  EXPECT_THAT(reader.skipped().messages.at(1),
              testing::HasSubstr("x.jsonl:3: byte 13: not valid JSON: expected ','"));
}

}  // namespace
}  // namespace snug
