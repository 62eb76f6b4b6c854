// data/prefetch.h — the batches of a run in their order, made by a thread of its own before the step needs them
//
// Two batches: while a step reads one, the thread fills the other. What is in a batch is a function of its place alone, so that it does not
// matter who makes it when. All buffers are there from the start; neither side allocates. A thread that does not answer is left behind with
// what it reads (base/worker.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/worker.h"
#include "data/windows.h"

namespace snug {

// One micro-step's host data, and its place in the run.
struct MicroBatch {
  int64_t update = 0, step = 0;
  int64_t update_targets = 0;  // supervised ones of the whole update
  Batch batch;
};

// Makes the micro-batches of a run. One thread at a time: copies read the same windows.
class BatchMaker {
 public:
  // `windows` is read when batches are made.
  BatchMaker(std::shared_ptr<Windows> windows, const Schedule& schedule, uint64_t seed)
      : windows_(std::move(windows)), schedule_(schedule), seed_(seed) {}

  // Buffers for one.
  MicroBatch make() const;
  // Fills `made` with micro-step `step` of update `update`. Throws as Windows::fill_row.
  void fill(int64_t update, int64_t step, MicroBatch& made) const;
  // Whether there is a window in it: an epoch may end before the last micro-step of its last update. Micro-step 0 always has one.
  bool has(int64_t update, int64_t step) const {
    return step < schedule_.accumulation && schedule_.window(update, step, 0).has_value();
  }
  // As Windows::source.
  const std::string& source() const { return windows_->source(); }

 private:
  std::shared_ptr<Windows> windows_;
  Schedule schedule_;
  uint64_t seed_;
};

class Prefetcher {
 public:
  // Begins with update `first_update`; none from `end_update` on is made. The windows of `maker` belong to the prefetcher's thread until
  // stop(). A batch that takes `limit_seconds` is waited for no longer.
  Prefetcher(const BatchMaker& maker, int64_t first_update, int64_t end_update,
             double limit_seconds = kAnswerSeconds);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next micro-batch that has a window, valid until the next call. Throws what making it threw, and UserError(kIo) where the thread
  // does not answer.
  const MicroBatch& next();
  // Seconds that next() has waited in all.
  double waited_seconds() const { return waited_seconds_; }
  // Ends the thread; there is no next() afterwards. Throws UserError(kIo) where it does not answer.
  void stop();

 private:
  class Shared;

  std::shared_ptr<Shared> shared_;
  double limit_seconds_, waited_seconds_ = 0;
  bool answers_ = true;
  Worker worker_;
};

}  // namespace snug
