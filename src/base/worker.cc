#include "base/worker.h"

#include <csignal>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace snug {

struct Worker::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool has_ended = false;
};

Worker::Worker(std::function<void()> work) : state_(std::make_shared<State>()) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([state = state_, work = std::move(work)]() mutable {
      work();
      work = nullptr;  // what it owns is gone before its end is told
      {
        const std::lock_guard lock(state->mutex);
        state->has_ended = true;
      }
      state->changed.notify_all();
    });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Worker::~Worker() {
  if (thread_.joinable()) thread_.join();
}

bool Worker::end_within(double seconds) {
  bool has_ended = false;
  {
    std::unique_lock lock(state_->mutex);
    has_ended = state_->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                                         [&] { return state_->has_ended; });
  }
  if (!thread_.joinable()) return has_ended;
  if (has_ended)
    thread_.join();
  else
    thread_.detach();
  return has_ended;
}

}  // namespace snug
