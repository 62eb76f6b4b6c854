#include "program_run.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace snug {
namespace {

namespace fs = std::filesystem;

// The child's side of `Surroundings`; exits with 126 where something of it is refused.
void enter(const Surroundings& surroundings) {
  const auto insist = [](bool done) {
    if (!done) _exit(126);
  };
  if (!surroundings.cgroup.empty()) {
    const int group = ::open((surroundings.cgroup + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
    insist(group >= 0 && ::write(group, "0", 1) == 1);
  }
  if (surroundings.largest_file_bytes >= 0) {
    const auto bytes = static_cast<rlim_t>(surroundings.largest_file_bytes);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
    insist(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  if (!surroundings.huge_pages) insist(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
  if (surroundings.obeys_permissions && geteuid() == 0)
    insist(prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) == 0);
  if (surroundings.no_hang_up) insist(signal(SIGHUP, SIG_IGN) != SIG_ERR);
  if (!surroundings.output.empty()) {
    const int file = ::open(surroundings.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    insist(file >= 0 && dup2(file, STDOUT_FILENO) == STDOUT_FILENO);
  }
  for (const int descriptor : surroundings.closed) insist(::close(descriptor) == 0);
}

}  // namespace

RunningProgram::RunningProgram(const std::vector<std::string>& arguments, const Surroundings& surroundings)
    : deadline_(std::chrono::steady_clock::now() +
                std::chrono::milliseconds(static_cast<int64_t>(1000 * surroundings.timeout_seconds))) {
  std::vector<std::string> words = {SNUG_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  // What it measures of this machine is kept for the runs of this test alone.
  static const TemporaryDirectory cache;
  const std::string cache_path = surroundings.cache_home.empty() ? cache.path().string() : surroundings.cache_home;

  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  process_ = fork();
  if (process_ < 0) throw std::runtime_error("no process");
  if (process_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    unsetenv("GOMP_SPINCOUNT");
    if (surroundings.passive_waits)
      setenv("OMP_WAIT_POLICY", "passive", 1);
    else
      unsetenv("OMP_WAIT_POLICY");
    setenv("XDG_CACHE_HOME", cache_path.c_str(), 1);
    enter(surroundings);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  ::close(out[1]);
  ::close(err[1]);
  out_ = out[0];
  err_ = err[0];
}

std::string RunningProgram::proc_file(const std::string& name) const {
  return file_text("/proc/" + std::to_string(process_) + "/" + name);
}

RunningProgram::~RunningProgram() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  for (int stream : {out_, err_})
    if (stream >= 0) ::close(stream);
}

int RunningProgram::remaining_milliseconds() const {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

bool RunningProgram::pump(int milliseconds) {
  pollfd streams[2] = {{.fd = out_, .events = POLLIN, .revents = 0},
                       {.fd = err_, .events = POLLIN, .revents = 0}};
  if (out_ < 0 && err_ < 0) return false;
  if (poll(streams, 2, milliseconds) <= 0) return true;
  for (int i = 0; i < 2; ++i) {
    if (streams[i].revents == 0) continue;
    char piece[4096];
    const ssize_t count = ::read(streams[i].fd, piece, sizeof piece);
    if (count > 0) {
      (i == 0 ? end_.out : end_.err).append(piece, static_cast<size_t>(count));
    } else if (count == 0) {
      int& stream = i == 0 ? out_ : err_;
      ::close(stream);
      stream = -1;
    }
  }
  return true;
}

bool RunningProgram::wait_for(const std::string& stream, std::string_view text) {
  while (stream.find(text) == std::string::npos)
    if (remaining_milliseconds() == 0 || !pump(std::min(100, remaining_milliseconds()))) return false;
  return true;
}

bool RunningProgram::wait_for_output(std::string_view text) { return wait_for(end_.out, text); }

bool RunningProgram::wait_for_error(std::string_view text) { return wait_for(end_.err, text); }

bool RunningProgram::wait_for_handler(int signal) const {
  while (remaining_milliseconds() > 0) {
    std::ifstream status("/proc/" + std::to_string(process_) + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("SigCgt:") &&
          (std::stoull(line.substr(line.find_first_not_of(" \t", 7)), nullptr, 16) >> (signal - 1) & 1) != 0)
        return true;
    usleep(10'000);
  }
  return false;
}

void RunningProgram::send(int signal) const { ::kill(process_, signal); }

void RunningProgram::close_output() { ::close(std::exchange(out_, -1)); }

ProgramEnd RunningProgram::wait() {
  while (remaining_milliseconds() > 0 && pump(remaining_milliseconds())) {
  }
  if (out_ >= 0 || err_ >= 0) {
    end_.timed_out = true;
    ::kill(process_, SIGKILL);
  }
  int status = 0;
  rusage usage{};
  ::wait4(process_, &status, 0, &usage);
  end_.peak_resident_bytes = int64_t{1024} * usage.ru_maxrss;
  process_ = -1;
  if (WIFEXITED(status)) end_.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end_.signal = WTERMSIG(status);
  return end_;
}

ProgramEnd run_program(const std::vector<std::string>& arguments, const Surroundings& surroundings) {
  return RunningProgram(arguments, surroundings).wait();
}

ProgramEnd expect_done(const std::vector<std::string>& arguments, const Surroundings& surroundings) {
  ProgramEnd end = run_program(arguments, surroundings);
  EXPECT_EQ(end.exit_code, kDone) << "signal " << end.signal << "\n" << end.err << end.out;
  return end;
}

std::string output_of(const std::vector<std::string>& arguments) { return expect_done(arguments).out; }

ProgramEnd expect_refusal(const std::vector<std::string>& arguments, int code,
                          const std::vector<std::string>& fragments, const Surroundings& surroundings) {
  ProgramEnd end = run_program(arguments, surroundings);
  EXPECT_EQ(end.exit_code, code) << "signal " << end.signal << "\n" << end.err << end.out;
  for (const std::string& fragment : fragments) EXPECT_THAT(end.err, testing::HasSubstr(fragment));
  EXPECT_THAT(end.err, testing::HasSubstr("snug: "));
  EXPECT_THAT(end.err, testing::Not(testing::HasSubstr("internal error")));
  return end;
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (fs::temp_directory_path() / "snug-program-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string file_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace snug
