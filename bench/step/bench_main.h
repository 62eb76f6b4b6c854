// bench/step/bench_main.h — how every benchmark ends: its errors as words and exit codes, as `snug` has them
#pragma once

#include <cstdio>
#include <exception>
#include <string>

#include "base/errors.h"

namespace snug::bench {

// What `run` returns, or the exit code of what it threw, with a line on standard error that begins with `name`.
inline int run_bench(const std::string& name, int (*run)(int, char**), int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return static_cast<int>(ExitCode::kInternal);
  }
}

}  // namespace snug::bench
