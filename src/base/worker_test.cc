#include "base/worker.h"

#include <atomic>
#include <csignal>
#include <future>
#include <memory>

#include "base/testing.h"

namespace snug {
namespace {

constexpr double kLong = 60;  // never reached

TEST(Worker, IsWaitedForAndFreesWhatItOwns) {
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = owned;
  std::atomic<int> seen = 0;
  Worker worker([owned = std::move(owned), &seen] { seen = *owned; });
  EXPECT_TRUE(worker.end_within(kLong));
  EXPECT_EQ(seen, 1);
  EXPECT_TRUE(watched.expired());
  EXPECT_TRUE(worker.end_within(0));
  {
    const Worker unasked([&] { seen = 2; });
  }
  EXPECT_EQ(seen, 2);
}

TEST(Worker, WhoDoesNotEndIsLeftBehindWithWhatItOwns) {
  std::promise<void> comes_back, is_gone;
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = owned;
  {
    Worker worker([owned = std::move(owned), &comes_back, &is_gone] {
      comes_back.get_future().wait();
      is_gone.set_value_at_thread_exit();
    });
    EXPECT_FALSE(worker.end_within(0.01));
    EXPECT_FALSE(worker.end_within(0));
  }
  EXPECT_FALSE(watched.expired());
  comes_back.set_value();
  is_gone.get_future().wait();
  EXPECT_TRUE(watched.expired());
}

TEST(Worker, TakesNoSignals) {
  sigset_t blocked;
  Worker worker([&] { pthread_sigmask(SIG_BLOCK, nullptr, &blocked); });
  ASSERT_TRUE(worker.end_within(kLong));
  for (const int signal : {SIGINT, SIGTERM, SIGALRM}) EXPECT_EQ(sigismember(&blocked, signal), 1) << signal;
  sigset_t own;
  pthread_sigmask(SIG_BLOCK, nullptr, &own);
  EXPECT_EQ(sigismember(&own, SIGINT), 0);
}

}  // namespace
}  // namespace snug
