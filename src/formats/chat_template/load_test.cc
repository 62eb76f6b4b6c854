// Where templates are found, and those that Snug brings.
#include "base/json.h"
#include "base/testing.h"
#include "formats/chat_template/chat_template.h"

namespace snug {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Json talk() {
  return Json::array({{{"role", "system"}, {"content", "Be kind."}},
                      {{"role", "user"}, {"content", "Hi"}},
                      {{"role", "assistant"}, {"content", "Hello"}},
                      {{"role", "user"}, {"content", "Bye"}},
                      {{"role", "assistant"}, {"content", "See you"}}});
}

std::string text(const ChatTemplate& chat, bool asks = false) {
  Json messages = talk();
  if (asks) messages.erase(4);
  return chat.render({.messages = messages, .add_generation_prompt = asks}).text;
}

TEST(LoadChatTemplate, TheFileWinsOverTheConfiguration) {
  TemporaryDirectory here;
  EXPECT_FALSE(load_chat_template(here.path()));
  here.add(
      "tokenizer_config.json",
      R"({"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>"}, "pad_token": null})");
  EXPECT_FALSE(load_chat_template(here.path()));
  here.add(
      "tokenizer_config.json",
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null, "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}"})");
  EXPECT_EQ(text(*load_chat_template(here.path())), "<s></s>False");
  here.add("chat_template.jinja", "{{ eos_token }} of the file");
  EXPECT_EQ(text(*load_chat_template(here.path())), "</s> of the file");
  EXPECT_EQ(load_chat_template(here.path())->name(), here / "chat_template.jinja");
}

TEST(LoadChatTemplate, OfNamedTemplatesTheDefaultIsTaken) {
  TemporaryDirectory here;
  here.add(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(text(*load_chat_template(here.path())), "d");
  here.add("tokenizer_config.json",
           R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "rag", "template": "r"}]})");
  expect_user_error(ExitCode::kBadFile, "templates named tool_use, rag; expected one named default",
                    [&] { load_chat_template(here.path()); });
  here.add("tokenizer_config.json", R"({"chat_template": "{{ 1 +"})");
  expect_user_error(ExitCode::kBadFile, "tokenizer_config.json: chat_template:1: expected an expression",
                    [&] { load_chat_template(here.path()); });
}

TEST(ChooseChatTemplate, ByNameOrFile) {
  TemporaryDirectory here;
  here.add("tokenizer_config.json", R"({"eos_token": "</s>"})");
  expect_user_error(ExitCode::kBadFile, "has no chat template",
                    [&] { choose_chat_template(here.path(), ""); });
  expect_user_error(ExitCode::kBadFile, "alpaca, chatml, gemma, llama3, mistral, phi3, vicuna, zephyr",
                    [&] { choose_chat_template(here.path(), ""); });
  expect_user_error(ExitCode::kUsage, "the chat template is \"chatm\"; expected a file or one of",
                    [&] { choose_chat_template(here.path(), "chatm"); });
  const std::string file = here.add("mine.jinja", "mine {{ eos_token }}");
  EXPECT_EQ(text(choose_chat_template(here.path(), file)), "mine </s>");
  EXPECT_EQ(choose_chat_template(here.path(), "zephyr").name(), "zephyr");
  here.add("chat_template.jinja", "own");
  EXPECT_EQ(text(choose_chat_template(here.path(), "")), "own");
}

// What each writes; and that a prompt is the beginning of the conversation that it asks for.
TEST(BuiltInChatTemplates, WriteTheirFormats) {
  TemporaryDirectory here;
  here.add("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  const std::map<std::string_view, std::pair<std::string, std::string>> formats = {
      {"alpaca",
       {"<s>Be kind.\n\n### Instruction:\nHi\n\n### Response:\nHello</s>\n\n### Instruction:\nBye\n\n### "
        "Response:\nSee you</s>\n\n",
        "See you</s>"}},
      {"chatml",
       {"<|im_start|>system\nBe "
        "kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
        "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\nSee you<|im_end|>\n",
        "See you<|im_end|>"}},
      {"gemma",
       {"<s><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\nSee you<end_of_turn>\n",
        "See you<end_of_turn>"}},
      {"llama3",
       {"<s><|start_header_id|>system<|end_header_id|>\n\nBe "
        "kind.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>user<|end_header_"
        "id|>\n\nBye<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nSee you<|eot_id|>",
        "See you<|eot_id|>"}},
      {"mistral", {"<s>[INST] Be kind.\n\nHi[/INST] Hello</s>[INST] Bye[/INST] See you</s>", " See you</s>"}},
      {"phi3",
       {"<s><|system|>\nBe "
        "kind.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello<|end|>\n<|user|>\nBye<|end|>\n<|assistant|>"
        "\nSee you<|end|>\n",
        "See you<|end|>"}},
      {"vicuna",
       {"<s>Be kind. USER: Hi ASSISTANT: Hello</s>USER: Bye ASSISTANT: See you</s>", " See you</s>"}},
      {"zephyr",
       {"<|system|>\nBe "
        "kind.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello</s>\n<|user|>\nBye</s>\n<|assistant|>\nSee "
        "you</s>\n",
        "See you</s>"}},
  };
  ASSERT_EQ(built_in_chat_templates().size(), formats.size());
  for (const std::string_view name : built_in_chat_templates()) {
    SCOPED_TRACE(name);
    const ChatTemplate chat = choose_chat_template(here.path(), std::string(name));
    EXPECT_EQ(text(chat), formats.at(name).first);
    EXPECT_THAT(text(chat), testing::StartsWith(text(chat, true)));
    const Json messages = talk();
    const RenderedChat rendered = chat.render({.messages = messages, .locate_assistant = true});
    ASSERT_EQ(rendered.assistant.size(), 2u);
    EXPECT_EQ(rendered.text.substr(rendered.assistant[1].begin,
                                   rendered.assistant[1].end - rendered.assistant[1].begin),
              formats.at(name).second);
    EXPECT_THAT(formats.at(name).second, testing::EndsWith(chat.end_of_turn()));
    EXPECT_NE(chat.end_of_turn(), "");
    // Content in parts, and none.
    const Json parts = Json::array({{{"role", "user"},
                                     {"content", Json::array({{{"type", "text"}, {"text", "a"}},
                                                              {{"type", "image"}},
                                                              {{"type", "text"}, {"text", "b"}}})}},
                                    {{"role", "assistant"}, {"content", nullptr}}});
    EXPECT_THAT(chat.render({.messages = parts}).text, HasSubstr("ab"));
  }
}

}  // namespace
}  // namespace snug
