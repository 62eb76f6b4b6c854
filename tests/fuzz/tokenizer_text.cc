// A text, encoded with the tokenizers of tests/fixtures: as a whole and in parts alike; decoded as a stream, whole characters only; and the
// text again where the tokenizer promises it.
#include <algorithm>
#include <array>
#include <memory>

#include "base/file.h"
#include "formats/tokenizer/tokenizer.h"
#include "formats/tokenizer/tokenizer_json.h"
#include "fuzz_target.h"

namespace {

constexpr std::array<const char*, 12> kNames = {"gpt2",  "llama3",   "qwen2",     "smollm2",
                                                "gpt4o", "deepseek", "llama2",    "mistral",
                                                "phi3",  "gemma",    "metaspace", "words"};

// A tokenizer and two encoders of it, which take long to make.
struct Loaded {
  explicit Loaded(const char* name)
      : tokenizer(snug::Tokenizer::load(std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/tokenizers/" + name +
                                        ".json")) {}
  std::unique_ptr<const snug::Tokenizer> tokenizer;
  snug::TextEncoder whole{*tokenizer, {.add_special_tokens = false}},
      in_parts{*tokenizer, {.add_special_tokens = false}};
};

Loaded& load(size_t i) {
  static std::array<std::unique_ptr<Loaded>, kNames.size()> loaded;
  if (!loaded[i]) loaded[i] = std::make_unique<Loaded>(kNames[i]);
  return *loaded[i];
}

// decode(encode(text)) is the text: byte-level, no normalizer, no splitting that removes, no added token that takes spaces.
bool is_lossless(const snug::TokenizerSpec& spec) {
  const auto removes = [](const snug::PreTokenizerStep& step) {
    return step.behavior == snug::SplitBehavior::kRemoved ||
           step.kind == snug::PreTokenizerStep::Kind::kWhiteSpace;
  };
  const auto takes_spaces = [](const snug::AddedToken& token) { return token.lstrip || token.rstrip; };
  return spec.normalizer.empty() && !spec.pre_tokenizer.empty() &&
         spec.pre_tokenizer.back().kind == snug::PreTokenizerStep::Kind::kByteLevel &&
         !spec.pre_tokenizer.back().add_prefix_space &&
         std::none_of(spec.pre_tokenizer.begin(), spec.pre_tokenizer.end(), removes) &&
         std::none_of(spec.added_tokens.begin(), spec.added_tokens.end(), takes_spaces);
}

}  // namespace

// The first byte chooses the tokenizer, the second the length of parts.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace snug;
  if (size < 2) return 0;
  Loaded& loaded = load(data[0] % kNames.size());
  const Tokenizer& tokenizer = *loaded.tokenizer;
  const size_t part = 1 + data[1];
  const std::string_view text = fuzz::as_text(data + 2, size - 2);
  std::vector<int32_t> ids, in_parts;
  loaded.whole.feed(text, ids);
  loaded.whole.finish(ids);
  for (size_t at = 0; at < text.size(); at += part) loaded.in_parts.feed(text.substr(at, part), in_parts);
  loaded.in_parts.finish(in_parts);
  fuzz::check(in_parts == ids, "a text in parts has the ids of the whole");

  const std::string decoded = tokenizer.decode(ids, false);
  std::string streamed;
  TextDecoder decoder(tokenizer, false);
  for (const int32_t id : ids) {
    std::string next;
    decoder.push(id, next);
    fuzz::check(is_valid_utf8(next), "a stream gives whole characters");
    streamed += next;
  }
  decoder.finish(streamed);
  fuzz::check(streamed == decoded, "a stream gives the text of the whole");
  if (!is_lossless(tokenizer.spec())) return 0;
  std::string repaired;
  repair_utf8(text, repaired);
  fuzz::check(decoded == repaired, "decode(encode(text)) is the text");
  return 0;
}
