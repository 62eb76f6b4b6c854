#include "train/allow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"

namespace snug {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(std::string_view text) {
  try {
    parse_allowed(text);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "not refused";
}

TEST(Allow, ExactAllowsNothing) {
  EXPECT_TRUE(parse_allowed("exact").empty());
  EXPECT_EQ(to_string(Allowed{}), "exact");
}

TEST(Allow, EveryWordIsReadBack) {
  std::string all;
  Allowed everything;
  for (const AllowanceInfo& info : allowances()) {
    const std::string word(info.word);
    EXPECT_EQ(parse_allowed(word), Allowed{info.allowance}) << word;
    EXPECT_EQ(to_string(Allowed{info.allowance}), word);
    EXPECT_FALSE(info.changes.empty());
    EXPECT_THAT(allowances_help(), HasSubstr(word + ": " + std::string(info.changes)));
    all = all.empty() ? word : word + "," + all;  // in any order
    everything.insert(info.allowance);
  }
  EXPECT_EQ(everything.size(), allowances().size()) << "a technique stands there twice";
  EXPECT_EQ(parse_allowed(all.empty() ? "exact" : all), everything);
}

TEST(Allow, UnknownWordsAreRefusedWithTheNearest) {
  EXPECT_THAT(refusal("exakt"),
              AllOf(HasSubstr("found \"exakt\"; expected exact"), HasSubstr("did you mean exact?")));
  EXPECT_THAT(refusal("telepathy"),
              AllOf(HasSubstr("found \"telepathy\""), testing::Not(HasSubstr("did you mean"))));
  EXPECT_THAT(refusal(""), HasSubstr("found \"\"; expected exact"));
  EXPECT_THAT(refusal("exact,"), HasSubstr("expected exact to stand alone"));
}

}  // namespace
}  // namespace snug
