#include "base/json.h"

#include <array>

#include "base/testing.h"

namespace snug {
namespace {

TEST(Json, KeepsTheOrderOfKeysAndWritesItBack) {
  const std::string text = R"({"z":1,"a":[1,2.5,"x",null,true],"m":{"b":{},"a":[]}})";
  EXPECT_EQ(parse_json(text, "f").dump(), text);
  EXPECT_EQ(parse_json("  [ ] ", "f").dump(), "[]");
  EXPECT_EQ(parse_json("-12", "f"), -12);
  EXPECT_EQ(parse_json(R"("\u00e9\n")", "f"), "é\n");
}

TEST(Json, RefusesWhatIsNotStrictJson) {
  struct Case {
    std::string text;
    const char* fragment;
  };
  for (const Case& c :
       std::initializer_list<Case>{{"", "f: byte 1: not valid JSON"},
                                   {"{\"a\":}", "f: byte 6: not valid JSON"},
                                   {"{\"a\":1,}", "f: byte 8: not valid JSON"},
                                   {"[1] 2", "f: byte 5: not valid JSON"},
                                   {"{\"a\":NaN}", "f: byte 6: not valid JSON"},
                                   {"[1e999]", "f: byte 6: not valid JSON: number overflow parsing '1e999'"},
                                   {"// x\n1", "not valid JSON"},
                                   {"\"\xff\"", "not valid JSON"},
                                   {"[1", "not valid JSON"},
                                   {std::string("{}\0{", 4), "f: byte 3: not valid JSON: a NUL"},
                                   {"{\"a\":1,\"b\":2,\"a\":3}", "the key \"a\" occurs twice"},
                                   {"{\"x\":{\"a\":1,\"a\":1}}", "the key \"a\" occurs twice"},
                                   {std::string(65, '['), "f: byte 65: nested deeper than 64 levels"}})
    expect_user_error(ExitCode::kBadFile, c.fragment, [&] { parse_json(c.text, "f"); });
}

TEST(Json, TheSameKeyInTwoObjectsIsNoDuplicate) {
  EXPECT_EQ(parse_json(R"([{"a":1},{"a":{"a":2}}])", "f").dump(), R"([{"a":1},{"a":{"a":2}}])");
}

TEST(Json, LimitsDepthSizeAndNumberOfValues) {
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(parse_json(deep, "f").is_array());
  expect_user_error(ExitCode::kBadFile, "nested deeper than 3 levels",
                    [] { parse_json("[[[[]]]]", "f", {.depth = 3}); });
  expect_user_error(ExitCode::kBadFile, "f: is 7 B; expected at most 6 B",
                    [] { parse_json("[1,2,3]", "f", {.size = Bytes(6)}); });
  EXPECT_EQ(parse_json("[1,2,3]", "f", {.values = 4}).size(), 3U);
  expect_user_error(ExitCode::kBadFile, "more than 3 values",
                    [] { parse_json("[1,2,3]", "f", {.values = 3}); });
}

TEST(Json, ReadsAnObjectFromAFile) {
  const TemporaryDirectory directory;
  EXPECT_EQ(read_json_object(directory.add("a.json", R"({"x":1})")).dump(), R"({"x":1})");
  expect_user_error(ExitCode::kBadFile, "b.json: the top is [1] (array); expected an object",
                    [&] { read_json_object(directory.add("b.json", "[1]")); });
  expect_user_error(ExitCode::kBadFile, "c.json: cannot open: No such file",
                    [&] { read_json_object(directory / "c.json"); });
  expect_user_error(ExitCode::kBadFile, "a.json: is 7 B; expected at most 3 B",
                    [&] { read_json_object(directory / "a.json", {.size = Bytes(3)}); });
}

TEST(Json, FieldsHaveTheirTypes) {
  const Json json = parse_json(R"({"n":3,"r":0.5,"b":true,"s":"x","z":null,"big":1e3})", "f");
  EXPECT_EQ(field<int64_t>(json, "n", "f"), 3);
  EXPECT_EQ(field<double>(json, "n", "f"), 3.0);
  EXPECT_EQ(field<double>(json, "r", "f"), 0.5);
  EXPECT_EQ(field<bool>(json, "b", "f"), true);
  EXPECT_EQ(field<std::string>(json, "s", "f"), "x");
  EXPECT_EQ(optional_field<int64_t>(json, "z", "f"), std::nullopt);
  EXPECT_EQ(optional_field<int64_t>(json, "absent", "f"), std::nullopt);
}

TEST(Json, FieldErrorsNameFieldFoundAndExpected) {
  const Json json = parse_json(
      R"({"layers":"abc","n":-1,"r":1.5,"z":null,"u":18446744073709551615,"s":1,"b":0})", "config.json");
  const auto integer = [&](const char* key) { field<int64_t>(json, key, "config.json", kPositive); };
  expect_user_error(ExitCode::kBadFile,
                    "config.json: layers is \"abc\" (string); expected a positive integer",
                    [&] { integer("layers"); });
  expect_user_error(ExitCode::kBadFile, "config.json: n is -1 (number); expected a positive integer",
                    [&] { integer("n"); });
  expect_user_error(ExitCode::kBadFile, "config.json: r is 1.5 (number); expected a positive integer",
                    [&] { integer("r"); });
  expect_user_error(ExitCode::kBadFile,
                    "config.json: u is 18446744073709551615 (number); expected a positive integer",
                    [&] { integer("u"); });
  expect_user_error(ExitCode::kBadFile, "config.json: z is null; expected a positive integer",
                    [&] { integer("z"); });
  expect_user_error(ExitCode::kBadFile, "config.json: q is missing; expected a positive integer",
                    [&] { integer("q"); });
  expect_user_error(ExitCode::kBadFile, "s is 1 (number); expected a string",
                    [&] { field<std::string>(json, "s", "f"); });
  expect_user_error(ExitCode::kBadFile, "b is 0 (number); expected true or false",
                    [&] { field<bool>(json, "b", "f"); });
  expect_user_error(ExitCode::kBadFile, "n is -1 (number); expected a non-negative number",
                    [&] { field<double>(json, "n", "f", kNotNegative); });
}

TEST(Json, QuotesAreCutToALine) {
  const std::string quote = quote_json(Json(std::string(200, 'x')));
  EXPECT_LT(quote.size(), 110U);
  EXPECT_THAT(quote, testing::EndsWith("… (string)"));
}

// name=value of each member, in order.
std::string members_of(std::string_view text, std::string_view key, std::optional<Json>* other = nullptr) {
  std::string list;
  std::optional<Json> stands = parse_json_members(
      text, "f", {.depth = 2}, key,
      [&](std::string&& name, Json&& value) { list += fmt::format("{}={};", name, value.dump()); });
  if (other != nullptr) *other = std::move(stands);
  return list;
}

TEST(JsonMembers, ComeOneByOne) {
  EXPECT_EQ(members_of(R"({"b":1,"a":[1,{"x":null}],"b":"again","":{}})", ""),
            R"(b=1;a=[1,{"x":null}];b="again";={};)");
  EXPECT_EQ(members_of("{}", ""), "");
  // Of the object at a key; the others are passed over.
  std::optional<Json> other;
  EXPECT_EQ(members_of(R"({"x":{"k":0},"k":{"k":[true],"y":2},"z":[]})", "k", &other), R"(k=[true];y=2;)");
  EXPECT_EQ(other, std::nullopt);
  EXPECT_EQ(members_of(R"({"x":{"k":0}})", "k", &other), "");
  EXPECT_EQ(other, Json());
  EXPECT_EQ(members_of(R"({"k":[{"k":0}]})", "k", &other), "");
  EXPECT_EQ(other, Json::parse(R"([{"k":0}])"));
}

TEST(JsonMembers, AreRefusedAsAWholeIs) {
  for (const auto& [text, key, message] : std::initializer_list<std::array<const char*, 3>>{
           {"[1]", "", "f: the top is [1] (array); expected an object"},
           {R"({"a":1} x)", "", "f: byte 9: not valid JSON"},
           {R"({"a":[[[1]]]})", "", "nested deeper than 2 levels"},
           {R"({"k":{},"k":{}})", "k", "the key \"k\" occurs twice in one object"},
           {R"({"a":{"x":1,"x":2}})", "", "the key \"x\" occurs twice in one object"}})
    expect_user_error(ExitCode::kBadFile, message, [&] { members_of(text, key); });
}

}  // namespace
}  // namespace snug
