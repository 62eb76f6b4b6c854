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

// 4 bytes for each byte of the file, beside the file's text itself.
TEST(TokenizerMemory, ALargeFileIsReadInFourTimesItsBytes) {
  std::string text = R"({"model":{"type":"BPE","vocab":{)";
  constexpr int kTokens = 300'000;
  for (int i = 0; i < kTokens; ++i) text += fmt::format("{}\"t{}\":{}", i == 0 ? "" : ",", i, i);
  text += R"(},"merges":[]}})";
  int64_t held = 0;
  const int64_t peak = peak_of([&] {
    const TokenizerSpec spec = parse_tokenizer_json(text, "t.json");
    held = static_cast<int64_t>(spec.tokens.size());
  });
  EXPECT_EQ(held, kTokens);
  EXPECT_LE(peak, 4 * static_cast<int64_t>(text.size()) + kConstant);
  RecordProperty("bytes_a_byte",
                 fmt::format("{:.2f}", static_cast<double>(peak) / static_cast<double>(text.size())));
}

}  // namespace
}  // namespace snug
