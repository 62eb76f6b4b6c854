// base/errors.h — the two kinds of failure, never mixed
//
// UserError      what the user asked for or brought cannot work: it names the file or option, what was found and what was
//                expected. The program prints it and ends with its exit code.
// InternalError  our own bug: a broken promise inside Snug. Ends with ExitCode::kInternal and asks for a report.
//
// Validation is never `assert`: both kinds are thrown in every build type.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace snug {

// The program's exit codes; documented in docs/options.md. Each cause has its own.
enum class ExitCode : int {
  kSuccess = 0,
  kInternal = 1,     // our bug
  kUsage = 2,        // wrong option, value or configuration key
  kBadFile = 3,      // a file from outside is broken, missing or of an unknown kind
  kDoesNotFit = 4,   // the plan does not fit the budget
  kNonFinite = 5,    // losses, gradients or weights that are not finite
  kIo = 6,           // the system refused a read, write, fsync, rename or allocation
  kInterrupted = 7,  // SIGINT, SIGTERM or SIGHUP: the step was finished and the model saved
};

class UserError : public std::runtime_error {
 public:
  UserError(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

class InternalError : public std::logic_error {
 public:
  explicit InternalError(const std::string& message) : std::logic_error(message) {}
};

// throw_user(ExitCode::kBadFile, "{}: header is {} bytes", path, n)
template <typename... Args>
[[noreturn]] void throw_user(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(code, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void throw_internal(fmt::format_string<Args...> format, Args&&... args) {
  throw InternalError(fmt::format(format, std::forward<Args>(args)...));
}

// Throws InternalError with the formatted message unless `condition` holds.
template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw InternalError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace snug
