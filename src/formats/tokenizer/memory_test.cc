// What encoding and reading take: the largest sum of bytes that operator new had given out at one time.
#include "base/json.h"
#include "base/peak_new.h"
#include "base/testing.h"
#include "formats/tokenizer/tokenizer.h"
#include "formats/tokenizer/tokenizer_json.h"

namespace snug {
namespace {

using peak_new::peak_of;

// Of the encoder's cache, its sections of text and its regular expressions.
constexpr int64_t kConstant = int64_t{16} << 20;
// Of reading a file: the parts of it that become trees.
constexpr int64_t kOfFile = int64_t{16} << 20;
// The same of a text that is one piece, of which the cache remembers nothing.
constexpr int64_t kOfOnePiece = int64_t{3} << 20;

std::unique_ptr<const Tokenizer> fixture(const std::string& name) {
  return Tokenizer::load(std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/tokenizers/" + name + ".json");
}

// The ids are taken away as they come, as who encodes a file does.
int64_t encode_in_parts(const Tokenizer& tokenizer, const std::function<std::string_view()>& next) {
  return peak_of([&] {
    TextEncoder encoder(tokenizer);
    std::vector<int32_t> ids;
    for (std::string_view part = next(); !part.empty(); part = next()) {
      encoder.feed(part, ids);
      ids.clear();
    }
    encoder.finish(ids);
  });
}

std::string repeated(std::string_view unit, size_t bytes) {
  std::string text;
  text.reserve(bytes + unit.size());
  while (text.size() < bytes) text += unit;
  return text;
}

// Nothing splits these texts: at most 64 bytes for each of theirs, with the ids.
TEST(TokenizerMemory, APieceThatNothingSplitsTakesAtMost64BytesAByte) {
  constexpr size_t kBytes = 1'000'000;
  for (const char* name : {"gpt2", "llama3", "qwen2", "llama2", "gemma", "phi3", "metaspace", "deepseek"}) {
    const auto tokenizer = fixture(name);
    for (const char* unit : {"a", "ab", " ", "\u2581", "\U0001F600", "\xFF"}) {
      const std::string text = repeated(unit, kBytes);
      // The replacement for a byte that is no character, and the mark for a space, have three.
      const bool grows = unit[0] == '\xFF' || unit[0] == ' ';
      const int64_t peak = peak_of([&] { tokenizer->encode(text, false); });
      EXPECT_LE(peak, 64 * static_cast<int64_t>(text.size()) * (grows ? 3 : 1) + kOfOnePiece)
          << name << " " << quote_json(Json(unit));
    }
  }
}

// Every pair of a run of one letter merges, again and again: 2^k letters are one token.
TEST(TokenizerMemory, AMergeBomb) {
  Json vocabulary = {{"a", 0}}, merges = Json::array();
  std::string token = "a";
  for (int level = 1; level <= 12; ++level) {
    merges.push_back(Json::array({token, token}));
    token += token;
    vocabulary[token] = level;
  }
  const Json file = {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
  const Tokenizer tokenizer(parse_tokenizer_json(file.dump(), "bomb.json"));
  const std::string text((size_t{1} << 22) + 5, 'a');
  std::vector<int32_t> ids;
  EXPECT_LE(peak_of([&] { ids = tokenizer.encode(text); }),
            64 * static_cast<int64_t>(text.size()) + kOfOnePiece);
  std::vector<int32_t> expected(size_t{1} << 10, 12);
  expected.insert(expected.end(), {2, 0});
  EXPECT_EQ(ids, expected);
}

// Bytes without a symbol of their own, of which each becomes two tokens.
TEST(TokenizerMemory, BytesThatFallBackToTwoTokensEach) {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[fmt::format("<0x{:02X}>", byte)] = byte;
  vocabulary["<0xC4><0xA0>"] = 256;
  const Json file = {
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
      {"model",
       {{"type", "BPE"},
        {"byte_fallback", true},
        {"vocab", vocabulary},
        {"merges", Json::array({Json::array({"<0xC4>", "<0xA0>"})})}}}};
  const Tokenizer tokenizer(parse_tokenizer_json(file.dump(), "fallback.json"));
  const std::string text(2'000'000, ' ');  // the symbol of a space is U+0120: C4 A0
  std::vector<int32_t> ids;
  EXPECT_LE(peak_of([&] { ids = tokenizer.encode(text); }),
            64 * static_cast<int64_t>(text.size()) + kOfOnePiece);
  EXPECT_EQ(ids, std::vector<int32_t>(text.size(), 256));
}

// One line of 50 MB, of words: what is taken does not depend on its length.
TEST(TokenizerMemory, ALongLineOfWordsTakesNothingForItsLength) {
  const std::string part = repeated("the quick brown fox jumps over 13 lazy dogs; ", 500'000);
  for (const char* name : {"gpt2", "llama2"}) {
    const auto tokenizer = fixture(name);
    int parts = 100;
    EXPECT_LE(encode_in_parts(*tokenizer,
                              [&] { return parts-- > 0 ? std::string_view(part) : std::string_view(); }),
              kConstant + (int64_t{4} << 20))
        << name;
  }
}

// What reading a file holds beside its text and the sizes named above: at most 4 bytes for each byte of it.
void expect_read_in_little(const std::string& text, std::string_view outcome) {
  std::string message = "read";
  const int64_t peak = peak_of([&] {
    try {
      parse_tokenizer_json(text, "t.json");
    } catch (const UserError& error) {
      message = error.what();
    }
  });
  EXPECT_THAT(message, testing::HasSubstr(outcome));
  EXPECT_LE(peak, 4 * static_cast<int64_t>(text.size()) + kOfFile) << text.substr(0, 80);
}

std::string joined(int count, const std::function<std::string(int)>& piece) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + piece(i);
  return text;
}

std::string file_of(const std::string& vocabulary, const std::string& merges, const std::string& more = "") {
  return R"({"model":{"type":"BPE","vocab":{)" + vocabulary + R"(},"merges":[)" + merges + "]}" + more + "}";
}

TEST(TokenizerMemory, ALargeFileIsReadInFourTimesItsBytes) {
  const auto token = [](int i) { return fmt::format(R"("{:x}":{})", i, i); };
  expect_read_in_little(file_of(joined(2'000'000, token), ""), "read");
  expect_read_in_little(file_of("", joined(1'500'000, [](int) { return R"("a b")"; })), "read");
  expect_read_in_little(file_of("", joined(1'500'000, [](int) { return R"(["",""])"; })), "read");
  expect_read_in_little(file_of(R"("a":0,")" + std::string(20'000'000, 'x') + R"(":1)", ""), "read");
  expect_read_in_little(file_of(R"("a":0,")" + repeated("\\u00e9", 12'000'000) + R"(":1)", ""), "read");
}

// One pair more than a power of two: what doubles as it grows holds the most then.
TEST(TokenizerMemory, Gpt2sFilesAreReadInFourTimesTheirBytes) {
  constexpr size_t kPairs = (size_t{1} << 22) + 1;
  const std::string merges = repeated("a b\n", 4 * kPairs);
  size_t read = 0;
  const int64_t peak = peak_of([&] {
    read = parse_gpt2_files(R"({"a":0,"b":1})", "vocab.json", merges, "merges.txt", TokenizerConfig())
               .merges.size();
  });
  EXPECT_EQ(read, 2 * kPairs);
  EXPECT_LE(peak, 4 * static_cast<int64_t>(merges.size()) + kOfFile);
}

TEST(TokenizerMemory, PartsThatWouldBecomeLargeTrees) {
  const std::string zeros = joined(3'000'000, [](int) { return "0"; });
  expect_read_in_little(file_of("", "", R"(,"x":[)" + zeros + "]"), "read");
  expect_read_in_little(file_of("", "", R"(,"normalizer":[)" + zeros + "]"),
                        "normalizer brings it to more than 20000 values");
  expect_read_in_little(
      file_of("", "",
              R"(,"decoder":{)" + joined(19'000, [](int i) { return fmt::format(R"("{}":0)", i); }) + "}"),
      "decoder.type is null");
  expect_read_in_little(file_of("", "",
                                R"(,"added_tokens":[)" +
                                    joined(1'000'000, [](int) { return R"({"id":0,"content":""})"; }) + "]"),
                        "added_tokens has more than 100000 tokens");
  expect_read_in_little(
      file_of("", "",
              R"(,"added_tokens":[)" +
                  joined(100'000, [](int i) { return fmt::format(R"({{"id":{},"content":"{}"}})", i, i); }) +
                  "]"),
      "read");
  expect_read_in_little(
      R"({"model":{"type":"Unigram","vocab":[)" + joined(500'000, [](int) { return R"(["",0.5])"; }) + "]}}",
      "model.type is \"Unigram\"");
}

}  // namespace
}  // namespace snug
