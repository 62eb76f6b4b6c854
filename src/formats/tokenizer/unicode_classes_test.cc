// Classes of characters against the `tokenizers` library, over all of Unicode: the fixture holds what it matches
// (tools/make_unicode_classes.py).
#include "formats/tokenizer/unicode_classes.h"

#include "base/json.h"
#include "base/testing.h"
#include "formats/tokenizer/regex.h"
#include "formats/tokenizer/unicode.h"

namespace snug {
namespace {

using testing::ElementsAre;

const Json& expected() {
  static const Json kExpected =
      read_json_object(std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/tokenizers/unicode_classes.json");
  return kExpected;
}

// All code points that UTF-8 can say, in texts of up to 256. Most texts hold none about which PCRE2's tables differ, some do.
const std::vector<std::string>& every_character() {
  static const std::vector<std::string> kTexts = [] {
    std::vector<std::string> texts;
    for (char32_t code = 0; code < kCodePointsEnd; ++code) {
      if (code % 256 == 0) texts.emplace_back();
      if (code < 0xD800 || code > 0xDFFF) append_utf8(texts.back(), code);
    }
    return texts;
  }();
  return kTexts;
}

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  Regex regex(pattern, "test");
  const Regex::Subject subject = regex.subject(text);
  std::vector<std::string> found;
  for (size_t at = 0; at <= text.size();) {
    const Regex::Found match = regex.find(subject, at, true);
    if (match.result != Regex::Result::kFound) break;
    found.push_back(text.substr(match.begin, match.end - match.begin));
    at = std::max(match.end, match.begin + 1);
  }
  return found;
}

CodePointSet characters_of(const std::string& expression) {
  Regex regex("(?:" + expression + ")+", "test");
  CodePointSet matched;
  for (const std::string& text : every_character()) {
    const Regex::Subject subject = regex.subject(text);
    for (size_t at = 0; at < text.size();) {
      const Regex::Found match = regex.find(subject, at, true);
      if (match.result != Regex::Result::kFound) break;
      for (at = match.begin; at < match.end;) {
        const CodePoint character = decode_utf8(text, at);
        matched.append(character.value, character.value);
        at += character.length;
      }
    }
  }
  return matched;
}

std::string differences(const CodePointSet& ours, const CodePointSet& theirs) {
  std::string text;
  for (const auto& [first, last] : (ours ^ theirs).ranges())
    text += fmt::format(" {}{:X}-{:X}", ours.contains(first) ? '+' : '-', static_cast<uint32_t>(first),
                        static_cast<uint32_t>(last));
  return text;
}

TEST(UnicodeClasses, OfExpressionsAreOnigurumas) {
  const Json& expressions = expected()["expressions"];
  ASSERT_GE(expressions.size(), 100u);
  for (const auto& [expression, value] : expressions.items()) {
    std::string runs = value.get<std::string>();
    if (runs.starts_with("= ")) runs = expressions[runs.substr(2)].get<std::string>();
    EXPECT_EQ(differences(characters_of(expression), CodePointSet::from_runs(runs)), "") << expression;
  }
}

TEST(UnicodeClasses, OfOtherPartsAreRusts) {
  bool (*const kFunctions[])(char32_t) = {is_word_character, is_numeric, is_punctuation, is_white_space};
  const char* const kNames[] = {"word", "numeric", "punctuation", "white space"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    CodePointSet ours;
    for (char32_t code = 0; code < kCodePointsEnd; ++code)
      if (kFunctions[i](code)) ours.append(code, code);
    EXPECT_EQ(differences(ours, CodePointSet::from_runs(expected()["rust"][kNames[i]].get<std::string>())),
              "")
        << kNames[i];
  }
}

TEST(UnicodeClasses, ExpressionsMatchWhatOnigurumaMatches) {
  ASSERT_GE(expected()["matches"].size(), 30u);
  for (const Json& example : expected()["matches"])
    EXPECT_EQ(matches(example[0], example[1]), example[2].get<std::vector<std::string>>())
        << example[0].get<std::string>() << " in " << example[1].get<std::string>();
}

// What stands beside one another in a long text, with and without characters that need the exact expression.
TEST(UnicodeClasses, DoNotDependOnWhatElseIsInTheText) {
  const std::string pattern = R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+)";
  EXPECT_THAT(matches(pattern, "one 23, x"), ElementsAre("one", " ", "23", ",", " x"));
  EXPECT_THAT(matches(pattern, "one 23, x\U00031350\U0001E4F0"),
              ElementsAre("one", " ", "23", ",", " x\U00031350", "\U0001E4F0"));
}

TEST(CodePointSet, IsWhatItWasMadeOf) {
  const CodePointSet letters = CodePointSet::from_runs("65 26 6 26"), digits('0', '9');
  EXPECT_THAT(letters.ranges(), ElementsAre(CodePointRange{'A', 'Z'}, CodePointRange{'a', 'z'}));
  EXPECT_TRUE((letters | digits).contains('5'));
  EXPECT_FALSE((letters - CodePointSet('q', 'q')).contains('q'));
  EXPECT_EQ(~~letters, letters);
  EXPECT_EQ((letters & digits), CodePointSet());
  EXPECT_EQ((letters ^ (letters | digits)), digits);
  EXPECT_EQ((~CodePointSet()).ranges(), (std::vector<CodePointRange>{{0, kCodePointsEnd - 1}}));
  EXPECT_EQ(CodePointSet::from_runs("0 1114112"), ~CodePointSet());
  const CodePointTable table(letters);
  for (char32_t code = 0; code < 0x200; ++code) EXPECT_EQ(table.contains(code), letters.contains(code));
  EXPECT_FALSE(table.contains(kCodePointsEnd));
}

}  // namespace
}  // namespace snug
