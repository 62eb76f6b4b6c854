#include "data/span_encoder.h"

#include <map>
#include <memory>

#include "base/json.h"
#include "base/testing.h"

namespace snug {
namespace {

std::string tokenizer_path(const std::string& name) {
  return std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/tokenizers/" + name + ".json";
}

// «…» marks the spans of a text.
struct Marked {
  std::string text;
  std::vector<TextSpan> spans;
};
Marked marked(std::string_view written) {
  Marked made;
  constexpr std::string_view kOpen = "«", kClose = "»";
  while (!written.empty()) {
    if (written.starts_with(kOpen)) {
      made.spans.push_back({.begin = made.text.size()});
      written.remove_prefix(kOpen.size());
    } else if (written.starts_with(kClose)) {
      made.spans.back().end = made.text.size();
      written.remove_prefix(kClose.size());
    } else {
      made.text += written.front();
      written.remove_prefix(1);
    }
  }
  return made;
}

// What is learned, a run of tokens after the other, each between bars.
std::string learned(const Tokenizer& tokenizer, const Sample& sample) {
  std::string text;
  std::vector<int32_t> run;
  for (size_t i = 0; i <= sample.ids.size(); ++i) {
    if (i < sample.ids.size() && sample.supervised[i]) {
      run.push_back(sample.ids[i]);
    } else if (!run.empty()) {
      text += "|" + tokenizer.decode(run, false) + "|";
      run.clear();
    }
  }
  return text;
}

std::string learned_of(const std::string& tokenizer_name, std::string_view written) {
  const auto tokenizer = Tokenizer::load(tokenizer_path(tokenizer_name));
  SpanEncoder encoder(*tokenizer, {});
  const Marked text = marked(written);
  const std::optional<Sample> sample = encoder.encode(text.text, text.spans);
  if (!sample) return "cannot be told";
  EXPECT_EQ(sample->ids, tokenizer->encode(text.text, false));
  EXPECT_EQ(sample->ids.size(), sample->supervised.size());
  return learned(*tokenizer, *sample);
}

TEST(SpanEncoder, TurnsOfSeveralModels) {
  const std::string chatml =
      "<|im_start|>user\nHi, 你好!<|im_end|>\n<|im_start|>assistant\n«Good day "
      "😀<|im_end|>»\n<|im_start|>user\nAgain<|im_end|>\n"
      "<|im_start|>assistant\n«No.<|im_end|>»\n";
  for (const std::string name : {"smollm2", "qwen2"})
    EXPECT_EQ(learned_of(name, chatml), "|Good day 😀<|im_end|>||No.<|im_end|>|") << name;
  EXPECT_EQ(learned_of("llama3",
                       "<|begin_of_text|>user\n\nHi<|eot_id|>assistant\n\n«Good "
                       "day<|eot_id|>»user\n\nx<|eot_id|>assistant\n\n«y<|eot_id|>»"),
            "|Good day<|eot_id|>||y<|eot_id|>|");
  // A space is put before the text behind every special token.
  EXPECT_EQ(learned_of("llama2", "<s>[INST] Hi 你好 [/INST] «Good day </s>»<s>[INST] more [/INST] «no </s>»"),
            "|Good day </s>||no </s>|");
  EXPECT_EQ(learned_of("mistral", "<s>[INST] Hi[/INST]« Good day</s>»[INST] more[/INST]« no</s>»"),
            "|Good day</s>||no</s>|");
  // Special tokens swallow the white space behind them.
  EXPECT_EQ(learned_of("phi3",
                       "<|user|>\nHi<|end|>\n<|assistant|>\n«Good "
                       "day<|end|>»\n<|user|>\nx<|end|>\n<|assistant|>\n«y<|end|>»\n"),
            "|Good day<|end|>||y<|end|>|");
  EXPECT_EQ(
      learned_of("gemma", "<bos>user\nHi  there\n\nmodel\n«Good  day<eos>»\nuser\nx\nmodel\n«y<eos>»\n"),
      "|Good  day<eos>||y<eos>|");
}

// U+0065 U+0301 becomes one character, so that places in the text are none in what is encoded.
TEST(SpanEncoder, TextThatANormalizerChanges) {
  EXPECT_EQ(learned_of("qwen2",
                       "<|im_start|>user\ne\u0301e\u0301e\u0301<|im_end|>\n<|im_start|>assistant\n«e\u0301t "
                       "<|im_end|>»\n"),
            "|\u00e9t <|im_end|>|");
}

TEST(SpanEncoder, TokensAcrossAnEndBelongToTheSpan) {
  // " world" is one token of GPT-2's.
  EXPECT_EQ(learned_of("gpt2", "hello «world» again"), "| world|");
}

// tools/make_dataset_fixtures.py: the library's offsets say which tokens have a byte of a span.
TEST(SpanEncoder, AsTheLibrarysOffsetsSay) {
  const std::string path = std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/dataset/spans.json";
  const Json cases = parse_json(read_small_file(path, Bytes(1 << 24)), path);
  std::map<std::string, std::unique_ptr<const Tokenizer>> tokenizers;
  ASSERT_GT(cases.size(), 250U);
  size_t told = 0;
  for (const Json& expected : cases) {
    const auto name = expected.at("tokenizer").get<std::string>();
    auto& tokenizer = tokenizers[name];
    if (!tokenizer) tokenizer = Tokenizer::load(tokenizer_path(name));
    SpanEncoder encoder(*tokenizer, {});
    std::vector<TextSpan> spans;
    for (const Json& span : expected.at("spans"))
      spans.push_back({span[0].get<size_t>(), span[1].get<size_t>()});
    const auto text = expected.at("text").get<std::string>();
    const std::optional<Sample> sample = encoder.encode(text, spans);
    if (!sample) {
      // What is stripped or composed across a span's end has no place; these pipelines belong to no model.
      EXPECT_TRUE(name == "metaspace" || name == "pieces" || name == "words")
          << name << ": " << Json(text).dump();
      continue;
    }
    ++told;
    EXPECT_EQ(sample->ids, expected.at("ids").get<std::vector<int32_t>>()) << name << ": " << text;
    std::string ours, theirs;
    for (size_t i = 0; i < sample->ids.size(); ++i) {
      ours += sample->supervised[i] ? '1' : '0';
      theirs += expected.at("mask")[i] == 1 ? '1' : '0';
    }
    EXPECT_EQ(ours, theirs) << name << ": " << Json(text).dump() << " " << expected.at("spans").dump();
  }
  EXPECT_GT(told, 250U);
}

}  // namespace
}  // namespace snug
