// Tokenizer files and texts that are made to harm: each is refused with a UserError or encoded in bounded time and memory.
#include <chrono>
#include <random>

#include "base/json.h"
#include "base/testing.h"
#include "formats/tokenizer/tokenizer.h"
#include "formats/tokenizer/tokenizer_json.h"

namespace snug {
namespace {

std::string fixture(const std::string& name) {
  return read_small_file(std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/tokenizers/" + name, 16 * kMiB);
}

// A BPE tokenizer of a few letters.
Json small() {
  return parse_json(R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":null,"post_processor":null,"decoder":null,
    "model":{"type":"BPE","unk_token":null,"vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4},"merges":["a b",["ab","c"]]}})",
                    "small");
}

std::unique_ptr<Tokenizer> make(const Json& json) {
  return std::make_unique<Tokenizer>(parse_tokenizer_json(json.dump(), "t.json"));
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(TokenizerFiles, BothFormsOfMerges) {
  EXPECT_EQ(make(small())->encode("abcab"), (std::vector<int32_t>{4, 3}));
}

TEST(TokenizerFiles, WhatIsWrongIsNamed) {
  struct Case {
    const char* pointer;
    Json value;
    const char* message;
  };
  const Json token = {{"id", 5}, {"content", "<x>"}, {"special", true}};
  const auto with = [&](const char* key, Json value) {
    Json changed = token;
    changed[key] = std::move(value);
    return changed;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"/model/type", "WordPiece", "t.json: model.type is \"WordPiece\"; expected \"BPE\""},
           {"/model/type", "Unigram", "bring token shards made with the model's own tokenizer instead"},
           {"/model/type", "WordLevel", "\"WordLevel\""},
           {"/model", 3, "model is 3"},
           {"/model/vocab", Json::array({Json::array({"a", -1.5})}), "model.vocab"},
           {"/model/vocab/a", "x",
            "the id of \"a\" (string) is \"x\" (string); expected a non-negative integer"},
           {"/model/vocab/a", -1, "the id of \"a\" (string) is -1"},
           {"/model/vocab/a", 1, "model.vocab gives id 1 to \"a\" (string) and to \"b\" (string)"},
           {"/model/vocab/a", 16777216, "expected an id below 16777216"},
           {"/model/merges/0", "a  b",
            "model.merges[0] is \"a  b\" (string); expected two tokens with one space between"},
           {"/model/merges/0", "ab", "model.merges[0] is \"ab\""},
           {"/model/merges/0", "a z",
            "model.merges[0] joins \"a\" (string) and \"z\" (string); \"z\" (string) is not in model.vocab"},
           {"/model/merges/0", "b a", "\"ba\" (string) is not in model.vocab"},
           {"/model/merges/1", Json::array({"ab"}), "model.merges[1] has 1 tokens; expected two"},
           {"/model/merges/1", Json::array({"a", "b", "c"}), "model.merges[1] has 3 tokens; expected two"},
           {"/model/merges/1", 7, "model.merges[1] is 7"},
           {"/model/merges/1", Json{{"a", 1}}, "model.merges[1] is"},
           {"/model/merges", "a b", "model.merges is"},
           {"/model/unk_token", "<unk>", "model.unk_token is \"<unk>\""},
           {"/model/dropout", 0.1, "model.dropout is 0.1"},
           {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix is \"</w>\""},
           {"/model/byte_fallback", "yes", "model.byte_fallback is \"yes\" (string); expected true or false"},
           {"/added_tokens", Json::object(), "added_tokens is {}"},
           {"/added_tokens/0", with("id", 7), "added_tokens[0] gives \"<x>\" (string) the id 7; expected 5"},
           {"/added_tokens/0", with("content", ""), "added_tokens[0].content has 0 bytes"},
           {"/added_tokens/0", with("content", std::string(5000, 'x')), "expected 1 to 4096"},
           {"/added_tokens/0", with("content", "a"), "expected 0: it has that in model.vocab"},
           {"/added_tokens/0", with("lstrip", 1), "added_tokens[0].lstrip is 1"},
           {"/normalizer", Json{{"type", "Precompiled"}},
            "normalizer is \"Precompiled\" (string), which Snug does not run"},
           {"/normalizer", Json{{"type", "BertNormalizer"}}, "BertNormalizer"},
           {"/normalizer", Json{{"type", "Sequence"}}, "normalizer.normalizers is null"},
           {"/normalizer", Json{{"type", "Replace"}, {"pattern", {{"Regex", "(?<name>a)"}}}, {"content", ""}},
            "(?<"},
           {"/pre_tokenizer", Json{{"type", "UnicodeScripts"}}, "pre_tokenizer is \"UnicodeScripts\""},
           {"/pre_tokenizer",
            Json{{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}},
            "is not valid"},
           {"/pre_tokenizer",
            Json{{"type", "Split"}, {"pattern", {{"Regex", "[a-\\d]"}}}, {"behavior", "Isolated"}},
            "a range that ends with a class"},
           {"/pre_tokenizer",
            Json{{"type", "Split"}, {"pattern", {{"Regex", "\\p{Nonsense}"}}}, {"behavior", "Isolated"}},
            "has \\p{Nonsense} at byte"},
           {"/pre_tokenizer",
            Json{{"type", "Split"}, {"pattern", {{"Regex", "a\\Kb"}}}, {"behavior", "Isolated"}}, "\\K"},
           {"/pre_tokenizer",
            Json{{"type", "Split"}, {"pattern", {{"String", ""}}}, {"behavior", "Isolated"}}, "not empty"},
           {"/pre_tokenizer",
            Json{{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Sideways"}}, "Sideways"},
           {"/pre_tokenizer", Json{{"type", "Metaspace"}, {"replacement", "ab"}}, "expected one character"},
           {"/post_processor", Json{{"type", "TemplateProcessing"}, {"single", Json::array()}},
            "expected the text (A) once"},
           {"/post_processor", Json{{"type", "BertProcessing"}, {"cls", {"a", 0}}, {"sep", {"<x>", 77}}},
            "post_processor puts the id 77 beside a text; expected the id of a token"},
           {"/post_processor", Json{{"type", "Other"}}, "post_processor is \"Other\""},
           {"/decoder", Json{{"type", "WordPiece"}}, "decoder is \"WordPiece\""},
       }) {
    SCOPED_TRACE(std::string(c.pointer) + " " + c.value.dump());
    Json json = small();
    json[Json::json_pointer(c.pointer)] = c.value;
    expect_user_error(ExitCode::kBadFile, c.message, [&] { make(json); });
  }
}

TEST(TokenizerFiles, WhatIsMissingOrTwiceIsNamed) {
  const std::string text = small().dump();
  const auto refused = [](const std::string& file, std::string_view message) {
    SCOPED_TRACE(file);
    expect_user_error(ExitCode::kBadFile, message, [&] { parse_tokenizer_json(file, "t.json"); });
  };
  refused("", "t.json: byte 1: not valid JSON: a value is missing; found the end");
  refused("[]", "t.json: the top is [] (array); expected an object");
  refused("{}", "t.json: model is missing; expected an object");
  refused(text + "x", "not valid JSON: expected nothing more; found \"x\"");
  refused(text.substr(0, text.size() - 1), "not valid JSON");
  refused(std::string("{\"a\0\":1}", 9), "byte 4: not valid JSON: a control character within a string");
  refused(R"({"model":{"type":"BPE","merges":[]}})", "t.json: model.vocab is missing; expected an object");
  refused(R"({"model":{"type":"BPE","vocab":{}}})", "t.json: model.merges is missing; expected an array");
  refused(R"({"model":{"type":"BPE","vocab":{"a":0},"vocab":{"b":1},"merges":[]}})", "vocab occurs twice");
  refused(R"({"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}})",
          "model.vocab has \"a\" (string) twice");
  refused(R"({"added_tokens":[],"added_tokens":[]})", "added_tokens occurs twice; expected it once");
  refused(R"({"decoder":{"type":"Fuse","type":"Fuse"}})", "decoder has the key \"type\" (string) twice");
}

// A token of a merge may hold a space where the merge is a pair; as one text it could not be told where to part it.
TEST(TokenizerFiles, PairsMayHoldSpaces) {
  Json json = small();
  json["model"]["vocab"]["a "] = 5;
  json["model"]["vocab"]["a b"] = 6;
  json["model"]["vocab"][" "] = 7;
  json["model"]["merges"] = Json::array({Json::array({"a", " "}), Json::array({"a ", "b"})});
  EXPECT_EQ(make(json)->encode("a bb"), (std::vector<int32_t>{6, 1}));
  json["model"]["merges"] = Json::array({"a  ", "a  b"});
  expect_user_error(ExitCode::kBadFile, "expected two tokens with one space between", [&] { make(json); });
}

TEST(TokenizerFiles, TokensOutsideTheVocabularyFollowIt) {
  Json json = small();
  json["added_tokens"] = parse_json(
      R"([{"id":5,"content":"<x>","special":true},{"id":6,"content":"<y>","special":false}])", "t");
  const auto tokenizer = make(json);
  EXPECT_EQ(tokenizer->largest_id(), 6);
  EXPECT_EQ(tokenizer->encode("a<x>b<y>"), (std::vector<int32_t>{0, 5, 1, 6}));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{0, 5, 1, 6}), "a b <y>");
  EXPECT_EQ(tokenizer->token_to_id("<y>"), 6);
  EXPECT_EQ(tokenizer->token_to_id("zzz"), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_token(7), std::nullopt);
  TextEncoder as_text(*tokenizer, {.special_as_text = true});
  std::vector<int32_t> ids;
  as_text.feed("a<x>b<y>", ids);
  as_text.finish(ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{
                     3, 6}));  // <, x and > have no token here and are left out, so that a and b merge
}

// A piece without any id is remembered as such.
TEST(TokenizerFiles, PiecesOfNoTokenGiveNothing) {
  const auto tokenizer = make(small());
  EXPECT_EQ(tokenizer->encode("xyz"), std::vector<int32_t>());
  TextEncoder encoder(*tokenizer);
  std::vector<int32_t> ids;
  for (int i = 0; i < 2; ++i) {
    encoder.feed("xyz", ids);
    encoder.finish(ids);
  }
  EXPECT_EQ(ids, std::vector<int32_t>());
}

TEST(TokenizerFiles, LeftoverTruncationIsNoted) {
  Json json = small();
  json["truncation"] = {{"max_length", 2}};
  const auto tokenizer = make(json);
  EXPECT_THAT(tokenizer->spec().notices,
              testing::ElementsAre(testing::HasSubstr("truncation is passed over")));
  EXPECT_EQ(tokenizer->encode("abcab abcab").size(), 4U);
}

TEST(TokenizerFiles, OtherKindsAreRefusedByName) {
  const TemporaryDirectory directory;
  const auto load = [&] { Tokenizer::load(directory.path()); };
  expect_user_error(ExitCode::kBadFile, "has no tokenizer.json, nor vocab.json and merges.txt", load);
  directory.add("tokenizer.model", "\x0a\x0e");
  expect_user_error(ExitCode::kBadFile, "its tokenizer is in tokenizer.model, which Snug does not read",
                    load);
  expect_user_error(ExitCode::kBadFile, "is a SentencePiece or tiktoken file",
                    [&] { Tokenizer::load(directory / "tokenizer.model"); });
  expect_user_error(ExitCode::kBadFile, "nothing.json", [&] { Tokenizer::load(directory / "nothing.json"); });
  directory.add("tokenizer.json", "{");
  expect_user_error(ExitCode::kBadFile, "tokenizer.json: byte", load);
}

// GPT-2's pair of files has the ids of its tokenizer.json.
TEST(TokenizerFiles, VocabularyAndMergesOfGpt2) {
  const TemporaryDirectory directory;
  const Json json = parse_json(fixture("gpt2.json"), "gpt2");
  Json vocabulary = json["model"]["vocab"];
  vocabulary["<|endoftext|>"] = json["added_tokens"][0]["id"];
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : json["model"]["merges"]) merges += merge.get<std::string>() + "\n";
  directory.add("vocab.json", vocabulary.dump());
  directory.add("merges.txt", merges);
  const auto files = Tokenizer::load(directory.path());
  const Tokenizer one(parse_tokenizer_json(fixture("gpt2.json"), "gpt2.json"));
  for (const char* text : {"Hello, world!  It's 12345\n\n", "a<|endoftext|>b", "größer 東京 😀"}) {
    EXPECT_EQ(files->encode(text), one.encode(text)) << text;
    EXPECT_EQ(files->decode(files->encode(text), false), text);
  }
  directory.add("tokenizer_config.json", R"({"tokenizer_class":"RobertaTokenizer"})");
  expect_user_error(ExitCode::kBadFile, "tokenizer_class is \"RobertaTokenizer\"",
                    [&] { Tokenizer::load(directory.path()); });
  directory.add("tokenizer_config.json", R"({"tokenizer_class":"GPT2Tokenizer"})");
  directory.add("merges.txt", "#version: 0.2\na b c\n");
  expect_user_error(ExitCode::kBadFile, "merges.txt:2: is \"a b c\"",
                    [&] { Tokenizer::load(directory.path()); });
  directory.add("vocab.json", R"({"a":0,"a":1})");
  expect_user_error(ExitCode::kBadFile, "has \"a\" (string) twice",
                    [&] { Tokenizer::load(directory.path()); });
  directory.add("vocab.json", R"({"a":{"b":1}})");
  expect_user_error(ExitCode::kBadFile, "expected a non-negative integer",
                    [&] { Tokenizer::load(directory.path()); });
}

TEST(TokenizerFiles, DamagedFilesAreReadOrRefused) {
  std::mt19937 random(11);
  const auto pick = [&](size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); };
  const std::vector<std::string> pieces = {"{",    "}",  "[",    "]",       ",",    ":", "\"",      "null",
                                           "true", "-1", "1e99", "\\u0000", "\xff", "0", "Sequence"};
  int refused = 0;
  for (const char* name : {"llama3.json", "phi3.json", "pieces.json"}) {
    Json json = parse_json(fixture(name), name);
    // A short vocabulary, so that most edits fall on the structure.
    const Json merges = Json::array();
    json["model"]["merges"] = merges;
    Json vocabulary = Json::object();
    for (const auto& [token, id] : json["model"]["vocab"].items())
      if (id < 8 || token.starts_with("<0x4")) vocabulary[token] = id;
    json["model"]["vocab"] = vocabulary;
    json["added_tokens"] = Json::array({json["added_tokens"].back()});
    json["added_tokens"][0]["id"] = vocabulary.size();
    const std::string whole = json.dump();
    for (int round = 0; round < 700; ++round) {
      std::string text = whole;
      for (size_t edits = 1 + pick(3); edits > 0; --edits) {
        const size_t at = pick(text.size()), length = std::min(text.size() - at, 1 + pick(6));
        const size_t how = pick(4);
        if (how == 0) text.replace(at, length, pieces[pick(pieces.size())]);
        if (how == 1) text.insert(at, pieces[pick(pieces.size())]);
        if (how == 2) text.erase(at, length);
        if (how == 3) text.resize(at + 1);
      }
      try {
        const Tokenizer tokenizer(parse_tokenizer_json(text, "t.json"));
        tokenizer.decode(tokenizer.encode("Hello 123\n <s> größer"));
      } catch (const UserError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(TokenizerFiles, NestingAndSizeAreLimited) {
  Json json = small();
  const std::string text = json.dump();
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const auto& [key, message] : std::vector<std::pair<std::string, std::string>>{
           {"normalizer", "normalizer is nested deeper than 64 levels"},
           {"added_tokens", "added_tokens[0] is [[["},
           {"model", "model is [[["},
           {"vocab", "model.vocab is [[["},
           {"merges", "model.merges[0] is [[["},
           {"unk_token", "model.unk_token is nested deeper than 64 levels"}}) {
    SCOPED_TRACE(key);
    std::string bomb = text;
    const std::string quoted = "\"" + key + "\":";
    bomb.insert(bomb.find(quoted) + quoted.size(), deep + ",\"x\":");
    expect_user_error(ExitCode::kBadFile, message, [&] { parse_tokenizer_json(bomb, "t.json"); });
  }
  std::string passed_over = text;
  passed_over.insert(1, "\"x\":" + deep + ",");
  EXPECT_EQ(parse_tokenizer_json(passed_over, "t.json").tokens.size(), 5U);
  Json parts = {{"type", "NFC"}};
  for (int i = 0; i < 60; ++i) parts = Json{{"type", "Sequence"}, {"normalizers", Json::array({parts})}};
  json["normalizer"] = parts;
  expect_user_error(ExitCode::kBadFile, "nested deeper", [&] { make(json); });
}

// --- Texts

TEST(LongTexts, OnePieceIsEncodedInNearlyLinearTime) {
  const Tokenizer tokenizer(parse_tokenizer_json(fixture("llama3.json"), "llama3.json"));
  std::mt19937 random(3);
  const auto letters = [&](size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i)
      text += "etaoinshrdlu"[std::uniform_int_distribution<size_t>(0, 11)(random)];
    return text;
  };
  const std::string text = letters(1'000'000);
  std::vector<int32_t> ids;
  EXPECT_LT(seconds_of([&] { ids = tokenizer.encode(text, false); }), 10);
  EXPECT_EQ(tokenizer.decode(ids), text);
  // The same letter, where every pair may merge.
  const std::string same(1'000'000, 'a');
  EXPECT_LT(seconds_of([&] { ids = tokenizer.encode(same, false); }), 10);
  EXPECT_EQ(tokenizer.decode(ids), same);
}

TEST(LongTexts, AShortPieceAndALongOneAreMergedAlike) {
  // The scan of short pieces and the heap of long ones: what is alone and what has something far away before it.
  Json json = small();
  const auto tokenizer = make(json);
  std::string text;
  std::vector<int32_t> expected;
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    const std::string part = std::vector<std::string>{
        "abc", "ab", "c", "b", "a"}[std::uniform_int_distribution<size_t>(0, 4)(random)];
    text += part + "b";
  }
  // By hand: leftmost lowest rank first is a scan for "ab", then for "ab" "c".
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    if (rest.starts_with("abc")) {
      expected.push_back(4);
      at += 3;
    } else if (rest.starts_with("ab")) {
      expected.push_back(3);
      at += 2;
    } else {
      expected.push_back(text[at] - 'a');
      ++at;
    }
  }
  EXPECT_EQ(tokenizer->encode(text), expected);
}

TEST(LongTexts, ACatastrophicExpressionIsAnErrorAndNotAHang) {
  for (const char* pattern : {"(a+)+[bc]", "(a|aa)+$", "a+[bc]", "(?:a*)*[cd]", "(x+x+)+y|(a|a?)+[bc]"}) {
    SCOPED_TRACE(pattern);
    Json json = small();
    json["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    const auto tokenizer = make(json);
    const double seconds = seconds_of([&] {
      try {
        tokenizer->encode(std::string(200'000, 'a') + "!");
      } catch (const UserError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("takes too many steps on this text"));
      }
    });
    EXPECT_LT(seconds, 60);
  }
  Json json = small();
  json["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a+)+[bc]"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const auto tokenizer = make(json);
  expect_user_error(ExitCode::kBadFile, "(a+)+[bc] takes too many steps",
                    [&] { tokenizer->encode(std::string(100, 'a') + "!"); });
}

TEST(LongTexts, RunsOfSpacesAndNewlines) {
  const Tokenizer tokenizer(parse_tokenizer_json(fixture("qwen2.json"), "qwen2.json"));
  for (const char* unit : {" ", "\n", " \n", "\t", "\u00a0"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    text += "x";
    std::vector<int32_t> ids;
    EXPECT_LT(seconds_of([&] { ids = tokenizer.encode(text, false); }), 20) << unit;
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

TEST(LongTexts, BytesThatAreNotUtf8AreReplacedAsPythonDoes) {
  const Tokenizer tokenizer(parse_tokenizer_json(fixture("gpt2.json"), "gpt2.json"));
  const auto repaired = [&](std::string_view text) { return tokenizer.decode(tokenizer.encode(text)); };
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(repaired("a\xFF"
                     "b"),
            "a" + bad + "b");
  EXPECT_EQ(repaired("\xE4\xB8"), bad);  // one character, cut
  EXPECT_EQ(repaired("\xE4\xB8"
                     "x"),
            bad + "x");
  EXPECT_EQ(repaired("\xED\xA0\x80"), bad + bad + bad);  // a surrogate
  EXPECT_EQ(repaired("\xC0\xAF"), bad + bad);            // overlong
  EXPECT_EQ(repaired("\xF0\x9F\x98"), bad);
  EXPECT_EQ(repaired("\xF4\x90\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(repaired("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
}

}  // namespace
}  // namespace snug
