#include "program.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "base/errors.h"
#include "base/testing.h"

namespace snug {

ProgramResult run_program(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  // Everything that allocates happens before the fork.
  std::vector<std::string> words = {SNUG_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // What it measures of this machine is kept for the runs of this test alone.
  static const TemporaryDirectory cache;
  const std::string& cache_path = cache.path();
  const std::string procs = options.cgroup + "/cgroup.procs";
  std::array<int, 2> pipe_ends{};
  require(::pipe2(pipe_ends.data(), O_CLOEXEC) == 0, "pipe");

  const pid_t child = ::fork();
  require(child >= 0, "fork");
  if (child == 0) {
    if (!options.huge_pages) ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    if (!options.cgroup.empty()) {
      const int file = ::open(procs.c_str(), O_WRONLY);
      if (file < 0 || ::write(file, "0", 1) != 1) ::_exit(125);
    }
    ::setenv("XDG_CACHE_HOME", cache_path.c_str(), 1);
    ::dup2(pipe_ends[1], STDOUT_FILENO);
    ::dup2(pipe_ends[1], STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(126);
  }
  ::close(pipe_ends[1]);
  ProgramResult result;
  std::array<char, 4096> piece{};
  for (ssize_t got = 0; (got = ::read(pipe_ends[0], piece.data(), piece.size())) > 0;)
    result.output.append(piece.data(), static_cast<size_t>(got));
  ::close(pipe_ends[0]);
  int status = 0;
  require(::waitpid(child, &status, 0) == child, "waitpid");
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace snug
