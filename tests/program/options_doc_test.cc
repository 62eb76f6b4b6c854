// docs/options.md says what the program says.

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <set>
#include <sstream>

#include "program_run.h"

namespace snug {
namespace {

TEST(OptionsDoc, IsUpToDate) {
  const std::string command =
      std::string(SNUG_SOURCE_DIR) + "/tools/make_options_doc --check " + SNUG_PROGRAM;
  EXPECT_EQ(std::system(command.c_str()), 0) << "run tools/make_options_doc " << SNUG_PROGRAM;
}

TEST(OptionsDoc, HasEveryExitCode) {
  const std::string text = file_text(std::string(SNUG_SOURCE_DIR) + "/docs/options.md");
  for (int code = 0; code <= 7; ++code)
    EXPECT_THAT(text, testing::HasSubstr("\n| " + std::to_string(code) + " | "));
}

std::set<std::string> options_of(const std::string& command) {
  const std::string help = run_program({command, "--help"}).out;
  const std::regex option("\n  (--[a-z0-9_]+)");
  return {std::sregex_token_iterator(help.begin(), help.end(), option, 1), std::sregex_token_iterator()};
}

TEST(OptionsDoc, PlanTakesEveryOptionOfTrain) {
  const std::set<std::string> train = options_of("train"), plan = options_of("plan");
  EXPECT_GT(train.size(), 30u);
  for (const std::string& option : train) EXPECT_TRUE(plan.contains(option)) << option;
}

TEST(OptionsDoc, HelpFitsAWindow) {
  for (const char* command : {"train", "data inspect", "tokenizer train"}) {
    std::vector<std::string> arguments;
    std::istringstream words(command);
    for (std::string word; words >> word;) arguments.push_back(word);
    arguments.emplace_back("--help");
    std::istringstream help(run_program(arguments).out);
    int lines = 0;
    for (std::string line; std::getline(help, line); ++lines)
      EXPECT_LE(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }), 112)
          << line;
    EXPECT_GT(lines, 15);
  }
}

}  // namespace
}  // namespace snug
