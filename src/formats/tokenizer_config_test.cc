#include "formats/tokenizer_config.h"

#include <array>

#include "base/testing.h"

namespace snug {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> texts_of(const std::vector<NamedToken>& tokens) {
  std::vector<std::string> texts;
  for (const NamedToken& token : tokens) texts.push_back(token.name + " " + token.token.content);
  return texts;
}

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
  EXPECT_THAT(texts_of(config.tokens.named), ElementsAre("bos_token <s>", "eos_token </s>"));
  EXPECT_THAT(texts_of(config.tokens.extra), ElementsAre("additional_special_tokens[0] <x>"));
  ASSERT_EQ(config.tokens.numbered.size(), 2U);
  EXPECT_EQ(config.tokens.numbered[1].token.content, "<s>");
  EXPECT_TRUE(config.add_bos_token);
  EXPECT_FALSE(config.add_eos_token);
  EXPECT_EQ(*config.special_token("eos_token"), "</s>");
  EXPECT_EQ(config.special_token("pad_token"), nullptr);
  EXPECT_EQ(config.chat_template, "{{ 1 }}");
}

TEST(TokenizerConfig, ADirectoryWithoutOneSaysNothing) {
  const TemporaryDirectory here;
  const TokenizerConfig none = read_tokenizer_config(here.path());
  EXPECT_EQ(none.file, here / "tokenizer_config.json");
  EXPECT_THAT(none.tokens.named, IsEmpty());
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
           {R"({"eos_token": "</s>", "eos_token": null})", "eos_token occurs twice"},
           {R"({"add_bos_token": "yes"})", "add_bos_token is \"yes\" (string); expected true or false"},
           {R"({"image_token": {"__type": "AddedToken", "content": 3}})",
            "image_token.content is 3 (number); expected a string"},
           {R"({"extra_special_tokens": "<x>"})",
            "extra_special_tokens is \"<x>\" (string); expected a list of tokens"},
           {R"({"extra_special_tokens": {"image_token": 3}})",
            "image_token is 3 (number); expected a token or an object with its content"},
           {R"({"additional_special_tokens": ["<x>", 3]})",
            "additional_special_tokens[1] is 3 (number); expected a token or an object with its content"},
           {R"({"additional_special_tokens": {"a": "<x>"}})", "expected a list of tokens"},
           {R"({"added_tokens_decoder": []})", "added_tokens_decoder is [] (array); expected an object"},
           {R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})",
            "added_tokens_decoder has the key \"x\" (string); expected ids"},
           {R"({"added_tokens_decoder": {"-1": {"content": "<x>"}}})",
            "the key \"-1\" (string); expected ids"},
           {R"({"added_tokens_decoder": {"7": "<x>"}})",
            "added_tokens_decoder.7 is \"<x>\" (string); expected an object with its content"},
           {R"({"added_tokens_decoder": {"7": {"content": "<x>", "lstrip": 1}}})",
            "added_tokens_decoder.7.lstrip is 1 (number); expected true or false"},
           {R"({"pad_token": ")" + std::string(5000, 'x') + R"("})",
            "pad_token is a token of 5000 bytes; expected at most 4096"},
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

TEST(TokenizerConfig, FilesBesideItAreNamedForWhatIsWrong) {
  for (const auto& [name, text, message] : std::vector<std::array<std::string, 3>>{
           {"special_tokens_map.json", R"({"eos_token": 3})",
            "special_tokens_map.json: eos_token is 3 (number); expected a token or an object with its "
            "content"},
           {"special_tokens_map.json", "[]",
            "special_tokens_map.json: the top is [] (array); expected an object"},
           {"added_tokens.json", R"({"<x>": "1"})",
            "added_tokens.json: the id of \"<x>\" (string) is \"1\" (string); expected a non-negative "
            "integer"},
           {"added_tokens.json", R"({"<x>": -1})",
            "added_tokens.json: the id of \"<x>\" (string) is -1 (number); expected a non-negative "
            "integer"}}) {
    SCOPED_TRACE(name + text);
    const TemporaryDirectory here;
    here.add(name, text);
    expect_user_error(ExitCode::kBadFile, message, [&] { read_tokenizer_config(here.path()); });
    // With a decoder they say nothing, so that nothing of them is wrong.
    here.add("tokenizer_config.json", R"({"added_tokens_decoder": {}})");
    EXPECT_THAT(read_tokenizer_config(here.path()).tokens.named, IsEmpty());
  }
}

TEST(TokenizerConfig, TheMapIsStronger) {
  const TemporaryDirectory here;
  here.add("tokenizer_config.json",
           R"({"eos_token": "<e>", "bos_token": "<b>", "additional_special_tokens": ["<1>"]})");
  here.add("special_tokens_map.json",
           R"({"eos_token": {"content": "<f>"}, "bos_token": null, "additional_special_tokens": ["<2>"]})");
  const TokenizerConfig config = read_tokenizer_config(here.path());
  EXPECT_THAT(texts_of(config.tokens.named), ElementsAre("eos_token <f>"));
  EXPECT_EQ(config.tokens.find("eos_token")->file, here / "special_tokens_map.json");
  EXPECT_THAT(config.tokens.nulls, ElementsAre("bos_token"));
  EXPECT_THAT(texts_of(config.tokens.extra), ElementsAre("additional_special_tokens[0] <1>"));
}

}  // namespace
}  // namespace snug
