// base/testing.h — for tests only: a directory of one's own, and the check that a call fails as it should
#pragma once

#include <gmock/gmock.h>

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "base/file.h"

namespace snug {

// A fresh directory that is removed at the end; in memory where the system has a place for that, since tests fsync thousands of
// small files.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    const std::filesystem::path memory = "/dev/shm";
    const bool has_memory = ::access(memory.c_str(), W_OK) == 0;
    std::string pattern =
        ((has_memory ? memory : std::filesystem::temp_directory_path()) / "snug-test-XXXXXX").string();
    require(::mkdtemp(pattern.data()) != nullptr, "mkdtemp {}: errno {}", pattern, errno);
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return join_path(path_, name); }
  // Writes a file below it and returns its path.
  std::string add(std::string_view name, std::string_view bytes) const {
    const std::string path = *this / name;
    std::filesystem::create_directories(parent_directory(path));
    write_file(path, bytes);
    return path;
  }

 private:
  std::string path_;
};

// `call()` must throw a UserError of `code` whose message contains `fragment`. Our own bug (InternalError)
// never passes.
template <typename Call>
void expect_user_error(ExitCode code, std::string_view fragment, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected a UserError with \"" << fragment << "\"";
  } catch (const UserError& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr(std::string(fragment)));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a UserError: " << error.what() << "; expected one with \"" << fragment << "\"";
  }
}

}  // namespace snug
