#include "cli/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <system_error>

#include "base/errors.h"

namespace snug {

void open_missing_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number: this one, for those below it are open.
    if (::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) != descriptor)
      ::_exit(static_cast<int>(ExitCode::kIo));
  }
}

void ignore_broken_pipes() { std::signal(SIGPIPE, SIG_IGN); }

void require_printed() {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int error_number = errno;
  if (flushed && std::ferror(stdout) == 0) return;
  // A write that failed earlier left no reason.
  throw_user(ExitCode::kIo, "standard output: cannot write{}{}", error_number != 0 ? ": " : "",
             error_number != 0 ? std::generic_category().message(error_number) : "");
}

}  // namespace snug
