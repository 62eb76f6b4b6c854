#include "base/child.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "base/errors.h"

namespace snug {
namespace {

TEST(Child, AnswersWhateverTheSize) {
  const std::string large(3 << 20, 'x');
  const pid_t parent = getpid();
  EXPECT_EQ(in_child([&] { return getpid() == parent ? std::string("here") : large; }, 60), large);
  EXPECT_EQ(in_child([] { return std::string(); }, 60), "");
}

TEST(Child, ChangesNothingHere) {
  int number = 1;
  in_child([&] { return std::string(static_cast<size_t>(++number), 'x'); }, 60);
  EXPECT_EQ(number, 1);
}

TEST(Child, PassesErrorsOn) {
  try {
    in_child([]() -> std::string { throw UserError(ExitCode::kDoesNotFit, "too\nlarge"); }, 60);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kDoesNotFit);
    EXPECT_STREQ(error.what(), "too\nlarge");
  }
  EXPECT_THROW(in_child([]() -> std::string { throw InternalError("a fault"); }, 60), InternalError);
  EXPECT_THROW(in_child([]() -> std::string { throw std::bad_alloc(); }, 60), InternalError);
}

TEST(Child, EndsWithoutAnAnswer) {
  EXPECT_THROW(in_child([]() -> std::string { _exit(0); }, 60), InternalError);
  EXPECT_THROW(in_child(
                   []() -> std::string {
                     raise(SIGKILL);
                     return "no";
                   },
                   60),
               InternalError);
  std::vector<double> told;
  EXPECT_THROW(in_child(
                   []() -> std::string {
                     pause();
                     return "no";
                   },
                   1.5, [&](double seconds) { told.push_back(seconds); }),
               InternalError);
  EXPECT_FALSE(told.empty());
}

}  // namespace
}  // namespace snug
