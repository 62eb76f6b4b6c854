#include "formats/tokenizer_config.h"

#include "base/testing.h"

namespace snug {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(TokenizerConfig, KeepsWhatIsWantedOfARealFile) {
  const TokenizerConfig config = parse_tokenizer_config(
      R"({"add_bos_token": true, "add_eos_token": false, "add_prefix_space": true,
          "added_tokens_decoder": {"0": {"content": "<unk>", "special": true}, "1": {"content": "<s>"}},
          "bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": false},
          "eos_token": "</s>", "pad_token": null, "additional_special_tokens": ["<x>"],
          "chat_template": "{{ 1 }}", "model_max_length": 1000000000000000019884624838656,
          "tokenizer_class": "LlamaTokenizer", "clean_up_tokenization_spaces": false})",
      "t.json");
  EXPECT_EQ(config.file, "t.json");
  EXPECT_EQ(config.tokenizer_class, "LlamaTokenizer");
  EXPECT_TRUE(config.add_prefix_space);
  EXPECT_THAT(config.special_tokens, ElementsAre(Pair("bos_token", "<s>"), Pair("eos_token", "</s>")));
  EXPECT_EQ(*config.special_token("eos_token"), "</s>");
  EXPECT_EQ(config.special_token("pad_token"), nullptr);
  EXPECT_EQ(config.chat_template, "{{ 1 }}");
}

TEST(TokenizerConfig, ADirectoryWithoutOneSaysNothing) {
  const TemporaryDirectory here;
  const TokenizerConfig none = read_tokenizer_config(here.path());
  EXPECT_EQ(none.file, here / "tokenizer_config.json");
  EXPECT_THAT(none.special_tokens, ElementsAre());
  EXPECT_FALSE(none.chat_template);
  here.add("tokenizer_config.json", "\xEF\xBB\xBF{\"eos_token\": \"</s>\"}\r\n");
  EXPECT_EQ(*read_tokenizer_config(here.path()).special_token("eos_token"), "</s>");
}

TEST(TokenizerConfig, OfNamedTemplatesTheDefaultIsKept) {
  const auto parse = [](const std::string& list) {
    return parse_tokenizer_config(R"({"chat_template": )" + list + "}", "t.json");
  };
  const TokenizerConfig config = parse(
      R"([{"name": "tool_use", "template": "t"}, {"template": "d", "name": "default", "more": []}, {"name": "rag", "template": "r"}])");
  EXPECT_EQ(config.chat_template, "d");
  EXPECT_THAT(config.other_templates, ElementsAre("tool_use", "rag"));
  EXPECT_FALSE(parse("[]").chat_template);
}

TEST(TokenizerConfig, WhatIsWrongIsNamed) {
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "t.json: byte 1: not valid JSON: a value is missing; found the end"},
           {"[1]", "t.json: the top is [1] (array); expected an object"},
           {R"({"eos_token": "</s>"} {})", "byte 23: not valid JSON: expected nothing more"},
           {R"({"eos_token": "</s>", "eos_token": "x"})", "eos_token occurs twice"},
           {R"({"eos_token": 3})",
            "t.json: eos_token is 3 (number); expected a token or an object with its content"},
           {R"({"eos_token": {"lstrip": true}})", "eos_token is an object without content"},
           {R"({"eos_token": {"content": null}})", "eos_token.content is null; expected a string"},
           {R"({"tokenizer_class": []})", "tokenizer_class is [] (array); expected a string"},
           {R"({"add_prefix_space": "yes"})", "add_prefix_space is \"yes\" (string); expected true or false"},
           {R"({"chat_template": 3})",
            "chat_template is 3 (number); expected a template or a list of templates with names"},
           {R"({"chat_template": ["x"]})", "chat_template[0] is \"x\" (string); expected an object"},
           {R"({"chat_template": [{"name": "default"}]})",
            "chat_template[0] has no template; expected name and template"},
           {R"({"chat_template": [{"name": "a", "template": "b"}, {"template": "x"}]})",
            "chat_template[1] has no name"},
           {R"({"chat_template": [{"name": 1}]})",
            "chat_template[0].name is 1 (number); expected a string"}}) {
    SCOPED_TRACE(text);
    expect_user_error(ExitCode::kBadFile, message, [&] { parse_tokenizer_config(text, "t.json"); });
  }
}

}  // namespace
}  // namespace snug
