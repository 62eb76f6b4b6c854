#include "formats/run_config.h"

#include <chrono>

#include "base/testing.h"

namespace snug {
namespace {

std::vector<RunSetting> parse(std::string_view text) { return parse_run_config(text, "run.yaml"); }

TEST(RunConfig, KeepsOrderTextAndLines) {
  EXPECT_EQ(parse("# a run\nmodel: some/dir\n\nlearning_rate: 5e-5   # comment\nseed: 007\nname: \"a: "
                  "b\"\nother: 'it''s'\n"),
            (std::vector<RunSetting>{{"model", "some/dir", 2},
                                     {"learning_rate", "5e-5", 4},
                                     {"seed", "007", 5},
                                     {"name", "a: b", 6},
                                     {"other", "it's", 7}}));
}

TEST(RunConfig, WordsThatYamlTakesForTruthValuesStayText) {
  const auto settings =
      parse("a: no\nb: NO\nc: on\nd: Yes\ne: true\nf: off\ng: 1_000\nh: 0x10\ni: 2020-01-01\n");
  std::string values;
  for (const RunSetting& setting : settings) values += setting.value + " ";
  EXPECT_EQ(values, "no NO on Yes true off 1_000 0x10 2020-01-01 ");
}

TEST(RunConfig, EmptyIsNoSettings) {
  EXPECT_TRUE(parse("").empty());
  EXPECT_TRUE(parse("# only a comment\n").empty());
  EXPECT_TRUE(parse("---\n").empty());
  EXPECT_EQ(parse("---\na: 1\n"), (std::vector<RunSetting>{{"a", "1", 2}}));
  EXPECT_EQ(parse("a: \"\"\n"), (std::vector<RunSetting>{{"a", "", 1}}));
  EXPECT_EQ(parse("{a: 1, b: 2}"),
            (std::vector<RunSetting>{{"a", "1", 1}, {"b", "2", 1}}));  // JSON-like is YAML too
}

TEST(RunConfig, KnowsNoValueListsAndWhatIsNested) {
  using enum RunSettingKind;
  const auto settings = parse(
      "a:\nb: ~\nc: \"~\"\nd: [x, 'y, z', \"null\"]\ne:\n  - 1\n  - ~/f\nf: []\ng: {}\nh:\n  lr: 1\n  deep: "
      "{x: [1]}\n"
      "i:\n  - path: p\n    type: t\nj: [null]\nk: last\n");
  EXPECT_EQ(settings,
            (std::vector<RunSetting>{{.key = "a", .line = 1, .kind = kNull},
                                     {.key = "b", .line = 2, .kind = kNull},
                                     {.key = "c", .value = "~", .line = 3},
                                     {.key = "d", .line = 4, .kind = kList, .items = {"x", "y, z", "null"}},
                                     {.key = "e", .line = 5, .kind = kList, .items = {"1", "~/f"}},
                                     {.key = "f", .line = 8, .kind = kList},
                                     {.key = "g", .line = 9, .kind = kEmptyMap},
                                     {.key = "h", .line = 10, .kind = kNested},
                                     {.key = "i", .line = 13, .kind = kNested},
                                     {.key = "j", .line = 16, .kind = kNested},
                                     {.key = "k", .value = "last", .line = 17}}));
}

TEST(RunConfig, RefusesWithKeyAndLine) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"a: 1\nb: 2\na: 3\n",
            "run.yaml: line 3: a is given again (first on line 1); expected each key once"},
           {"a: !!python/object:os.system x\n", "line 1: a has the tag"},
           {"a: 1\n---\nb: 2\n", "a second document; expected one"},
           {"- a\n- b\n", "line 1: expected \"key: value\" lines"},
           {"just words\n", "line 1: expected \"key: value\" lines"},
           {"? [a]\n: 1\n", "line 1: a key that is not a word"},
           {"a: \"open\n", "line 1: a has a quote that is not closed"},
           {"x: 0\na: \"open\nb: 2\n", "line 2: a has a quote that is not closed"},
           {"a: 'it''s\nb: 2\n", "line 1: a has a quote that is not closed"},
           {"a: \"back\\\"\n", "line 1: a has a quote that is not closed"},
           {"a: 1\n b: 2\n", "run.yaml: line 2: not valid YAML"},
           {"a: *nowhere\n", "not valid YAML"},
           {"a: &x 1\nb: *x\n", "line 1: a has an anchor; expected one value"},
           {"]", "run.yaml: line 1: not valid YAML"},
           {"a: 1\n}\n", "run.yaml: line 2: not valid YAML"},
           {"a: [x, \"open\n  - b\n", "line 1: a has a quote that is not closed"},
           {"x: 0\na: [1,\n\n", "run.yaml: line 2: a: not valid YAML on line 4: end of sequence"},
           {"a: [!!int 1]\n", "line 1: a has the tag"},
           {"a:\n  - &x 1\n", "line 1: a has an anchor"},
           {"a: [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]\n", "line 1: a is nested 17 levels deep"}}) {
    SCOPED_TRACE(c.text);
    expect_user_error(ExitCode::kUsage, c.message, [&] { parse(c.text); });
  }
  for (const char* nested : {"[", "a: [", "{a: ", "? ", "- "}) {
    std::string text;
    while (text.size() < 300'000) text += nested;
    SCOPED_TRACE(nested);
    expect_user_error(ExitCode::kUsage, "run.yaml: line 1: ", [&] { parse(text); });
  }
  expect_user_error(ExitCode::kUsage, "run.yaml: line 2: a key of 201 bytes; expected at most 200",
                    [] { parse("a: 1\n" + std::string(201, 'k') + ": 1\n"); });
}

// A mebibyte of them: looking for the line of each from the beginning would take a minute.
TEST(RunConfig, ManyQuotedValuesTakeLittleTime) {
  std::string text;
  int count = 0;
  for (; text.size() < 1'000'000; ++count) text += fmt::format("k{}: \"x\"\n", count);
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<RunSetting> settings = parse(text);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 10);
  ASSERT_EQ(settings.size(), static_cast<size_t>(count));
  EXPECT_EQ(settings.back(), (RunSetting{fmt::format("k{}", count - 1), "x", count}));
  expect_user_error(ExitCode::kUsage, fmt::format("line {}: open has a quote that is not closed", count + 1),
                    [&] { parse(text + "open: \"x\n"); });
}

TEST(RunConfig, ReadsAFile) {
  const TemporaryDirectory directory;
  EXPECT_EQ(read_run_config(directory.add("run.yaml", "a: 1\n")), (std::vector<RunSetting>{{"a", "1", 1}}));
  expect_user_error(ExitCode::kBadFile, "none.yaml: cannot open",
                    [&] { read_run_config(directory / "none.yaml"); });
  expect_user_error(ExitCode::kBadFile, "expected at most 1.00 MiB",
                    [&] { read_run_config(directory.add("big.yaml", std::string(1024 * 1024 + 1, '#'))); });
}

TEST(RunConfig, WritesWhatItReads) {
  std::vector<RunSetting> settings;
  for (const char* value :
       {"1",   "5e-5",   "-1",   "true",   "false",   "no",        "NO",          "on",  "y",
        "~",   "null",   "",     " ",      "a b",     "a: b",      "#x",          "- x", "-",
        "--",  ".5",     "it's", "\"q\"",  "\\",      "tab\there", "line\nbreak", "é…",  "some/dir-1.2",
        "[1]", "{a: b}", "*x",   "&x",     "!x",      "%x",        "@x",          "`x`", "a,b",
        "?",   ":",      "=",    "900MiB", "\x01\x7f"})
    settings.push_back({fmt::format("key{}", settings.size()), value, static_cast<int>(settings.size()) + 1});
  settings.push_back(
      {.key = "null", .line = 1 + static_cast<int>(settings.size()), .kind = RunSettingKind::kNull});
  settings.push_back({.key = "list",
                      .line = 1 + static_cast<int>(settings.size()),
                      .kind = RunSettingKind::kList,
                      .items = {"no", "a, b", "~", "x"}});
  EXPECT_EQ(parse(format_run_config(settings)), settings);
  EXPECT_EQ(
      format_run_config(
          {{"shuffle", "true", 1}, {"bf16", "no", 2}, {"learning_rate", "5e-5", 3}, {"model", "a b", 4}}),
      "shuffle: true\nbf16: \"no\"\nlearning_rate: 5e-5\nmodel: \"a b\"\n");
}

}  // namespace
}  // namespace snug
