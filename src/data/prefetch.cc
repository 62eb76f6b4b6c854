#include "data/prefetch.h"

#include <csignal>

#include <chrono>
#include <optional>

#include "base/errors.h"

namespace snug {

MicroBatch BatchMaker::make() const { return {.batch = make_batch(schedule_.batch, windows_.length())}; }

void BatchMaker::fill(int64_t update, int64_t step, MicroBatch& made) const {
  made.update = update;
  made.step = step;
  if (step == 0) {
    made.update_targets = 0;
    for (int64_t s = 0; has(update, s); ++s)
      for (int64_t row = 0; row < schedule_.batch; ++row)
        if (const auto window = schedule_.window(update, s, row))
          made.update_targets += windows_.targets_of(*window);
  }
  Batch& batch = made.batch;
  batch.windows = batch.supervised_tokens = 0;
  for (int64_t row = 0; row < schedule_.batch; ++row) {
    windows_.fill_row(batch, row, schedule_.window(update, step, row));
    uint32_t* random = batch.randomness.data() + 4 * row;
    random[0] = static_cast<uint32_t>(seed_);
    random[1] = static_cast<uint32_t>(seed_ >> 32);
    random[2] = static_cast<uint32_t>(update);
    random[3] = static_cast<uint32_t>(step * schedule_.batch + row);
  }
}

Prefetcher::Prefetcher(const BatchMaker& maker, int64_t first_update, int64_t end_update)
    : maker_(maker), batches_{maker.make(), maker.make()} {
  // Signals are for the thread that trains.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this, first_update, end_update] { run(first_update, end_update); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Prefetcher::run(int64_t update, int64_t end_update) {
  int64_t update_targets = 0;
  for (int64_t step = 0; update < end_update;) {
    MicroBatch* batch = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        return stops_ || made_ - taken_ + (taken_ > 0 ? 1 : 0) < static_cast<int64_t>(batches_.size());
      });
      if (stops_) return;
      batch = &batches_[static_cast<size_t>(made_) % batches_.size()];
    }
    std::exception_ptr failure;
    try {
      maker_.fill(update, step, *batch);
      if (step == 0) update_targets = batch->update_targets;
      batch->update_targets = update_targets;
    } catch (...) {
      failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      failure_ = failure;
      if (!failure) ++made_;
    }
    changed_.notify_all();
    if (failure) return;
    if (maker_.has(update, step + 1)) {
      ++step;
    } else {
      step = 0;
      ++update;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

const MicroBatch& Prefetcher::next() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  const bool is_there = made_ > taken_;
  if (!is_there) changed_.wait(lock, [&] { return made_ > taken_ || failure_ || ended_ || stops_; });
  if (!is_there)
    waited_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (made_ == taken_ && failure_) std::rethrow_exception(failure_);
  require(made_ > taken_, "a micro-batch behind the last one");
  const MicroBatch& batch = batches_[static_cast<size_t>(taken_++) % batches_.size()];
  lock.unlock();
  changed_.notify_all();
  return batch;
}

void Prefetcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace snug
