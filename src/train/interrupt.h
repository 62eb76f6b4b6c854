// train/interrupt.h — SIGINT, SIGTERM and SIGHUP as a question that the loop asks between two steps
#pragma once

#include <csignal>

namespace snug {

// While one exists, the first SIGINT, SIGTERM or SIGHUP is only noted; a second one ends the process at once with exit code
// 128 + signal, as an unhandled signal would look to a shell. A second SIGHUP does not: a terminal that is closed sends one, and so does its shell.
// A SIGHUP that was ignored before (nohup) stays so. At most one at a time, made and destroyed by the main thread: signals to the process go
// there.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The signal that was noted, or 0.
  int requested() const;

 private:
  struct sigaction old_int_, old_term_, old_hup_;
  stack_t old_stack_;
};

}  // namespace snug
