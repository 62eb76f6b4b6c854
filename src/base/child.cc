#include "base/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "base/errors.h"

namespace snug {
namespace {

// What the child's answer begins with; an error of the user's has its code behind it.
constexpr char kAnswer = 'a', kUserError = 'u', kInternalError = 'i';
constexpr double kGraceSeconds = 1;
constexpr useconds_t kReapMicroseconds = 1000;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string answer_of(const std::function<std::string()>& work) {
  try {
    return kAnswer + work();
  } catch (const UserError& error) {
    return std::string{kUserError, static_cast<char>(error.code())} + error.what();
  } catch (const std::exception& error) {
    return std::string{kInternalError} + error.what();
  }
}

[[noreturn]] void run_child(const std::function<std::string()>& work, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string answer = answer_of(work);
  size_t written = 0;
  while (written < answer.size()) {
    const ssize_t count = write(out, answer.data() + written, answer.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) _exit(1);
    written += static_cast<size_t>(count);
  }
  _exit(0);
}

// All that the child writes until it closes its end; cut short where it does not in time.
std::string read_all(int in, double start, double limit_seconds, const std::function<void(double)>& waiting) {
  std::string all;
  std::array<char, 1 << 16> bytes{};
  double told = start;
  for (;;) {
    const double now = seconds_now();
    if (now >= start + limit_seconds) return "";
    if (waiting && now >= told + 1) {
      waiting(now - start);
      told = now;
    }
    pollfd pending{.fd = in, .events = POLLIN, .revents = 0};
    const int ready =
        poll(&pending, 1, static_cast<int>(1000 * std::min(1.0, start + limit_seconds - now)) + 1);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t got = ready < 0 ? -1 : read(in, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return all;
    all.append(bytes.data(), static_cast<size_t>(got));
  }
}

}  // namespace

std::string in_child(const std::function<std::string()>& work, double limit_seconds,
                     const std::function<void(double)>& waiting) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return work();
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return work();
  }
  if (child == 0) run_child(work, ends[1]);
  close(ends[1]);
  const double start = seconds_now();
  const std::string answer = read_all(ends[0], start, limit_seconds, waiting);
  close(ends[0]);
  // One that has answered ends by itself; one that hangs in the kernel is left to the process that takes it over.
  int status = 0;
  const double until = seconds_now() + kGraceSeconds;
  if (answer.empty()) kill(child, SIGKILL);
  while (waitpid(child, &status, WNOHANG) == 0 && seconds_now() < until) usleep(kReapMicroseconds);
  if (answer.empty())
    throw InternalError(
        fmt::format("a process that was to answer ended after {:.1f} s without one{}", seconds_now() - start,
                    WIFSIGNALED(status) ? fmt::format(" (signal {})", WTERMSIG(status)) : ""));
  if (answer[0] == kAnswer) return answer.substr(1);
  if (answer[0] == kUserError && answer.size() >= 2)
    throw UserError(static_cast<ExitCode>(answer[1]), answer.substr(2));
  throw InternalError(answer.substr(1));
}

}  // namespace snug
