// observe/core_share.h — does a run get the cores that its threads could use?
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace snug {

// Clocks of one process, in seconds since any beginning.
struct CoreTimes {
  double wall = 0;
  double running = 0;  // of all its threads together
  double waiting = 0;  // its threads could run and had no core
};
// Of the threads of this process that live now: /proc/self/task/*/schedstat below `root`; none where the kernel does not tell.
std::optional<CoreTimes> core_times(const std::string& root = "");

// Watches a run for windows of a minute. Where its threads could run and had no core for more than a third of the time that they
// wanted one, it says so once. Threads that sleep (for data, for each other, for a disk) want none.
class CoreShareWatch {
 public:
  explicit CoreShareWatch(int threads) : threads_(threads) {}

  // A window has gone by, or none has begun: reading the clocks is worth while.
  bool due(double wall) const { return !told_ && (!begin_ || wall - begin_->wall >= kWindowSeconds); }
  // What to tell, at most once. `now` none: nothing is known, nothing is told.
  std::optional<std::string> look(const std::optional<CoreTimes>& now);

 private:
  static constexpr double kWindowSeconds = 60, kLeastShare = 2.0 / 3;

  int threads_;
  bool told_ = false;
  std::optional<CoreTimes> begin_;
};

}  // namespace snug
