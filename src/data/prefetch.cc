#include "data/prefetch.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>

#include "base/errors.h"

namespace snug {

MicroBatch BatchMaker::make() const { return {.batch = make_batch(schedule_.batch, windows_->length())}; }

void BatchMaker::fill(int64_t update, int64_t step, MicroBatch& made) const {
  made.update = update;
  made.step = step;
  if (step == 0) {
    made.update_targets = 0;
    for (int64_t s = 0; has(update, s); ++s)
      for (int64_t row = 0; row < schedule_.batch; ++row)
        if (const auto window = schedule_.window(update, s, row))
          made.update_targets += windows_->targets_of(*window);
  }
  Batch& batch = made.batch;
  batch.windows = batch.supervised_tokens = 0;
  for (int64_t row = 0; row < schedule_.batch; ++row) {
    windows_->fill_row(batch, row, schedule_.window(update, step, row));
    uint32_t* random = batch.randomness.data() + 4 * row;
    random[0] = static_cast<uint32_t>(seed_);
    random[1] = static_cast<uint32_t>(seed_ >> 32);
    random[2] = static_cast<uint32_t>(update);
    random[3] = static_cast<uint32_t>(step * schedule_.batch + row);
  }
}

// What both sides see: it lives as long as the thread does.
class Prefetcher::Shared {
 public:
  explicit Shared(BatchMaker made_by) : maker(std::move(made_by)), batches{maker.make(), maker.make()} {}

  // The thread's work.
  void run(int64_t update, int64_t end_update);

  [[noreturn]] void throw_silent(double seconds) {
    throw_user(
        ExitCode::kIo,
        "{}: the next batch was not there within {:.0f} s: the thread that reads the data does not answer; "
        "expected the disk or network mount of this file and of --data_cache to be there",
        maker.source(), seconds);
  }

  const BatchMaker maker;
  std::array<MicroBatch, 2> batches;
  std::mutex mutex;
  std::condition_variable changed;
  int64_t made = 0, taken = 0;  // batches since the beginning; the one taken last is in use
  bool stops = false, has_ended = false;
  std::exception_ptr failure;
};

void Prefetcher::Shared::run(int64_t update, int64_t end_update) {
  int64_t update_targets = 0;
  for (int64_t step = 0; update < end_update;) {
    MicroBatch* batch = nullptr;
    {
      // Without a limit: the other side may compute for hours, and ends this wait before it goes.
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] {
        return stops || made - taken + (taken > 0 ? 1 : 0) < static_cast<int64_t>(batches.size());
      });
      if (stops) return;
      batch = &batches[static_cast<size_t>(made) % batches.size()];
    }
    std::exception_ptr thrown;
    try {
      maker.fill(update, step, *batch);
      if (step == 0) update_targets = batch->update_targets;
      batch->update_targets = update_targets;
    } catch (...) {
      thrown = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex);
      failure = thrown;
      if (!thrown) ++made;
    }
    changed.notify_all();
    if (thrown) return;
    if (maker.has(update, step + 1)) {
      ++step;
    } else {
      step = 0;
      ++update;
    }
  }
  {
    const std::lock_guard lock(mutex);
    has_ended = true;
  }
  changed.notify_all();
}

Prefetcher::Prefetcher(const BatchMaker& maker, int64_t first_update, int64_t end_update,
                       double limit_seconds)
    : shared_(std::make_shared<Shared>(maker)),
      limit_seconds_(limit_seconds),
      worker_([shared = shared_, first_update, end_update] { shared->run(first_update, end_update); }) {}

Prefetcher::~Prefetcher() {
  try {
    stop();
  } catch (const UserError&) {
    // Left behind; a failure that led here is already on its way.
  }
}

const MicroBatch& Prefetcher::next() {
  const auto begin = std::chrono::steady_clock::now();
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  if (shared.made == shared.taken) {
    answers_ = shared.changed.wait_for(lock, std::chrono::duration<double>(limit_seconds_), [&] {
      return shared.made > shared.taken || shared.failure || shared.has_ended || shared.stops;
    });
    waited_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!answers_) shared.throw_silent(limit_seconds_);
  }
  if (shared.made == shared.taken && shared.failure) std::rethrow_exception(shared.failure);
  require(shared.made > shared.taken, "a micro-batch behind the last one");
  const MicroBatch& batch = shared.batches[static_cast<size_t>(shared.taken++) % shared.batches.size()];
  lock.unlock();
  shared.changed.notify_all();
  return batch;
}

void Prefetcher::stop() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stops = true;
  }
  shared_->changed.notify_all();
  // Who has not answered yet is not waited for once more.
  answers_ = worker_.end_within(answers_ ? limit_seconds_ : 0);
  if (!answers_) shared_->throw_silent(limit_seconds_);
}

}  // namespace snug
