#include "formats/dataset/dataset_info.h"

#include "base/testing.h"
#include "formats/dataset/dataset_reader.h"

namespace snug {
namespace {

class Info : public testing::Test {
 protected:
  Info() { directory_.add("rows.jsonl", "{}\n"); }

  // The entry "d" of a file with some others.
  DatasetInfo read(std::string_view entry) {
    path_ = directory_.add("dataset_info.json",
                           fmt::format(R"({{"a": {{"hf_hub_url": "x/y"}}, "d": {}, "b": 5}})", entry));
    return read_dataset_info(path_, "d");
  }
  void expect_refusal(std::string_view entry, std::string_view message) {
    expect_user_error(ExitCode::kBadFile, fmt::format("dataset_info.json: d{}", message),
                      [&] { read(entry); });
  }

  TemporaryDirectory directory_;
  std::string path_;
};

TEST_F(Info, AlpacaHasUsualNamesOrThoseOfItsColumns) {
  const DatasetInfo usual = read(R"({"file_name": "rows.jsonl", "file_sha1": "0"})");
  EXPECT_EQ(usual.path, directory_ / "rows.jsonl");
  EXPECT_EQ(usual.format, DatasetFormat::kAlpaca);
  RowNames names;
  names.system = names.history = names.tools = "";
  EXPECT_EQ(usual.names, names);

  const DatasetInfo renamed = read(
      R"({"file_name": "rows.jsonl", "formatting": "alpaca", "columns": {"prompt": "q", "response": "a", "query": null, "history": "before"}})");
  EXPECT_EQ(renamed.names.instruction, "q");
  EXPECT_EQ(renamed.names.input, "");
  EXPECT_EQ(renamed.names.output, "a");
  EXPECT_EQ(renamed.names.history, "before");
  EXPECT_EQ(renamed.names.system, "");

  const DatasetInfo documents = read(R"({"file_name": "rows.jsonl", "columns": {"prompt": "body"}})");
  EXPECT_EQ(documents.format, DatasetFormat::kJsonText);
  EXPECT_EQ(documents.names.text, "body");
}

TEST_F(Info, ShareGptHasColumnsAndTags) {
  const DatasetInfo info = read(
      R"({"file_name": "rows.jsonl", "formatting": "sharegpt", "columns": {"messages": "turns", "tools": "can"},)"
      R"( "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}})");
  EXPECT_EQ(info.format, DatasetFormat::kShareGpt);
  EXPECT_EQ(info.names.conversations, "turns");
  EXPECT_EQ(info.names.tools, "can");
  EXPECT_EQ(info.names.system, "");
  EXPECT_EQ(info.names.from, "role");
  EXPECT_EQ(info.names.value, "content");
  EXPECT_EQ(info.names.roles,
            (std::vector<std::pair<std::string, std::string>>{{"user", "user"},
                                                              {"assistant", "assistant"},
                                                              {"observation", "tool"},
                                                              {"function_call", "function_call"},
                                                              {"system", "system"}}));
  EXPECT_TRUE(read(R"({"file_name": "rows.jsonl", "formatting": "sharegpt"})").names.roles.empty());
}

TEST_F(Info, WhatSnugCannotDoIsRefusedByName) {
  expect_refusal(
      R"({"hf_hub_url": "x/y", "file_name": "rows.jsonl"})",
      R"(.hf_hub_url is "x/y" (string); expected file_name: download the dataset and name its file)");
  expect_refusal(R"({"script_url": "make"})",
                 R"(.script_url is "make" (string); expected file_name: run the script)");
  expect_refusal(R"({"columns": {}})", ".file_name is missing; expected a file or a folder");
  expect_refusal(R"({"file_name": "none.json"})",
                 R"(.file_name is "none.json" (string); expected a file or a folder; there is no)");
  expect_refusal(R"({"file_name": "rows.jsonl", "ranking": true})",
                 ".ranking is true (boolean); expected false");
  expect_refusal(R"({"file_name": "rows.jsonl", "num_samples": 5})",
                 ".num_samples is 5 (number); expected none");
  expect_refusal(R"({"file_name": "rows.jsonl", "split": "test"})",
                 R"(.split is "test" (string); expected "train")");
  expect_refusal(
      R"({"file_name": "rows.jsonl", "formatting": "openai"})",
      R"(.formatting is "openai" (string); expected alpaca or sharegpt; rows of another format need no description)");
  expect_refusal(R"({"file_name": "rows.jsonl", "column": {}})",
                 R"( has the key "column" (string); expected some of file_name, )");
  expect_refusal(R"({"file_name": "rows.jsonl", "columns": {"prompt": "p", "response": "r", "images": "i"}})",
                 R"(.columns.images is "i" (string); expected none: Snug trains models of text)");
  expect_refusal(R"({"file_name": "rows.jsonl", "columns": {"prompt": "p", "chosen": "c"}})",
                 ".columns.chosen is");
  expect_refusal(R"({"file_name": "rows.jsonl", "columns": {"prompt": "p", "query": "q"}})",
                 ".columns.query is \"q\" (string); expected response beside it");
  expect_refusal(R"({"file_name": "rows.jsonl", "columns": {"response": "r"}})",
                 ".columns.prompt is missing");
  expect_refusal(R"({"file_name": "rows.jsonl", "columns": {"prompt": "p", "response": "p"}})",
                 R"(.columns.response is "p", as prompt is; expected different names)");
  expect_refusal(R"({"file_name": "rows.jsonl", "columns": {"prompt": 5, "response": "r"}})",
                 ".columns.prompt is 5 (number); expected a name");
  expect_refusal(R"({"file_name": "rows.jsonl", "tags": {}})", ".tags is {} (object); expected none");
  expect_refusal(R"({"file_name": "rows.jsonl", "formatting": "sharegpt", "columns": {"prompt": "p"}})",
                 ".columns.prompt is");
  expect_refusal(R"({"file_name": "rows.jsonl", "formatting": "sharegpt", "tags": {"user_tag": "gpt"}})",
                 R"(.tags.assistant_tag is "gpt", as user_tag is)");
  expect_refusal("5", " is 5 (number); expected an object");
  expect_user_error(ExitCode::kBadFile, R"(dataset_info.json: "d" occurs twice)",
                    [&] { read(R"({}, "d": {})"); });
  expect_user_error(ExitCode::kBadFile, R"(has no dataset "c"; expected one of those it has: a, d, b)", [&] {
    try {
      read("{}");
    } catch (const UserError&) {
    }
    read_dataset_info(path_, "c");
  });
}

// What rows become whose fields and roles have other names.
TEST_F(Info, RowsAreReadWithItsNames) {
  const auto first = [&](std::string_view entry, std::string_view row, bool chat = true) {
    directory_.add("rows.jsonl", row);
    try {
      read(entry);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    DatasetReader reader(find_data_files(std::vector{path_ + "#d"}), {.has_chat_template = chat});
    try {
      const Row made = reader.next()->row;
      if (const auto* text = std::get_if<TextRow>(&made)) return text->text;
      return std::get<ChatRow>(made).messages.dump();
    } catch (const UserError& error) {
      const std::string message = error.what();
      return message.substr(message.find("rows.jsonl"));
    }
  };
  constexpr std::string_view kAlpaca =
      R"({"file_name": "rows.jsonl", "columns": {"prompt": "q", "response": "a", "system": "s"}})";
  EXPECT_EQ(
      first(kAlpaca, R"({"q": "1?", "a": "1!", "s": "S", "input": 7, "instruction": 5})"),
      R"([{"role":"system","content":"S"},{"role":"user","content":"1?"},{"role":"assistant","content":"1!"}])");
  EXPECT_EQ(first(kAlpaca, R"({"q": "1?", "output": "1!"})"),
            "rows.jsonl:1: a is missing; expected a string");
  constexpr std::string_view kShareGpt =
      R"({"file_name": "rows.jsonl", "formatting": "sharegpt", "columns": {"messages": "turns"},)"
      R"( "tags": {"role_tag": "who", "content_tag": "said", "user_tag": "Q", "assistant_tag": "A"}})";
  EXPECT_EQ(
      first(kShareGpt,
            R"({"turns": [{"who": "Q", "said": "x"}, {"who": "A", "said": "y"}], "system": "not named"})"),
      R"([{"role":"user","content":"x"},{"role":"assistant","content":"y"}])");
  EXPECT_EQ(
      first(kShareGpt, R"({"turns": [{"who": "human", "said": "x"}]})"),
      R"(rows.jsonl:1: turns[0].who is "human" (string); expected Q, A, observation, function_call, system)");
  EXPECT_EQ(first(kShareGpt, R"({"turns": [{"who": "A", "said": "x"}]})"),
            "rows.jsonl:1: turns has no turn of Q; expected one");
  EXPECT_EQ(
      first(R"({"file_name": "rows.jsonl", "columns": {"prompt": "body"}})", R"({"body": "all", "text": 1})"),
      "all");
}

TEST_F(Info, APathNamesTheFileAndTheDataset) {
  read(R"({"file_name": "rows.jsonl"})");
  expect_user_error(ExitCode::kBadFile,
                    "dataset_info.json: describes data and holds none; expected data files, or ",
                    [&] { find_data_files(std::vector{path_}); });
  expect_user_error(ExitCode::kBadFile, "dataset_info.json#d: is alpaca; expected messages, which is forced",
                    [&] { find_data_files(std::vector{path_ + "#d"}, DatasetFormat::kMessages); });
  const std::string literal = directory_.add("odd.json#d", R"({"text": "a"})");
  EXPECT_EQ(find_data_files(std::vector{literal}, DatasetFormat::kJsonText).front().path, literal)
      << "a file that is called so";
}

}  // namespace
}  // namespace snug
