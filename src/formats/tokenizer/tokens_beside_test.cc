// Tokens that files beside a vocabulary name, against transformers (tools/make_special_token_fixtures.py).
#include "formats/tokenizer/tokens_beside.h"

#include <algorithm>
#include <array>

#include "base/file.h"
#include "base/json.h"
#include "base/testing.h"
#include "formats/tokenizer/tokenizer.h"

namespace snug {
namespace {

const Json& beside_fixture() {
  static const Json kFixture =
      read_json_object(std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/tokenizers/special_tokens.json");
  return kFixture;
}

void add_base(const TemporaryDirectory& here, const std::string& base, const Json& added) {
  if (base == "tokenizer.json") {
    Json tokenizer = beside_fixture()[base];
    tokenizer["added_tokens"] = added;
    here.add(base, tokenizer.dump());
    return;
  }
  here.add("vocab.json", beside_fixture()["vocab.json"].dump());
  here.add("merges.txt", beside_fixture()["merges.txt"].get<std::string>());
}

Json as_json(const AddedToken& token) {
  return {{"id", token.id},
          {"content", token.content},
          {"special", token.special},
          {"normalized", token.normalized},
          {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},
          {"single_word", token.single_word}};
}

TEST(TokensBeside, AreThoseOfTransformers) {
  const Json& fixture = beside_fixture();
  ASSERT_GT(fixture["cases"].size(), 20U);
  for (const Json& test : fixture["cases"]) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const TemporaryDirectory here;
    add_base(here, test["base"].get<std::string>(), test["added_in_json"]);
    for (const auto& [name, json] : test["files"].items()) here.add(name, json.dump());
    const auto tokenizer = Tokenizer::load(here.path());
    std::vector<AddedToken> added = tokenizer->spec().added_tokens;
    std::sort(added.begin(), added.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    Json all = Json::array();
    for (const AddedToken& token : added) all.push_back(as_json(token));
    EXPECT_EQ(all, test["added"]);
    for (size_t i = 0; i < fixture["texts"].size(); ++i) {
      const auto text = fixture["texts"][i].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text), test["ids"][i].get<std::vector<int32_t>>()) << text;
    }
  }
}

// A chat row that was 65 ids where its tokens were plain text.
TEST(TokensBeside, ATokenizerJsonThatIsNamedItselfIsReadAlone) {
  const Json& test = beside_fixture()["cases"][0];
  const auto row = beside_fixture()["texts"][0].get<std::string>();
  const TemporaryDirectory here;
  add_base(here, "tokenizer.json", Json::array());
  for (const auto& [name, json] : test["files"].items()) here.add(name, json.dump());
  EXPECT_EQ(Tokenizer::load(here.path())->encode(row).size(), 25U);
  EXPECT_EQ(Tokenizer::load(here / "tokenizer.json")->encode(row).size(), 65U);
}

TEST(TokensBeside, AnotherIdIsRefused) {
  const Json old = Json::array({as_json({.content = "<old>", .id = 262})});
  for (const auto& [name, text, message] : std::vector<std::array<std::string, 3>>{
           {"tokenizer_config.json", R"({"added_tokens_decoder": {"300": {"content": "<x>"}}})",
            "tokenizer_config.json: added_tokens_decoder gives \"<x>\" (string) the id 300; expected 263: "
            "new tokens "
            "get the ids behind those of"},
           {"tokenizer_config.json", R"({"added_tokens_decoder": {"7": {"content": "<old>"}}})",
            "added_tokens_decoder gives \"<old>\" (string) the id 7; expected 262: it has that in"},
           {"tokenizer_config.json", R"({"added_tokens_decoder": {"262": {"content": "<x>"}}})",
            "added_tokens_decoder gives \"<x>\" (string) the id 262; expected 263"},
           {"tokenizer_config.json",
            R"({"added_tokens_decoder": {"263": {"content": "<x>"}, "264": {"content": "<x>"}}})",
            "added_tokens_decoder gives \"<x>\" (string) the id 264; expected 263: it has that"},
           {"added_tokens.json", R"({"<x>": 264})",
            "added_tokens.json gives \"<x>\" (string) the id 264; expected 263: new tokens"},
           {"added_tokens.json", R"({"<old>": 263})",
            "added_tokens.json gives \"<old>\" (string) the id 263; expected 262: it has that"}}) {
    SCOPED_TRACE(text);
    const TemporaryDirectory here;
    add_base(here, "tokenizer.json", old);
    here.add(name, text);
    expect_user_error(ExitCode::kBadFile, message, [&] { Tokenizer::load(here.path()); });
  }
}

// A mistyped eos_token is a new token, too: it is told. One of the vocabulary is not new.
TEST(TokensBeside, NewOnesAreTold) {
  const auto notices = [](const char* config) {
    const TemporaryDirectory here;
    add_base(here, "tokenizer.json", Json::array({as_json({.content = "<old>", .id = 262})}));
    here.add("tokenizer_config.json", config);
    std::vector<std::string> told;
    const auto tokenizer = Tokenizer::load(here.path());
    for (std::string notice : tokenizer->spec().notices) {
      for (size_t at; (at = notice.find(here.path() + "/")) != std::string::npos;)
        notice.erase(at, here.path().size() + 1);
      told.push_back(std::move(notice));
    }
    return told;
  };
  EXPECT_THAT(notices(R"({"eos_token": "<old>", "pad_token": "th"})"), testing::IsEmpty());
  EXPECT_THAT(
      notices(R"({"eos_token": "<nope>"})"),
      testing::ElementsAre("new beside tokenizer.json, by tokenizer_config.json: eos_token: \"<nope>\" "
                           "(string) with the id 263"));
  EXPECT_THAT(notices(R"({"extra_special_tokens": ["<1>", "<2>", "<3>", "<4>", "<5>", "<6>"]})"),
              testing::ElementsAre(testing::EndsWith("\"<4>\" (string) with the id 266 and 2 more")));
}

TEST(TokensBeside, EmptyOnesAreNone) {
  const TemporaryDirectory here;
  add_base(here, "tokenizer.json", Json::array());
  here.add("tokenizer_config.json", R"({"unk_token": "", "pad_token": "<P>"})");
  const auto tokenizer = Tokenizer::load(here.path());
  ASSERT_EQ(tokenizer->spec().added_tokens.size(), 1U);
  EXPECT_EQ(tokenizer->spec().added_tokens[0].from, here / "tokenizer_config.json" + ": pad_token");
}

}  // namespace
}  // namespace snug
