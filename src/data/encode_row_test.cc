#include "data/encode_row.h"

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

}  // namespace
}  // namespace snug
