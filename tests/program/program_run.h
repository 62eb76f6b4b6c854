// tests/program/program_run.h — the built program as a user runs it: a process with a time limit, its output and its end
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace snug {

// Under AddressSanitizer a process takes several times the bytes, and no two of them as many: tests of budgets and peaks of whole
// processes begin with `if (kAddressSanitizer) GTEST_SKIP() << kSanitizerTakesMemory;`.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif
constexpr std::string_view kSanitizerTakesMemory = "AddressSanitizer's own memory comes on top of every plan";

// What surrounds one run. All of it is set in the child between fork and exec.
struct Surroundings {
  double timeout_seconds = 60;
  int64_t largest_file_bytes = -1;  // RLIMIT_FSIZE; −1: none
  bool huge_pages = true;           // false: PR_SET_THP_DISABLE
  bool obeys_permissions = false;   // root gives up its right to write anywhere
  std::string cgroup = {};          // directory of a control group to enter
  std::string cache_home = {};      // XDG_CACHE_HOME; empty: one that the runs of this process share
  std::vector<int> closed = {};     // standard descriptors that it is started without
  std::string output = {};          // file that standard output is written to; empty: kept for the test
  bool no_hang_up = false;          // SIGHUP is ignored, as under nohup
  bool passive_waits = true;        // false: the environment says nothing of how OpenMP's threads wait
};

struct ProgramEnd {
  int exit_code = -1;  // −1 when a signal ended it
  int signal = 0;
  bool timed_out = false;
  int64_t peak_resident_bytes = 0;  // as the kernel tells the parent, not as the program tells of itself
  std::string out, err;
};

// A run that goes on while the test does something to it.
class RunningProgram {
 public:
  explicit RunningProgram(const std::vector<std::string>& arguments, const Surroundings& surroundings = {});
  ~RunningProgram();  // kills what still runs
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  // Waits until standard output holds `text`; false when the program ended or the time was up before.
  bool wait_for_output(std::string_view text);
  // The same of standard error.
  bool wait_for_error(std::string_view text);
  // Waits until the program has a handler for `signal`; false when it has none within the time.
  bool wait_for_handler(int signal) const;
  void send(int signal) const;
  // The kernel's file of this process: "environ", "comm", …
  std::string proc_file(const std::string& name) const;
  // Nobody reads standard output any more.
  void close_output();
  // Waits for the end; kills the program when its time is up.
  ProgramEnd wait();

 private:
  bool wait_for(const std::string& stream, std::string_view text);
  // Reads what is there, for at most `milliseconds`; false at the end of both streams.
  bool pump(int milliseconds);
  int remaining_milliseconds() const;

  pid_t process_ = -1;
  int out_ = -1, err_ = -1;
  std::chrono::steady_clock::time_point deadline_;
  ProgramEnd end_;
};

ProgramEnd run_program(const std::vector<std::string>& arguments, const Surroundings& surroundings = {});

// How a run ends (docs/options.md, "Exit codes").
enum Code { kDone = 0, kUsage = 2, kBadFile = 3, kDoesNotFit = 4, kNonFinite = 5, kIo = 6, kInterrupted = 7 };

// Runs and expects that it is done.
ProgramEnd expect_done(const std::vector<std::string>& arguments, const Surroundings& surroundings = {});
// The same; what it printed.
std::string output_of(const std::vector<std::string>& arguments);
// Runs and expects the refusal: the code, and a message that begins with the program's name and holds every fragment. How it ended.
ProgramEnd expect_refusal(const std::vector<std::string>& arguments, int code,
                          const std::vector<std::string>& fragments, const Surroundings& surroundings = {});

// A new directory that is gone after the test.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string file_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace snug
