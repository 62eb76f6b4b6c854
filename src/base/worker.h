// base/worker.h — a thread that is waited for with a limit
//
// A thread that reads files may never come back: a disk that hangs, a network mount that is gone. Nothing can end it from outside, and who
// waits for it hangs, too. So every wait for one has a limit, and a worker that has not ended by then is left behind together with what its
// work owns. Threads that only compute wait for nobody and need no limit.
#pragma once

#include <functional>
#include <memory>
#include <thread>

namespace snug {

// How long something may stay silent before it is given up: a thread that reads, a process that has a file. Far above what slow disks and
// the longest rows take.
constexpr double kAnswerSeconds = 600;

class Worker {
 public:
  // Runs `work` on a thread of its own; it throws nothing and owns whatever it refers to. Signals to the process do not go there.
  explicit Worker(std::function<void()> work);
  // Waits without a limit: end_within() comes first where the work may never end.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Waits for its end. False: it has not ended within `seconds` and is left behind.
  bool end_within(double seconds);

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace snug
