#include "formats/byte_tokenizer.h"

#include "base/json.h"
#include "base/testing.h"

namespace snug {
namespace {

TEST(ByteTokenizer, EncodesAndDecodesAnyBytes) {
  EXPECT_EQ(encode_bytes("aé"), (std::vector<int32_t>{97, 0xC3, 0xA9}));
  EXPECT_EQ(encode_bytes("<|endoftext|>").size(), 13U);  // written out, it is text
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(decode_bytes(encode_bytes(all)), all);
  EXPECT_EQ(decode_bytes(std::vector<int32_t>{'a', kEndOfTextId, 0xFF, 1000, -1}), "a\xFF");
  EXPECT_EQ(decode_bytes({}), "");
}

TEST(ByteTokenizer, TheFileIsGpt2sTableWithByteIds) {
  const Json json = parse_json(byte_tokenizer_json(), "tokenizer.json");
  const Json& vocabulary = json["model"]["vocab"];
  EXPECT_EQ(vocabulary.size(), 256U);
  EXPECT_EQ(vocabulary["!"], 33);
  EXPECT_EQ(vocabulary["a"], 97);
  EXPECT_EQ(vocabulary["Ġ"], 32);   // U+0120: space
  EXPECT_EQ(vocabulary["Ċ"], 10);   // U+010A: line feed
  EXPECT_EQ(vocabulary["Ā"], 0);    // U+0100: NUL
  EXPECT_EQ(vocabulary["ġ"], 127);  // U+0121: DEL, the 34th byte without a symbol of its own
  EXPECT_EQ(vocabulary["Ń"], 173);  // U+0143: soft hyphen, the last of them
  EXPECT_EQ(vocabulary["ÿ"], 255);
  EXPECT_EQ(json["added_tokens"][0]["content"], "<|endoftext|>");
  EXPECT_EQ(json["added_tokens"][0]["id"], 256);
}

TEST(ByteTokenizer, RecognisesItself) {
  const TemporaryDirectory directory;
  write_byte_tokenizer(directory.path(), 1024);
  EXPECT_EQ(difference_from_byte_tokenizer(directory.path()), std::nullopt);
  EXPECT_EQ(read_json_object(directory / "tokenizer_config.json")["model_max_length"], 1024);
  // As the `tokenizers` library writes it again: other order and spacing, more keys, the end of text in the vocabulary too.
  Json json = parse_json(byte_tokenizer_json(), "t");
  json["model"]["vocab"]["<|endoftext|>"] = 256;
  json["post_processor"] =
      Json{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
  json["pre_tokenizer"]["use_regex"] = true;
  json["truncation"] = Json{{"max_length", 512}};
  directory.add("tokenizer.json", nlohmann::json(json).dump());
  EXPECT_EQ(difference_from_byte_tokenizer(directory.path()), std::nullopt);
  // As transformers saves it.
  json["post_processor"] =
      parse_json(R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],
      "pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],"special_tokens":{}})",
                 "t");
  directory.add("tokenizer.json", json.dump());
  EXPECT_EQ(difference_from_byte_tokenizer(directory.path()), std::nullopt);
}

TEST(ByteTokenizer, TellsAnyOtherTokenizerByItsDifference) {
  const TemporaryDirectory directory;
  struct Case {
    const char* pointer;
    Json value;
    const char* message;
  };
  for (
      const Case& c : std::initializer_list<Case>{
          {"/model/type", "Unigram", "model.type is \"Unigram\" (string); expected \"BPE\""},
          {"/model/merges", Json::array({"a b"}),
           "it is a BPE tokenizer of 256 symbols with 1 merges; expected 256 bytes and no merges"},
          {"/model/vocab/a", 98, "the id of byte 97 is 98 (number); expected 97"},
          {"/model/vocab/new", 300, "model.vocab has 257 symbols; expected the 256 bytes"},
          {"/model/dropout", 0.1, "model.dropout is 0.1 (number); expected null"},
          {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix is"},
          {"/added_tokens/0/id", 50256, "added_tokens is"},
          {"/added_tokens/0/rstrip", true, "added_tokens: rstrip is true"},
          {"/added_tokens/1", Json{{"id", 257}, {"content", "<pad>"}}, "added_tokens is"},
          {"/normalizer", Json{{"type", "NFC"}}, "normalizer is {\"type\":\"NFC\"} (object); expected null"},
          {"/pre_tokenizer/add_prefix_space", true, "pre_tokenizer is"},
          {"/pre_tokenizer/type", "Whitespace", "pre_tokenizer is"},
          {"/post_processor",
           parse_json(
               R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}]})",
               "t"),
           "post_processor is"},
          {"/model", nullptr, "model.type is null; expected \"BPE\""}}) {
    SCOPED_TRACE(c.pointer);
    Json json = parse_json(byte_tokenizer_json(), "t");
    json[Json::json_pointer(c.pointer)] = c.value;
    directory.add("tokenizer.json", json.dump());
    const std::optional<std::string> difference = difference_from_byte_tokenizer(directory.path());
    ASSERT_TRUE(difference);
    EXPECT_THAT(*difference, testing::HasSubstr(c.message));
  }
}

// With tokens that files beside it name it is an ordinary tokenizer.
TEST(ByteTokenizer, TokensBesideItMakeItAnother) {
  for (const auto& [config, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"eos_token": "<|endoftext|>", "bos_token": null})", nullptr},
           {R"({"added_tokens_decoder": {"256": {"content": "<|endoftext|>", "special": true}}})", nullptr},
           {R"({"pad_token": "<pad>"})", "tokenizer_config.json: pad_token is \"<pad>\""},
           {R"({"extra_special_tokens": ["<x>"]})",
            "tokenizer_config.json: extra_special_tokens[0] is \"<x>\""},
           {R"({"added_tokens_decoder": {"257": {"content": "<x>"}}})",
            "tokenizer_config.json: added_tokens_decoder has \"<x>\""}}) {
    SCOPED_TRACE(config);
    const TemporaryDirectory directory;
    write_byte_tokenizer(directory.path(), 1024);
    directory.add("tokenizer_config.json", config);
    const std::optional<std::string> difference = difference_from_byte_tokenizer(directory.path());
    EXPECT_EQ(difference.has_value(), message != nullptr);
    if (message != nullptr) {
      EXPECT_THAT(difference.value_or(""), testing::HasSubstr(message));
    }
  }
}

TEST(ByteTokenizer, OtherFiles) {
  const TemporaryDirectory directory;
  EXPECT_EQ(difference_from_byte_tokenizer(directory.path()), "there is no tokenizer.json");
  directory.add("tokenizer.json", std::string(300'000, ' '));
  EXPECT_EQ(difference_from_byte_tokenizer(directory.path()), "tokenizer.json has 300000 bytes");
  directory.add("tokenizer.json", "{");
  expect_user_error(ExitCode::kBadFile, "tokenizer.json: byte 2: not valid JSON",
                    [&] { difference_from_byte_tokenizer(directory.path()); });
}

}  // namespace
}  // namespace snug
