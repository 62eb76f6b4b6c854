// docs/options.md says what the program says.

#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

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

}  // namespace
}  // namespace snug
