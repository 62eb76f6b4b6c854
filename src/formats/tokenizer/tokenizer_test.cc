// Tokenizers against the `tokenizers` library: fixtures hold small vocabularies in the pipelines of real models,
// texts, and the library's ids and decoded texts for them (tools/make_tokenizer_fixtures.py).
#include "formats/tokenizer/tokenizer.h"

#include <random>

#include "base/json.h"
#include "base/testing.h"
#include "formats/tokenizer/tokenizer_json.h"

namespace snug {
namespace {

using testing::HasSubstr;

std::string fixture(const std::string& name) {
  return std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/tokenizers/" + name;
}

const Json& expected() {
  static const Json kExpected = read_json_object(fixture("expected.json"));
  return kExpected;
}

std::vector<std::string> texts() { return expected()["texts"].get<std::vector<std::string>>(); }

TEST(NormalForms, AreThoseOfTheLibrary) {
  const auto nfc = [](const char* text) { return normalize(NormalForm::kNFC, text); };
  EXPECT_EQ(nfc("plain"), "plain");
  EXPECT_EQ(nfc("e\u0301 n\u0303\u0323 x"), "\u00e9 \u1e47\u0303 x");
  EXPECT_EQ(nfc("\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(nfc("\u212b\u2126"), "\u00c5\u03a9");
  EXPECT_EQ(nfc("a\u0315\u0300\u05aeb"),
            "\u00e0\u05ae\u0315"
            "b");
  EXPECT_EQ(normalize(NormalForm::kNFKC, "\ufb01\u2460\u00bd\uff21"),
            "fi1"
            "1\u2044"
            "2A");
  EXPECT_EQ(normalize(NormalForm::kNFD, "\u00e9\uac01"), "e\u0301\u1100\u1161\u11a8");
  // A mark that Unicode 9 does not know stays where it is, as in the library.
  EXPECT_EQ(nfc("n\u1dc4\U00011a34n"), "n\u1dc4\U00011a34n");
  EXPECT_EQ(nfc("\U00011a34\u0301e\u0301"), "\U00011a34\u0301\u00e9");
}

TEST(CharacterClasses, AreThoseOfTheLibrary) {
  for (const char32_t code : {U'!', U'_', U'$', U'\u00bf', U'\u3001', U'\u166d'})
    EXPECT_TRUE(is_punctuation(code)) << static_cast<uint32_t>(code);
  for (const char32_t code : {U'a', U' ', U'\u20ac', U'\u2e43', U'\U00011c43'})
    EXPECT_FALSE(is_punctuation(code)) << static_cast<uint32_t>(code);
  for (const char32_t code : {U'0', U'\u0663', U'\u00bd', U'\u2167', U'\U0001ccf0'})
    EXPECT_TRUE(is_numeric(code)) << static_cast<uint32_t>(code);
  for (const char32_t code : {U'a', U'\u4e00'}) EXPECT_FALSE(is_numeric(code)) << static_cast<uint32_t>(code);
}

class Pipeline : public testing::TestWithParam<const char*> {
 protected:
  std::string name_ = GetParam();
  std::unique_ptr<const Tokenizer> tokenizer_ = Tokenizer::load(fixture(name_ + ".json"));
  const Json& expected_ = expected()["tokenizers"][name_];
};

INSTANTIATE_TEST_SUITE_P(All, Pipeline,
                         testing::Values("gpt2", "llama3", "qwen2", "smollm2", "gpt4o", "deepseek", "llama2",
                                         "mistral", "metaspace", "phi3", "gemma", "normalized", "unicode",
                                         "rust", "pieces", "words"),
                         [](const auto& pipeline) { return std::string(pipeline.param); });

std::vector<int32_t> ids_of(const Json& json) { return json.get<std::vector<int32_t>>(); }

TEST_P(Pipeline, IdsAreTheLibrarys) {
  const std::vector<std::string> all = texts();
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(tokenizer_->encode(all[i], false), ids_of(expected_["ids"][i])) << quote_json(Json(all[i]));
}

TEST_P(Pipeline, SpecialTokensStandAroundTheText) {
  EXPECT_EQ(tokenizer_->encode("x"), ids_of(expected_["x"]));
  EXPECT_EQ(tokenizer_->encode("x", false), ids_of(expected_["bare_x"]));
}

TEST_P(Pipeline, DecodedTextIsTheLibrarys) {
  for (size_t i = 0; i < expected_["ids"].size(); ++i) {
    const std::vector<int32_t> ids = ids_of(expected_["ids"][i]);
    EXPECT_EQ(tokenizer_->decode(ids), expected_["decoded"][i].get<std::string>());
    EXPECT_EQ(tokenizer_->decode(ids, false), expected_["decoded_all"][i].get<std::string>());
  }
}

TEST_P(Pipeline, PartsOfAStreamGiveWholeCharactersAndTheSameText) {
  for (const Json& list : expected_["ids"]) {
    const std::vector<int32_t> ids = ids_of(list);
    TextDecoder decoder(*tokenizer_, false);
    std::string text;
    for (const int32_t id : ids) {
      std::string part;
      decoder.push(id, part);
      EXPECT_TRUE(is_valid_utf8(part)) << quote_json(Json(part));
      text += part;
    }
    decoder.finish(text);
    EXPECT_EQ(text, tokenizer_->decode(ids, false));
  }
}

// A long text given in parts of any size has the ids of the whole, though what is held between parts is small; also where another encoder
// goes on with the state of the one before.
TEST_P(Pipeline, PartsOfATextHaveTheIdsOfTheWhole) {
  std::mt19937 random(7);
  const auto pick = [&](size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); };
  const std::vector<std::string> all = texts();
  std::string text;
  while (text.size() < 1'500'000) text += all[pick(all.size())];
  const std::vector<int32_t> whole = [&] {
    std::vector<int32_t> ids;
    TextEncoder encoder(*tokenizer_);
    encoder.feed(text, ids);
    encoder.finish(ids);
    return ids;
  }();
  for (const size_t longest : {size_t{3}, size_t{5000}, size_t{300'000}}) {
    auto encoder = std::make_unique<TextEncoder>(*tokenizer_);
    std::vector<int32_t> ids;
    for (size_t at = 0; at < text.size();) {
      const size_t length = std::min(text.size() - at, 1 + pick(longest));
      encoder->feed(std::string_view(text).substr(at, length), ids);
      at += length;
      if (pick(longest < 100 ? 2000 : 2) > 0) continue;
      const std::string state = encoder->state();
      encoder = std::make_unique<TextEncoder>(*tokenizer_);
      ASSERT_TRUE(encoder->restore(state));
    }
    encoder->finish(ids);
    ASSERT_EQ(ids.size(), whole.size()) << longest;
    EXPECT_EQ(ids, whole) << longest;
  }
}

TEST(TextEncoder, RefusesWhatIsNoState) {
  const auto tokenizer = Tokenizer::load(fixture("llama2.json"));
  TextEncoder encoder(*tokenizer);
  std::vector<int32_t> ids;
  encoder.feed("two words", ids);
  const std::string state = encoder.state();
  EXPECT_THAT(state, HasSubstr("two words")) << "nothing is decided yet";
  for (const std::string& broken :
       {std::string(), state.substr(0, 10), state.substr(0, state.size() - 1), state + "x"})
    EXPECT_FALSE(encoder.restore(broken));
  encoder.finish(ids);
  EXPECT_EQ(ids, tokenizer->encode("two words"));
}

}  // namespace
}  // namespace snug
