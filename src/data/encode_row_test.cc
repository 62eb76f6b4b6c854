#include "data/encode_row.h"

#include <map>
#include <memory>

#include "base/json.h"
#include "base/testing.h"

namespace snug {
namespace {

std::string tokenizer_path(const std::string& name) {
  return std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/tokenizers/" + name + ".json";
}

const RowPlace kPlace{.file = "rows.jsonl", .line = 3};
constexpr int32_t kEnd = 0;

// The text that is learned.
std::string learned(const Tokenizer& tokenizer, const Sample& sample) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < sample.ids.size(); ++i)
    if (sample.supervised[i]) ids.push_back(sample.ids[i]);
  return tokenizer.decode(ids, false);
}

TEST(EncodeRow, ATextIsLearnedWhole) {
  const auto tokenizer = Tokenizer::load(tokenizer_path("gpt2"));
  RowEncoder encoder({.tokenizer = tokenizer.get(), .end_of_text = kEnd, .vocabulary = 1 << 20});
  const Sample sample = encoder.encode(TextRow{"Hello, world"}, kPlace);
  std::vector<int32_t> expected = tokenizer->encode("Hello, world");
  expected.push_back(kEnd);
  EXPECT_EQ(sample.ids, expected);
  EXPECT_EQ(sample.supervised, std::vector<bool>(expected.size(), true));
}

TEST(EncodeRow, ACompletionIsLearnedWithItsEnd) {
  const auto tokenizer = Tokenizer::load(tokenizer_path("gpt2"));
  for (const bool train_on_inputs : {false, true}) {
    RowEncoder encoder({.tokenizer = tokenizer.get(),
                        .end_of_text = kEnd,
                        .vocabulary = 1 << 20,
                        .train_on_inputs = train_on_inputs});
    const Sample sample = encoder.encode(CompletionRow{"The sky is", " blue."}, kPlace);
    std::vector<int32_t> expected = tokenizer->encode("The sky is blue.");
    expected.push_back(kEnd);
    EXPECT_EQ(sample.ids, expected);
    EXPECT_EQ(learned(*tokenizer, sample), (train_on_inputs ? "The sky is blue." : " blue.") +
                                               tokenizer->decode(std::vector{kEnd}, false));
  }
}

// "Hello " alone ends in a token for the space, which both texts together do not have.
TEST(EncodeRow, WhereThePromptAloneHasOtherTokensBothAreEncodedApart) {
  for (const std::string name : {"gpt2", "llama2", "gemma", "mistral"}) {
    const auto tokenizer = Tokenizer::load(tokenizer_path(name));
    RowEncoder encoder({.tokenizer = tokenizer.get(), .end_of_text = {}, .vocabulary = 1 << 20});
    const Sample sample = encoder.encode(CompletionRow{"Hello ", "world"}, kPlace);
    const std::vector<int32_t> prompt = tokenizer->encode("Hello ");
    ASSERT_GT(sample.ids.size(), prompt.size()) << name;
    EXPECT_EQ(std::vector<int32_t>(sample.ids.begin(),
                                   sample.ids.begin() + static_cast<std::ptrdiff_t>(prompt.size())),
              prompt)
        << name;
    EXPECT_EQ(learned(*tokenizer, sample), "world") << name;
    EXPECT_EQ(tokenizer->decode(sample.ids), "Hello world") << name;
  }
}

// Nothing is put around or between them, and what is learned begins behind the ids that the text before it has alone.
TEST(EncodeRow, SegmentsAreEncodedAsTheyStand) {
  for (const std::string name : {"gpt2", "llama2", "gemma", "mistral", "llama3"}) {
    const auto tokenizer = Tokenizer::load(tokenizer_path(name));
    const SegmentRow row{{{"Hel", false}, {"lo ", false}, {"world, it is", true}, {" all.\n", false}}};
    RowEncoder encoder({.tokenizer = tokenizer.get(), .end_of_text = kEnd, .vocabulary = 1 << 20});
    const Sample sample = encoder.encode(row, kPlace);
    const std::vector<int32_t> prompt = tokenizer->encode("Hello ", false);
    ASSERT_GT(sample.ids.size(), prompt.size()) << name;
    EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), sample.ids.begin())) << name;
    EXPECT_EQ(learned(*tokenizer, sample), "world, it is") << name;
    EXPECT_EQ(tokenizer->decode(sample.ids, false), "Hello world, it is all.\n") << name;
    RowEncoder all(
        {.tokenizer = tokenizer.get(), .end_of_text = kEnd, .vocabulary = 1 << 20, .train_on_inputs = true});
    const Sample whole = all.encode(row, kPlace);
    EXPECT_EQ(whole.ids, sample.ids) << name;
    EXPECT_EQ(whole.supervised, std::vector<bool>(sample.ids.size(), true)) << name;
  }
  const auto tokenizer = Tokenizer::load(tokenizer_path("llama3"));
  RowEncoder encoder({.tokenizer = tokenizer.get(), .end_of_text = {}, .vocabulary = 1 << 20});
  const int32_t begin = *tokenizer->token_to_id("<|begin_of_text|>"),
                end = *tokenizer->token_to_id("<|eot_id|>");
  const Sample sample =
      encoder.encode(SegmentRow{{{"<|begin_of_text|>a", false}, {"b<|eot_id|>", true}}}, kPlace);
  EXPECT_EQ(sample.ids.front(), begin);
  EXPECT_EQ(std::count(sample.ids.begin(), sample.ids.end(), begin), 1);
  EXPECT_EQ(sample.ids.back(), end);
  EXPECT_TRUE(sample.supervised.back());
}

TEST(EncodeRow, TokensAreTakenAsGiven) {
  RowEncoder encoder({.end_of_text = {}, .vocabulary = 100});
  const Sample sample = encoder.encode(TokenRow{.ids = {5, 6, 99}, .labels = {-100, 6, 99}}, kPlace);
  EXPECT_EQ(sample.ids, (std::vector<int32_t>{5, 6, 99}));
  EXPECT_EQ(sample.supervised, (std::vector<bool>{false, true, true}));
  expect_user_error(ExitCode::kBadFile,
                    "rows.jsonl:3: token 1 has id 100; expected ids below the model's vocab_size (100)", [&] {
                      encoder.encode(TokenRow{.ids = {5, 100}, .labels = {}}, kPlace);
                    });
  expect_user_error(ExitCode::kBadFile, "rows.jsonl:3: has text",
                    [&] { encoder.encode(TextRow{"a"}, kPlace); });
}

TEST(EncodeRow, WhatStandsBeforeATextStandsThereOnce) {
  const auto tokenizer = Tokenizer::load(tokenizer_path("mistral"));
  ASSERT_EQ(tokenizer->spec().before.size(), 1U);
  RowEncoder encoder({.tokenizer = tokenizer.get(), .end_of_text = 2, .vocabulary = 1 << 20});
  const std::vector<int32_t> with =
      encoder.encode(CompletionRow{"<s>[INST] Hi[/INST]", " Hello"}, kPlace).ids;
  EXPECT_EQ(with[0], 1);
  EXPECT_NE(with[1], 1);
  EXPECT_EQ(encoder.encode(TextRow{"<s>Hi"}, kPlace).ids.size(),
            tokenizer->encode("<s>Hi", false).size() + 1);
  // An end of text that is there already is the end.
  EXPECT_EQ(encoder.encode(TextRow{"Hi</s>"}, kPlace).ids, encoder.encode(TextRow{"Hi"}, kPlace).ids);
}

TEST(EncodeRow, SpecialTokensOfATextMayStayText) {
  const auto tokenizer = Tokenizer::load(tokenizer_path("smollm2"));
  RowEncoder encoder(
      {.tokenizer = tokenizer.get(), .end_of_text = {}, .vocabulary = 1 << 20, .special_as_text = true});
  const Sample sample = encoder.encode(TextRow{"a<|im_end|>b"}, kPlace);
  EXPECT_EQ(tokenizer->decode(sample.ids, true), "a<|im_end|>b");
}

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + "
    "'<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

ChatRow chat(std::string_view messages, int64_t learned_from = 0) {
  return {.messages = parse_json(messages, "test"),
          .tools = nullptr,
          .variables = nullptr,
          .learned_from = learned_from};
}

class ChatRows : public testing::Test {
 protected:
  std::string learned_of(const ChatRow& row, bool train_on_inputs = false, bool special_as_text = false) {
    RowEncoder encoder({.tokenizer = tokenizer_.get(),
                        .chat_template = &template_,
                        .end_of_text = kEnd,
                        .vocabulary = 1 << 20,
                        .train_on_inputs = train_on_inputs,
                        .special_as_text = special_as_text});
    return learned(*tokenizer_, encoder.encode(row, kPlace));
  }
  std::unique_ptr<const Tokenizer> tokenizer_ = Tokenizer::load(tokenizer_path("smollm2"));
  ChatTemplate template_ = ChatTemplate::parse(std::string(kChatMl), "chatml");
};

constexpr std::string_view kTwoTurns =
    R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}])";

TEST_F(ChatRows, TurnsOfTheAssistantAreLearnedWithTheirEnd) {
  EXPECT_EQ(learned_of(chat(kTwoTurns)), "b<|im_end|>d<|im_end|>");
  EXPECT_EQ(learned_of(chat(kTwoTurns), true),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>"
            "\n<|im_start|>assistant\nd<|im_end|>\n");
  // Of a prompt and its completion the completion; a weight of 0 takes a message out.
  EXPECT_EQ(learned_of(chat(kTwoTurns, 3)), "d<|im_end|>");
  EXPECT_EQ(
      learned_of(chat(
          R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c"},)"
          R"({"role": "assistant", "content": "d", "weight": 1}])")),
      "d<|im_end|>");
}

TEST_F(ChatRows, WhatCannotBeEncodedIsRefusedWithItsPlace) {
  expect_user_error(
      ExitCode::kBadFile,
      R"(rows.jsonl:3: messages[0].content contains "<|im_end|>" (string), a special token; expected text)",
      [&] {
        learned_of(
            chat(R"([{"role": "user", "content": "a<|im_end|>b"}, {"role": "assistant", "content": "c"}])"),
            false, true);
      });
  template_ = ChatTemplate::parse("{{ raise_exception('no system please') }}", "strict");
  expect_user_error(ExitCode::kBadFile, "rows.jsonl:3: strict", [&] { learned_of(chat(kTwoTurns)); });
  RowEncoder encoder({.tokenizer = tokenizer_.get(), .end_of_text = {}, .vocabulary = 1 << 20});
  expect_user_error(ExitCode::kBadFile, "rows.jsonl:3: is a conversation, and the model has no chat template",
                    [&] { encoder.encode(chat(kTwoTurns), kPlace); });
}

TEST_F(ChatRows, ARowsVariablesGoBeforeThoseOfTheRun) {
  template_ = ChatTemplate::parse(
      "{% for message in messages %}[{{ message.role }}: {{ mood | default('none') }} {{ size | "
      "default('none') "
      "}} {{ message.content }}]{% endfor %}",
      "moody");
  const auto text_of = [&](const Json& of_row, const Json& of_run) {
    RowEncoder encoder({.tokenizer = tokenizer_.get(),
                        .chat_template = &template_,
                        .variables = of_run,
                        .end_of_text = {},
                        .vocabulary = 1 << 20,
                        .train_on_inputs = true});
    ChatRow row = chat(R"([{"role": "user", "content": "a"}])");
    row.variables = of_row;
    return learned(*tokenizer_, encoder.encode(row, kPlace));
  };
  EXPECT_EQ(text_of(nullptr, nullptr), "[user: none none a]");
  EXPECT_EQ(text_of({{"mood", "good"}}, nullptr), "[user: good none a]");
  EXPECT_EQ(text_of(nullptr, {{"mood", "bad"}}), "[user: bad none a]");
  EXPECT_EQ(text_of({{"mood", "good"}}, {{"mood", "bad"}, {"size", 3}}), "[user: good 3 a]");
  expect_user_error(ExitCode::kBadFile, "rows.jsonl:3: chat_template_kwargs sets tools; expected variables",
                    [&] {
                      text_of({{"tools", 1}}, nullptr);
                    });
}

// tools/make_dataset_fixtures.py: transformers' apply_chat_template with return_assistant_tokens_mask.
TEST(EncodeRow, ConversationsAreThoseOfTransformers) {
  const std::string path = std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/dataset/chats.json";
  const Json cases = parse_json(read_small_file(path, Bytes(1 << 22)), path);
  std::map<std::string, std::unique_ptr<const Tokenizer>> tokenizers;
  ASSERT_GE(cases.size(), 21U);
  for (const Json& expected : cases) {
    const auto name = expected.at("tokenizer").get<std::string>();
    auto& tokenizer = tokenizers[name];
    if (!tokenizer) tokenizer = Tokenizer::load(tokenizer_path(name));
    const ChatTemplate chat_template =
        ChatTemplate::parse(expected.at("template").get<std::string>(), name, expected.at("variables"));
    RowEncoder encoder({.tokenizer = tokenizer.get(),
                        .chat_template = &chat_template,
                        .end_of_text = {},
                        .vocabulary = 1 << 20});
    const Sample sample = encoder.encode(
        ChatRow{.messages = expected.at("messages"), .tools = nullptr, .variables = nullptr}, kPlace);
    EXPECT_EQ(sample.ids, expected.at("ids").get<std::vector<int32_t>>())
        << name << expected.at("messages").dump();
    const std::vector<int> ours(sample.supervised.begin(), sample.supervised.end());
    EXPECT_EQ(ours, expected.at("mask").get<std::vector<int>>()) << name << expected.at("messages").dump();
  }
}

}  // namespace
}  // namespace snug
