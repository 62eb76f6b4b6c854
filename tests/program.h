// tests/program.h — runs the program snug as a user does: a process of its own, its exit code and what it printed
#pragma once

#include <string>
#include <vector>

namespace snug {

struct ProgramResult {
  int exit_code = -1;  // 128 + the signal's number for a process that a signal ended
  std::string output;  // standard output and standard error together, in the order in which they came
};

struct ProgramOptions {
  bool huge_pages = true;   // false: transparent huge pages are off for the process
  std::string cgroup = {};  // directory of a control group that the process joins first; empty: none
};

// Runs `snug ARGUMENTS`. Its OpenMP threads wait passively (tests/CMakeLists.txt).
ProgramResult run_program(const std::vector<std::string>& arguments, const ProgramOptions& options = {});

}  // namespace snug
