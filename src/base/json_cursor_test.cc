#include "base/json_cursor.h"

#include <random>

#include "base/json.h"
#include "base/testing.h"

namespace snug {
namespace {

constexpr std::string_view kGood[] = {
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-1.5e+3",
    "1E2",
    "0.25",
    "12345678901234567890",
    "123456789012345678901234567890",
    "1e-400",
    R"("")",
    R"("a\"\\\/\b\f\n\r\té😀\u00e9\ud83d\ude00\u0000")",
    "[]",
    "{}",
    " [ 1 , [ ] , { } ] ",
    R"({"a":1,"b":{"c":[null,true]},"":"x"})",
    R"([[[[[["deep"]]]]]])",
    "\xEF\xBB\xBF[1]",
};

constexpr std::string_view kBad[] = {
    "",
    " ",
    "nul",
    "tru",
    "+1",
    "01",
    "-",
    "1.",
    ".5",
    "1e",
    "1e+",
    "0x10",
    "NaN",
    "Infinity",
    "1e999",
    "'a'",
    R"("a)",
    R"("\x")",
    R"("\u12")",
    R"("\ud83d")",
    R"("\ude00")",
    R"("\ud83d\u0041")",
    "\"a\nb\"",
    "\"\xFF\"",
    "\"\xC0\x80\"",
    "\"\xED\xA0\x80\"",
    "\"\xF4\x90\x80\x80\"",
    "\"\xE2\x82\"",
    "[",
    "]",
    "[1",
    "[1,",
    "[1,]",
    "[,1]",
    "[1 2]",
    "{",
    "}",
    R"({"a"})",
    R"({"a":})",
    R"({"a":1,})",
    R"({a:1})",
    R"({"a":1 "b":2})",
    "[1}",
    R"({"a":1])",
    "1 2",
    "[] []",
    "// c\n1",
    R"({"a":1,"a":2})",
    "[\xEF\xBB\xBF 1]",
};

std::optional<Json> tree(std::string_view text) {
  try {
    return parse_tree(text, "row");
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// Read without keeping it: syntax alone.
bool skips(std::string_view text) {
  try {
    JsonCursor cursor(text, "row");
    cursor.skip_value();
    cursor.finish();
    return true;
  } catch (const JsonSyntaxError&) {
    return false;
  }
}

std::optional<Json> other_reader(std::string_view text) {
  try {
    return parse_json(text, "row");
  } catch (const UserError&) {
    return std::nullopt;
  }
}

TEST(JsonCursor, ReadsWhatTheOtherReaderReads) {
  for (const std::string_view text : kGood) {
    ASSERT_TRUE(tree(text)) << text;
    EXPECT_EQ(*tree(text), *other_reader(text)) << text;
    EXPECT_TRUE(skips(text)) << text;
  }
  for (const std::string_view text : kBad) {
    EXPECT_FALSE(tree(text)) << text;
    EXPECT_FALSE(other_reader(text)) << text;
    // A key that occurs twice is only seen where objects are kept; a number beyond all doubles where its value is.
    EXPECT_EQ(skips(text), text == R"({"a":1,"a":2})" || text == "1e999") << text;
  }
}

TEST(JsonCursor, AgreesWithTheOtherReaderOnBrokenTexts) {
  std::mt19937 random(7);
  const std::string_view bytes = "{}[],:\"\\u0019abcdefn tr\n\x80\xC3\xA9-+.eE";
  int read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text(kGood[random() % std::size(kGood)]);
    for (uint32_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % (text.size() + 1);
      const char byte = bytes[random() % bytes.size()];
      if (random() % 2 == 0 || at == text.size())
        text.insert(at, 1, byte);
      else
        text[at] = byte;
    }
    const std::optional<Json> ours = tree(text), theirs = other_reader(text);
    ASSERT_EQ(ours.has_value(), theirs.has_value())
        << Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
    if (!ours) continue;
    ++read;
    EXPECT_EQ(*ours, *theirs) << text;
    EXPECT_TRUE(skips(text)) << text;
  }
  EXPECT_GT(read, 1000);
}

TEST(JsonCursor, ErrorsSayWhereAndWhat) {
  const auto refused = [](std::string_view text, std::string_view message) {
    expect_user_error(ExitCode::kBadFile, message, [&] {
      JsonCursor cursor(text, "a.jsonl:7");
      cursor.enter_object();
      for (std::string key; cursor.next_key(key);) cursor.read_string(key);
      cursor.finish();
    });
  };
  refused("[1, 2]", "a.jsonl:7: the row is [1, 2] (array); expected an object");
  refused(R"({"text": {"a":)"
          "\n"
          R"(1}})",
          R"(a.jsonl:7: text is {"a": 1} (object); expected a string)");
  refused(R"({"text": null})", "a.jsonl:7: text is null; expected a string");
  refused(R"({"text": "abc)", R"(a.jsonl:7: byte 14: not valid JSON: a string does not end; found the end)");
  refused("{\"text\": \"ab\xFF\"}", R"(a.jsonl:7: byte 13: not valid JSON: the byte 0xFF is not UTF-8)");
  refused(R"({"text": "a"} x)", R"(a.jsonl:7: byte 15: not valid JSON: expected nothing more; found "x")");
  refused("{\"text\": [" + std::string(200, '1') + "]}", "1…");
}

}  // namespace
}  // namespace snug
