// Tokenizers, chat templates and data as people bring them. What is wrong is refused with file, field, found and expected, in little time
// and memory and before anything is written; what only looks wrong is read.

#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kChat =
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes!"}]})"
    "\n";
const std::string kRows = R"({"prompt": "Say a: ", "completion": "a"})"
                          "\n"
                          R"({"prompt": "Say b: ", "completion": "bb"})"
                          "\n"
                          R"({"prompt": "Say c: ", "completion": "ccc"})"
                          "\n";
const std::string kText(2000, 'x');

std::string repeated(std::string_view text, size_t count) {
  std::string made;
  made.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) made += text;
  return made;
}

// Llama's vocabulary of a thousand tokens, in a model of 1,300 rows.
class PeoplesFiles : public testing::Test {
 protected:
  PeoplesFiles() : model_(make_model(here_ / "model", llama_json({.positions = 256, .vocabulary = 1300}))) {
    write_text(model_ + "/tokenizer.json", file_text(tokenizer_fixture("llama2.json")));
    write_text(model_ + "/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  }
  std::string add(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(here_ / name).parent_path());
    write_text(here_ / name, bytes);
    return here_ / name;
  }
  std::vector<std::string> with_model(std::vector<std::string> words,
                                      const std::vector<std::string>& more) const {
    words.insert(words.end(), {"--model", model_, "--max_length", "64", "--data_cache", here_ / "cache"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<std::string> training(const std::vector<std::string>& more) const {
    return with_model({"train", "--from_scratch", "--output_dir", here_ / "out", "--max_steps", "1",
                       "--per_device_train_batch_size", "2", "--costs", "roofline"},
                      more);
  }
  std::vector<std::string> inspecting(const std::string& file,
                                      const std::vector<std::string>& more = {}) const {
    return with_model({"data", "inspect", file}, more);
  }
  std::string inspected(const std::string& file, const std::vector<std::string>& more = {}) const {
    return output_of(inspecting(file, more));
  }

  TemporaryDirectory here_;
  std::string model_;
};

const std::string kGone = "gone";

struct Wrong {
  const char* name;
  std::map<std::string, std::string>
      files;  // of the model's directory and beside it; an empty name of a data file is not there
  std::vector<std::string> more;  // of the command line
  Code code;
  std::vector<std::string> fragments;
};

class WrongFiles : public PeoplesFiles, public testing::WithParamInterface<Wrong> {};

TEST_P(WrongFiles, AreRefusedBeforeAnythingIsWritten) {
  for (const auto& [name, bytes] : GetParam().files) {
    if (bytes == kGone)
      fs::remove(here_ / name);
    else
      add(name, bytes);
  }
  std::vector<std::string> more = GetParam().more;
  for (std::string& word : more)
    if (word.starts_with("./")) word = here_ / word.substr(2);
  const ProgramEnd end = expect_refusal(training(more), GetParam().code, GetParam().fragments);
  EXPECT_FALSE(fs::exists(here_ / "out")) << "something was written";
  EXPECT_EQ(end.err.find('\n'), end.err.size() - 1) << "one line: " << end.err;
  EXPECT_LT(end.err.size(), 1000U);
  if (!kAddressSanitizer) {
    EXPECT_LT(end.peak_resident_bytes, 100'000'000);
  }
}

const std::vector<std::string> kTextFile = {"--train_file", "./t.txt"},
                               kRowsFile = {"--train_file", "./rows.jsonl"};

std::vector<std::string> rows_with(std::vector<std::string> more) {
  more.insert(more.end(), {"--train_file", "./rows.jsonl"});
  return more;
}

INSTANTIATE_TEST_SUITE_P(
    Tokenizers, WrongFiles,
    testing::Values(
        Wrong{"Empty",
              {{"model/tokenizer.json", ""}, {"t.txt", kText}},
              kTextFile,
              kBadFile,
              {"model/tokenizer.json: byte 1: not valid JSON"}},
        Wrong{"AnotherObject",
              {{"model/tokenizer.json", "{}"}, {"t.txt", kText}},
              kTextFile,
              kBadFile,
              {"tokenizer.json: model is missing; expected an object"}},
        Wrong{"AList",
              {{"model/tokenizer.json", "[1]"}, {"t.txt", kText}},
              kTextFile,
              kBadFile,
              {"tokenizer.json: the top is [1] (array)"}},
        Wrong{"CutOff",
              {{"model/tokenizer.json", R"({"model":{"type":"BPE","vocab":{"a":0,"b)"}, {"t.txt", kText}},
              kTextFile,
              kBadFile,
              {"model/tokenizer.json: byte ", "not valid JSON"}},
        Wrong{"Latin1",
              {{"model/tokenizer.json", "{\"\xE9\":1}"}, {"t.txt", kText}},
              kTextFile,
              kBadFile,
              {"model/tokenizer.json: byte ", "not valid JSON", "UTF-8"}},
        Wrong{"Nested",
              {{"model/tokenizer.json",
                R"({"normalizer":)" + repeated("[", 100'000) + repeated("]", 100'000) + "}"},
               {"t.txt", kText}},
              kTextFile,
              kBadFile,
              {"nested deeper than 64 levels"}},
        Wrong{"Unigram",
              {{"model/tokenizer.json", R"({"model":{"type":"Unigram","vocab":[["<unk>",0.0]]}})"},
               {"t.txt", kText}},
              kTextFile,
              kBadFile,
              {"model.type is \"Unigram\"; expected \"BPE\"", "token shards"}},
        Wrong{"SentencePiece",
              {{"model/tokenizer.json", kGone}, {"model/tokenizer.model", "\x0A"}, {"t.txt", kText}},
              kTextFile,
              kBadFile,
              {"its tokenizer is in tokenizer.model", "save_pretrained"}},
        Wrong{"HalfOfGpt2s",
              {{"model/tokenizer.json", kGone}, {"model/vocab.json", R"({"a":0})"}, {"t.txt", kText}},
              kTextFile,
              kBadFile,
              {"has no tokenizer.json, nor vocab.json and merges.txt"}},
        Wrong{"Catastrophic",
              {{"model/tokenizer.json",
                R"({"model":{"type":"BPE","vocab":{"x":0},"merges":[]},)"
                R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(x+)+[yw]"},"behavior":"Isolated"}})"},
               {"model/tokenizer_config.json", "{}"},
               {"t.txt", kText + "z"}},
              kTextFile,
              kBadFile,
              {"(x+)+[yw] takes too many steps"}},
        Wrong{"BrokenSettings",
              {{"model/tokenizer_config.json", R"({"eos_token": )"}, {"t.txt", kText}},
              kTextFile,
              kBadFile,
              {"tokenizer_config.json: byte 15: not valid JSON"}},
        Wrong{"ListOfSettings",
              {{"model/tokenizer_config.json", "[]"}, {"t.txt", kText}},
              kTextFile,
              kBadFile,
              {"tokenizer_config.json: the top is [] (array); expected an object"}},
        Wrong{"EndIsNoText",
              {{"model/tokenizer_config.json", R"({"eos_token": 3})"}, {"t.txt", kText}},
              kTextFile,
              kBadFile,
              {"tokenizer_config.json: eos_token is 3 (number); expected a token"}},
        Wrong{"EndIsNoToken",
              {{"model/tokenizer_config.json", R"({"eos_token": ""})"}, {"t.txt", kText}},
              kTextFile,
              kBadFile,
              {"tokenizer_config.json: eos_token is \"\" (string); expected a token of",
               "model/tokenizer.json"}},
        Wrong{
            "EndOfGeneration",
            {{"model/tokenizer_config.json", "{}"},
             {"model/generation_config.json", R"({"eos_token_id": "</s>"})"},
             {"t.txt", kText}},
            kTextFile,
            kBadFile,
            {"generation_config.json: eos_token_id is \"</s>\" (string); expected an id or a list of ids"}}),
    [](const auto& one) { return one.param.name; });

Wrong template_case(const char* name, std::string config, std::vector<std::string> fragments) {
  return {name,
          {{"model/tokenizer_config.json", std::move(config)}, {"rows.jsonl", kChat}},
          kRowsFile,
          kBadFile,
          std::move(fragments)};
}
Wrong template_file(const char* name, std::string text, std::vector<std::string> fragments) {
  return {name,
          {{"model/chat_template.jinja", std::move(text)}, {"rows.jsonl", kChat}},
          kRowsFile,
          kBadFile,
          std::move(fragments)};
}

INSTANTIATE_TEST_SUITE_P(
    Templates, WrongFiles,
    testing::Values(
        template_case("None", "{}", {"rows.jsonl:1: is a conversation", "no chat template"}),
        template_case("Number", R"({"chat_template": 3})",
                      {"tokenizer_config.json: chat_template is 3 (number); expected a template or a list"}),
        template_case("Object", R"({"chat_template": {"default": "x"}})",
                      {"chat_template is {\"default\": \"x\"} (object)"}),
        template_case("NoneIsDefault", R"({"chat_template": [{"name": "tool_use", "template": "x"}]})",
                      {"templates named tool_use; expected one named default (or --chat_template FILE)"}),
        template_case("ListOfTexts", R"({"chat_template": ["x"]})",
                      {"chat_template[0] is \"x\" (string); expected an object"}),
        template_file("Syntax", "{% for m in messages %}\n{{ m.content }", {"chat_template.jinja:2: "}),
        template_file("Include", "{% include 'x' %}", {"chat_template.jinja:1: found {% include %}"}),
        template_file("Refuses", "{{ raise_exception('no way') }}",
                      {"rows.jsonl:1: ", "the template refuses the conversation: no way"}),
        template_file("Steps",
                      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
                      {"takes too many steps"}),
        template_file("Output", "{% for i in range(100000) %}{{ messages[0].content * 100000 }}{% endfor %}",
                      {"the template writes more than"}),
        template_file("Nested", "{{ " + repeated("(", 30'000) + "1" + repeated(")", 30'000) + " }}",
                      {"chat_template.jinja:1: "}),
        template_file("Huge", repeated("x", 300'000),
                      {"chat_template.jinja: is 293.0 KiB; expected at most 256.0 KiB"}),
        template_file("SaysNothing", "hello", {"rows.jsonl:1: ", "it writes nothing for message 1"}),
        template_file("Thinks",
                      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}{% if "
                      "add_generation_prompt %}<assistant><think>{% endif %}",
                      {"the turn of message 1 begins with '<assistant>Yes!</s>' and not with the generation "
                       "prompt '<assistant><think>'",
                       "{% generation %}"})),
    [](const auto& one) { return one.param.name; });

Wrong rows_case(const char* name, std::string bytes, std::vector<std::string> fragments,
                std::vector<std::string> more = {}, Code code = kBadFile) {
  return {name, {{"rows.jsonl", std::move(bytes)}}, rows_with(std::move(more)), code, std::move(fragments)};
}

INSTANTIATE_TEST_SUITE_P(
    Data, WrongFiles,
    testing::Values(
        rows_case("Empty", "", {"rows.jsonl: has no rows; expected at least one"}),
        rows_case("BlankLines", "\n\r\n  \n\t\n", {"rows.jsonl: has no rows"}),
        rows_case("OnlyAMark", "\xEF\xBB\xBF", {"rows.jsonl: has no rows"}),
        rows_case("EmptyArray", "[]", {"rows.jsonl: has no rows"}),
        rows_case("NumberRow", "5\n", {"rows.jsonl:1: the row is 5 (number); expected an object"}),
        rows_case("OtherFields", R"({"question": "a", "answer": "b"})",
                  {"rows.jsonl:1: has the fields [\"question\",\"answer\"]", "instruction and output"}),
        rows_case("TwoFormats",
                  kRows + R"({"text": "x"})"
                          "\n",
                  {"rows.jsonl:4: prompt is missing"}),
        rows_case("Nested", R"({"text": )" + repeated("[", 100'000) + repeated("]", 100'000) + "}\n",
                  {"rows.jsonl:1: text is [[["}),
        rows_case("LongLineWithoutEnd", R"({"text": ")" + repeated("x", 100'000),
                  {"rows.jsonl:1: byte 100011: not valid JSON: a string does not end"}),
        rows_case("IdOutside", R"({"input_ids": [1, 2, 1300]})",
                  {"rows.jsonl:1: token 2 has id 1300", "vocab_size (1300)"}),
        rows_case("IdIsNoInteger", R"({"input_ids": [1, 2.5]})", {"input_ids[1] is 2.5 (number)"}),
        rows_case("ShiftedLabels", R"({"input_ids": [1, 2, 3], "labels": [2, 3, -100]})",
                  {"labels[0] is 2", "labels are not shifted"}),
        rows_case("NothingLearned", R"({"input_ids": [1, 2, 3], "labels": [-100, -100, -100]})",
                  {"none of 1 samples has a supervised token"}),
        rows_case("PromptTooLong", R"({"prompt": ")" + repeated("word ", 100) + R"(", "completion": "c"})",
                  {"none of 1 samples has a supervised token within max_length 64"}),
        rows_case("OnlyQuestions", R"({"messages": [{"role": "user", "content": "Hi"}]})",
                  {"none of 1 samples has a supervised token"}, {"--chat_template", "chatml"}),
        rows_case("AllBroken",
                  R"({"prompt": 1})"
                  "\n",
                  {"1 of 1 rows could not be read", "prompt is 1 (number)"},
                  {"--skip_bad_rows", "--dataset_format", "prompt_completion"}),
        rows_case("ForcedFormat", kRows, {"rows.jsonl:1: instruction is missing"},
                  {"--dataset_format", "alpaca"}),
        rows_case("FieldIsNotThere", R"({"text": "x"})", {"rows.jsonl:1: body is missing"},
                  {"--text_field", "body"}),
        rows_case("UnknownFormat", kRows, {"dataset_format: found \"alpacca\""},
                  {"--dataset_format", "alpacca"}, kUsage),
        rows_case("UnknownTemplate", kChat, {"the chat template is \"chatm\"", "chatml"},
                  {"--chat_template", "chatm"}, kUsage),
        rows_case("AllHeldOut", kRows, {"validation_split 3 takes 3 of the 3 rows"},
                  {"--validation_split", "3"}, kUsage),
        rows_case("NearlyAllHeldOut", kRows, {"takes 3 of the 3 rows"}, {"--validation_split", "0.999"},
                  kUsage),
        rows_case("ARowAndAHalf", kRows,
                  {"validation_split is 1.5; expected a share below 1 or a whole number of rows"},
                  {"--validation_split", "1.5"}, kUsage),
        rows_case("NegativeShare", kRows, {"validation_split: found \"-1\""}, {"--validation_split", "-1"},
                  kUsage),
        rows_case("NoPattern", kRows, {"none*.jsonl: no file matches"}, {"--train_file", "./none*.jsonl"}),
        rows_case("NoFile", kRows, {"none.jsonl: there is no such file or folder"},
                  {"--train_file", "./none.jsonl"}),
        Wrong{"NoDataInTheFolder",
              {{"folder/readme.md", "x"}},
              {"--train_file", "./folder"},
              kBadFile,
              {"folder: holds no data files", ".jsonl"}},
        Wrong{"WithText",
              {{"t.txt", kText}, {"rows.jsonl", kRows}},
              {"--train_file", "./rows.jsonl", "--train_file", "./t.txt"},
              kBadFile,
              {"rows.jsonl is prompt_completion and ", "t.txt is text"}},
        Wrong{"Parquet",
              {{"x.parquet", "PAR1"}},
              {"--train_file", "./x.parquet"},
              kBadFile,
              {"x.parquet: is parquet", "to_json"}},
        Wrong{"Table",
              {{"x.csv", "a,b\n"}},
              {"--train_file", "./x.csv"},
              kBadFile,
              {"x.csv: is a table", "to_json"}},
        Wrong{"EmptyText", {{"t.txt", ""}}, kTextFile, kBadFile, {"t.txt: is empty; expected text"}},
        Wrong{"TextOfAnotherEnding",
              {{"book.log", kText}},
              {"--train_file", "./book.log"},
              kBadFile,
              {"book.log: its ending says neither text, rows nor tokens", "--dataset_format text"}}),
    [](const auto& one) { return one.param.name; });

// --- What only looks wrong

TEST_F(PeoplesFiles, RowsAreReadInEveryFormOfAFile) {
  std::string windows = "\xEF\xBB\xBF", array = "[", lines = kRows;
  for (const char c : kRows) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  for (size_t begin = 0; begin < kRows.size();) {
    const size_t end = kRows.find('\n', begin);
    array += (begin == 0 ? "" : ",\n") + kRows.substr(begin, end - begin);
    begin = end + 1;
  }
  array += "]";
  const auto first_line = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  const std::string expected = first_line(inspected(add("rows.jsonl", kRows)));
  EXPECT_THAT(expected, HasSubstr("Data: prompt_completion, 3 samples"));
  for (const auto& [name, bytes] :
       std::map<std::string, std::string>{{"windows.jsonl", windows},
                                          {"blank.jsonl", "\n\n" + kRows + "\n \n"},
                                          {"array.json", array},
                                          {"array.jsonl", array},
                                          {"lines.json", kRows},
                                          {"no_end.jsonl", kRows.substr(0, kRows.size() - 1)}})
    EXPECT_THAT(inspected(add(name, bytes)), testing::StartsWith(expected)) << name;
}

TEST_F(PeoplesFiles, ATextMayHaveAMarkOfItsBytes) {
  const auto tokens = [&](const std::string& bytes) { return inspected(add("t.txt", bytes)); };
  EXPECT_EQ(tokens("\xEF\xBB\xBFHello"), tokens("Hello"));
}

TEST_F(PeoplesFiles, SettingsOfRealTokenizersAreRead) {
  write_text(
      model_ + "/tokenizer_config.json",
      R"({"eos_token": {"content": "</s>", "special": true}, "model_max_length": 1e30, "added_tokens_decoder": {"1": {"content": "<s>"}},
                 "chat_template": [{"name": "tool_use", "template": "x"},
                   {"name": "default", "template": "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"}]})");
  write_text(model_ + "/generation_config.json", R"({"eos_token_id": [2, 3]})");
  const std::string chat = add("chat.jsonl", kChat);
  EXPECT_THAT(inspected(chat), HasSubstr("<user>Hi</s>[[ <assistant>Yes!</s>]]"));
  write_text(model_ + "/chat_template.jinja",
             "{% for m in messages %}({{ m.role }}){{ m.content }}{{ eos_token }}{% endfor %}");
  EXPECT_THAT(inspected(chat), HasSubstr("(user)Hi</s>[[ (assistant)Yes!</s>]]")) << "the file wins";
}

TEST_F(PeoplesFiles, AModelWithoutAnEndOfTextIsTold) {
  const std::string rows = add("rows.jsonl", kRows), chat = add("chat.jsonl", kChat);
  const auto told = [&](const std::string& file) {
    return expect_done(inspecting(file, {"--chat_template", "chatml"})).err.find("names no end of text") !=
           std::string::npos;
  };
  EXPECT_FALSE(told(rows));
  Json config = json_file(model_ + "/config.json");
  config.erase("eos_token_id");
  make_model(model_, config);
  write_text(model_ + "/tokenizer_config.json", "{}");
  EXPECT_TRUE(told(rows));
  EXPECT_FALSE(told(chat)) << "its template writes the ends";
  config["eos_token_id"] = 2;
  make_model(model_, config);
  EXPECT_FALSE(told(rows));
}

// Rows may exceed the tokens; the tokens may not exceed the rows.
TEST_F(PeoplesFiles, EveryTokenNeedsARow) {
  const Json tokenizer = json_file(model_ + "/tokenizer.json");
  int64_t largest = 0;
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items())
    largest = std::max(largest, id.get<int64_t>());
  for (const Json& token : tokenizer["added_tokens"]) largest = std::max(largest, token["id"].get<int64_t>());
  const std::string rows = add("rows.jsonl", kRows);
  make_model(model_, llama_json({.vocabulary = largest + 1}));
  expect_done(inspecting(rows));
  make_model(model_, llama_json({.vocabulary = largest}));
  expect_refusal(inspecting(rows), kBadFile,
                 {"has id " + std::to_string(largest), "vocab_size (" + std::to_string(largest) + ")",
                  "do not belong together"});
}

// A new token that a file beside tokenizer.json names needs one, too.
TEST_F(PeoplesFiles, EveryTokenBesideTheTokenizerNeedsARow) {
  const Json tokenizer = json_file(model_ + "/tokenizer.json");
  int64_t next = static_cast<int64_t>(tokenizer["model"]["vocab"].size());
  for (const Json& token : tokenizer["added_tokens"]) next = std::max(next, token["id"].get<int64_t>() + 1);
  const std::string rows = add("rows.jsonl", kRows);
  write_text(model_ + "/tokenizer_config.json", R"({"pad_token": "[PAD]"})");
  make_model(model_, llama_json({.vocabulary = next + 1}));
  EXPECT_THAT(expect_done(inspecting(rows)).err,
              testing::HasSubstr("tokenizer_config.json: pad_token: \"[PAD]\" (string) with the id " +
                                 std::to_string(next)))
      << "a new token is told";
  make_model(model_, llama_json({.vocabulary = next}));
  expect_refusal(inspecting(rows), kBadFile,
                 {"tokenizer_config.json: pad_token names \"[PAD]\"", "gets the id " + std::to_string(next),
                  "vocab_size (" + std::to_string(next) + ")", "resize_token_embeddings"});
  write_text(model_ + "/tokenizer_config.json",
             R"({"added_tokens_decoder": {"7000": {"content": "[PAD]"}}})");
  expect_refusal(inspecting(rows), kBadFile,
                 {"tokenizer_config.json: added_tokens_decoder gives \"[PAD]\"", "the id 7000; expected"});
}

// A file of 50 rows with one broken row of each kind: one message each, and as many are counted.
TEST_F(PeoplesFiles, EachBrokenRowOfFiftyIsTold) {
  const std::vector<std::pair<std::string, std::string>> broken = {
      {R"({"messages": [{"role": "user", "content": "Hi"})", "not valid JSON"},
      {R"({"messages": []})", "messages is [] (array)"},
      {R"({"messages": [],})", "not valid JSON: expected a key in quotes"},
      {R"({"messages": [{"role": "user", "content": "Hi"}]} x)",
       "not valid JSON: expected nothing more; found \"x\""},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"\xE9\"}]}", "the byte 0xE9 is not UTF-8"},
      {R"({"messages": [{"role": "user", "content": "\ud83d"}]})", "surrogate pair"},
      {R"({"messages": [{"role": "user", "content": NaN}]})",
       "not valid JSON: expected a value; found \"NaN}]}\""},
      {R"({"conversation": []})", "messages is missing"},
      {R"({"messages": "Hi"})", "messages is \"Hi\" (string)"},
      {R"({"messages": [{"role": "user", "content": "Hi"}], "messages": []})", "messages occurs twice"},
      {R"({"messages": [{"role": 5, "content": "Hi"}]})",
       "messages[0].role is 5 (number); expected a string: user, assistant, system, tool, …"},
      {R"({"messages": [{"content": "Hi"}]})", "messages[0].role is missing"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content is missing"},
      {R"({"messages": [{"role": "user", "content": 7}]})", "messages[0].content is 7 (number)"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "messages[0].content[0].type is \"image\""},
      {R"({"messages": [{"role": "user", "content": "Hi"}], "tools": 3})", "tools is 3 (number)"},
      {R"({"messages": )" + repeated("[", 1000) + repeated("]", 1000) + "}", "nested deeper than 64 levels"},
      {"[1, 2]", "the row is [1, 2] (array)"},
      {"null", "the row is null"},
      {R"({"messages": [{"role": "assistant", "content": "first"}]})", "the conversation begins with one"},
  };
  const std::vector<std::string> skipping = {"--chat_template", "chatml", "--skip_bad_rows", "--samples",
                                             "0"};
  std::string all;
  for (size_t i = 0; i < 50; ++i) {
    all += i % 2 == 1 && i / 2 < broken.size() ? broken[i / 2].first + "\n" : kChat;
    if (i % 2 == 0 || i / 2 >= broken.size()) continue;
    const auto& [row, message] = broken[i / 2];
    SCOPED_TRACE(row.substr(0, 80));
    const std::string file = add("one.jsonl", repeated(kChat, i) + row + "\n" + repeated(kChat, 49 - i));
    expect_refusal(inspecting(file, {"--chat_template", "chatml"}), kBadFile,
                   {"one.jsonl:" + std::to_string(i + 1) + ": ", message});
  }
  const std::string told = inspected(add("all.jsonl", all), skipping);
  EXPECT_THAT(told, HasSubstr(std::to_string(broken.size()) + " of 50 rows skipped because they are broken"));
  EXPECT_THAT(told, HasSubstr("all.jsonl:2: "));
}

// Calls of tools keep the order of their keys, from the row through the template.
TEST_F(PeoplesFiles, KeysOfToolsKeepTheirOrder) {
  write_text(
      model_ + "/chat_template.jinja",
      "{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}<{{ m.role }}>{{ m.content }}"
      "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}</s>{% endfor %}");
  const std::string file = add(
      "calls.jsonl",
      R"({"conversations": [{"from": "human", "value": "a"}, )"
      R"({"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"z\": 1, \"a\": [2]}}"}],)"
      R"( "tools": "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"b < c\"}}]"})"
      "\n");
  EXPECT_THAT(inspected(file, {"--max_length", "256"}),
              HasSubstr(R"({"type": "function", "function": {"name": "f", "description": "b < c"}})"
                        R"(<user>a</s>[[ <assistant>{"name": "f", "arguments": {"z": 1, "a": [2]}}</s>]])"));
}

}  // namespace
}  // namespace snug
