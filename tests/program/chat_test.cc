// snug generate --chat: a question goes through the model's template, and the answer ends where the template's turn does.

#include <gmock/gmock.h>

#include <filesystem>

#include "model_files.h"
#include "program_run.h"

namespace snug {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

class ChatProgram : public testing::Test {
 protected:
  // A small Llama that has learned `text` by heart; its directory.
  std::string trained(const std::string& model, const std::string& text, const std::string& steps) const {
    std::string data;
    while (data.size() < 6'000) data += text;
    write_text(here_ / "text.txt", data);
    const std::string out = here_ / "out";
    expect_done({"train", "--model", model, "--from_scratch", "--train_file", here_ / "text.txt",
                 "--output_dir", out, "--max_steps", steps, "--max_length", "48",
                 "--per_device_train_batch_size", "4", "--learning_rate", "0.005", "--costs", "roofline"});
    return out;
  }
  static std::vector<std::string> asks(const std::string& model, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"generate",         "--model", model,           "--prompt", "Ping",
                                          "--max_new_tokens", "24",      "--temperature", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  TemporaryDirectory here_;
};

TEST_F(ChatProgram, PrintsTheAnswerUpToTheEndOfTheTurn) {
  const std::string model = make_model(here_ / "model", llama_json({.vocabulary = 640}));
  fs::copy(tokenizer_fixture("smollm2.json"), model + "/tokenizer.json");
  write_text(model + "/tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  // The end of a turn is not the model's end of text.
  const std::string out =
      trained(model, "<|im_start|>user\nPing<|im_end|>\n<|im_start|>assistant\nPong!<|im_end|>\n", "120");
  EXPECT_EQ(output_of(asks(out, {"--chat", "--chat_template", "chatml"})), "Pong!\n");
  write_text(out + "/chat_template.jinja", kChatMl);
  EXPECT_EQ(output_of(asks(out, {"--chat"})), "Pong!\n");
  EXPECT_THAT(output_of(asks(out, {})), testing::StartsWith("Ping"));
  write_text(
      out + "/chat_template.jinja",
      "{% if messages[0].role == 'system' %}{{ raise_exception('no ' ~ messages[0].content) }}{% endif %}x");
  expect_done(asks(out, {"--chat"}));
  expect_refusal(asks(out, {"--chat", "--system", "pirates"}), kBadFile,
                 {"chat_template.jinja:1: the template refuses the conversation: no pirates"});
  // Variables reach the template, also where it is asked how a turn ends.
  write_text(out + "/chat_template.jinja",
             "{% if not mood %}{{ raise_exception('no mood') }}{% endif %}" + std::string(kChatMl));
  EXPECT_EQ(output_of(asks(out, {"--chat", "--chat_template_kwargs", R"({"mood": "good"})"})), "Pong!\n");
  expect_refusal(asks(out, {"--chat"}), kBadFile, {"no mood"});
}

TEST_F(ChatProgram, EndsOfTurnsMayBeText) {
  const std::string model = make_model(here_ / "model", llama_json());
  const std::string out = trained(model, "Q: Ping\nA: Pong!<end>\n", "150");
  write_text(here_ / "t.jinja",
             "{% for m in messages %}{{ 'Q: ' if m.role == 'user' else 'A:' }}{{ m.content if m.role == "
             "'user' else ' ' ~ m.content ~ '<end>' }}\n"
             "{% endfor %}{% if add_generation_prompt %}A:{% endif %}");
  EXPECT_EQ(output_of(asks(out, {"--chat", "--chat_template", here_ / "t.jinja"})), " Pong!\n");
}

TEST_F(ChatProgram, TokensAreThoseOfTheTemplateAlone) {
  const std::string model = make_model(here_ / "model", llama_json({.vocabulary = 1300}));
  fs::copy(tokenizer_fixture("llama2.json"), model + "/tokenizer.json");
  write_text(model + "/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  write_text(here_ / "text.txt", "Any text at all, as long as it is a window.\n");
  const std::string out = here_ / "out";
  expect_done({"train", "--model", model, "--from_scratch", "--train_file", here_ / "text.txt",
               "--output_dir", out, "--max_steps", "0", "--max_length", "8", "--costs", "roofline"});
  // One <s>, which the template writes; the tokenizer itself would put another before it.
  write_text(here_ / "rendered.txt", "<s>[INST] Ping[/INST]");
  expect_done({"tokenizer", "encode", "--tokenizer", out, "--file", here_ / "rendered.txt", "--output",
               here_ / "ids.txt", "--add_special_tokens", "false"});
  std::string ids = file_text(here_ / "ids.txt");
  EXPECT_EQ(ids.substr(0, 2), "1 ");
  EXPECT_NE(ids.substr(0, 4), "1 1 ");
  const std::string answer_ids = output_of(
      {"generate", "--model", out, "--prompt_tokens", ids, "--max_new_tokens", "12", "--temperature", "0"});
  write_text(here_ / "all.txt", ids + " " + answer_ids);
  const std::string all = output_of({"tokenizer", "decode", "--tokenizer", out, "--file", here_ / "all.txt"});
  const std::string before =
      output_of({"tokenizer", "decode", "--tokenizer", out, "--file", here_ / "ids.txt"});
  EXPECT_EQ(output_of({"generate", "--model", out, "--prompt", "Ping", "--chat", "--chat_template", "mistral",
                       "--max_new_tokens", "12", "--temperature", "0"}),
            all.substr(before.size()) + "\n");
}

TEST_F(ChatProgram, RefusesWhatDoesNotGoTogether) {
  const std::string model = make_model(here_ / "model", llama_json());
  expect_refusal(asks(model, {"--system", "x"}), kUsage, {"--system is given without --chat"});
  expect_refusal(asks(model, {"--chat_template", "chatml"}), kUsage,
                 {"--chat_template is given without --chat"});
  expect_refusal(asks(model, {"--chat_template_kwargs", "{}"}), kUsage,
                 {"--chat_template_kwargs is given without --chat"});
  expect_refusal({"generate", "--model", model, "--prompt_tokens", "1", "--chat"}, kUsage,
                 {"--chat and --prompt_tokens are both given"});
  const std::string other = make_model(here_ / "other", llama_json({.vocabulary = 640}));
  fs::copy(tokenizer_fixture("smollm2.json"), other + "/tokenizer.json");
  expect_refusal(asks(other, {"--chat"}), kBadFile, {"has no chat template", "--chat_template", "chatml"});
  expect_refusal(asks(other, {"--chat", "--chat_template", "chatl"}), kUsage,
                 {"the chat template is \"chatl\"", "chatml"});
  write_text(here_ / "broken.jinja", "\n{% for %}");
  expect_refusal(asks(other, {"--chat", "--chat_template", here_ / "broken.jinja"}), kBadFile,
                 {"broken.jinja:2: "});
}

}  // namespace
}  // namespace snug
