// train/interrupt.h — SIGINT and SIGTERM as a question that the loop asks between two steps
#pragma once

#include <csignal>

namespace snug {

// While one exists, the first SIGINT or SIGTERM is only noted; a second one ends the process at once with exit code
// 128 + signal, as an unhandled signal would look to a shell. At most one at a time, made and destroyed by the main thread: signals to the process
// go there.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The signal that was noted, or 0.
  int requested() const;

 private:
  struct sigaction old_int_, old_term_;
  stack_t old_stack_;
};

}  // namespace snug
