#include "data/prefetch.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/allocator.h"
#include "base/count_new.h"
#include "base/testing.h"

namespace snug {
namespace {

// Window i has i % 3 + 1 targets; all its tokens are i.
class Numbered : public Windows {
 public:
  explicit Numbered(int64_t count) : count_(count) {}
  const std::string& source() const override { return source_; }
  int64_t count() const override { return count_; }
  int64_t length() const override { return 4; }
  int64_t tokens() const override { return 4 * count_; }
  int64_t targets() const override { return 2 * count_; }
  int64_t targets_of(int64_t window) const override { return window % 3 + 1; }
  void fill_row(Batch& batch, int64_t row, std::optional<int64_t> window) override {
    ++rows;
    if (window && *window == bad) throw_user(ExitCode::kBadFile, "window {} is bad", *window);
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (window && *window == hanging) comes_back.get_future().wait();
    for (size_t i = 0; i < 4; ++i)
      batch.tokens[static_cast<size_t>(row) * 4 + i] = static_cast<int32_t>(window.value_or(-1));
    if (!window) return;
    ++batch.windows;
    batch.supervised_tokens += targets_of(*window);
  }
  std::atomic<int64_t> rows = 0;
  int64_t bad = -1, hanging = -1;
  std::promise<void> comes_back;  // from the window that hangs
  bool slow = false;

 private:
  int64_t count_;
  std::string source_ = "numbers.txt";
};

// 11 windows, 2 × 3 an update: epochs of 2 updates, the second with 5 windows in 3 micro-steps; with 2 × 4 the second has 3 in 2.
TEST(Prefetcher, GivesTheBatchesOfTheScheduleInTheirOrder) {
  for (const int64_t accumulation : {3, 4}) {
    const auto windows = std::make_shared<Numbered>(11);
    const Schedule schedule{
        .windows = 11, .batch = 2, .accumulation = accumulation, .shuffle = true, .seed = 9};
    const BatchMaker maker(windows, schedule, (uint64_t{5} << 32) + 7);
    Prefetcher prefetcher(maker, 1, 6);
    MicroBatch plain = maker.make();
    for (int64_t update = 1; update < 6; ++update) {
      int64_t targets = 0, given = 0, seen = 0;
      for (int64_t step = 0; maker.has(update, step); ++step) {
        const MicroBatch& made = prefetcher.next();
        EXPECT_EQ(made.update, update);
        EXPECT_EQ(made.step, step);
        for (int64_t row = 0; row < 2; ++row) {
          const auto window = schedule.window(update, step, row);
          EXPECT_EQ(made.batch.tokens[static_cast<size_t>(row) * 4], window.value_or(-1));
          if (window) targets += windows->targets_of(*window);
          EXPECT_EQ(made.batch.randomness[static_cast<size_t>(row) * 4], 7u);
          EXPECT_EQ(made.batch.randomness[static_cast<size_t>(row) * 4 + 1], 5u);
          EXPECT_EQ(made.batch.randomness[static_cast<size_t>(row) * 4 + 2], static_cast<uint32_t>(update));
          EXPECT_EQ(made.batch.randomness[static_cast<size_t>(row) * 4 + 3],
                    static_cast<uint32_t>(step * 2 + row));
        }
        given = made.update_targets;
        seen += made.batch.supervised_tokens;
      }
      EXPECT_EQ(given, targets);
      EXPECT_EQ(seen, targets);
    }
    EXPECT_THROW(prefetcher.next(), InternalError);
  }
}

TEST(Prefetcher, MakesOneBatchAheadAndAllocatesNothing) {
  const auto windows = std::make_shared<Numbered>(100);
  const BatchMaker maker(windows, {.windows = 100, .batch = 2, .shuffle = true}, 1);
  Prefetcher prefetcher(maker, 0, 50);
  prefetcher.next();
  const auto made = [&](int64_t rows) {
    for (int i = 0; i < 2000 && windows->rows < rows; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return windows->rows.load();
  };
  EXPECT_EQ(made(4), 4) << "one in use, one ahead";
  const int64_t before = allocations();
  for (int i = 0; i < 30; ++i) prefetcher.next();
  EXPECT_EQ(allocations(), before);
  EXPECT_EQ(made(64), 64);
}

TEST(Prefetcher, TellsHowLongItWaited) {
  const auto windows = std::make_shared<Numbered>(10);
  windows->slow = true;
  const BatchMaker maker(windows, {.windows = 10, .batch = 2}, 1);
  Prefetcher prefetcher(maker, 0, 5);
  for (int i = 0; i < 5; ++i) prefetcher.next();
  EXPECT_GT(prefetcher.waited_seconds(), 0.1);  // 5 × 2 rows of 20 ms
}

TEST(Prefetcher, AnErrorComesWhereItsBatchWouldAndStopIsAlwaysPossible) {
  const auto windows = std::make_shared<Numbered>(10);
  windows->bad = 5;
  const BatchMaker maker(windows, {.windows = 10, .batch = 2, .shuffle = false}, 1);
  Prefetcher prefetcher(maker, 0, 5);
  EXPECT_EQ(prefetcher.next().update, 0);
  EXPECT_EQ(prefetcher.next().update, 1);
  EXPECT_THROW(prefetcher.next(), UserError);
  EXPECT_THROW(prefetcher.next(), UserError);
  prefetcher.stop();
  windows->bad = -1;
  { const Prefetcher unused(maker, 0, 5); }
  MicroBatch batch = maker.make();
  maker.fill(2, 0, batch);
  EXPECT_EQ(batch.batch.tokens[4], 5);
}

// The batches of an evaluation are those that the caller would make one after the other; the last one has 1 window of 3.
TEST(Prefetcher, ChangesNoBatch) {
  const auto windows = std::make_shared<Numbered>(10);
  const Schedule schedule{.windows = 10, .batch = 3, .shuffle = false};
  const BatchMaker maker(windows, schedule, 7);
  Prefetcher prefetcher(maker, 0, schedule.updates_per_epoch());
  Batch plain = make_batch(3, windows->length());
  for (int64_t first = 0; first < 10; first += 3) {
    plain.windows = plain.supervised_tokens = 0;
    for (int64_t row = 0; row < 3; ++row)
      windows->fill_row(plain, row, first + row < 10 ? std::optional(first + row) : std::nullopt);
    const Batch& made = prefetcher.next().batch;
    EXPECT_EQ(made.tokens, plain.tokens);
    EXPECT_EQ(made.targets, plain.targets);
    EXPECT_EQ(made.windows, plain.windows);
    EXPECT_EQ(made.supervised_tokens, plain.supervised_tokens);
  }
  EXPECT_THROW(prefetcher.next(), InternalError);
}

// A read that never returns: told after the limit, and the run is not held up at its end either. What the thread reads outlives the run.
TEST(Prefetcher, AThreadThatDoesNotAnswerIsLeftBehind) {
  std::weak_ptr<Numbered> watched;
  std::promise<void>* comes_back = nullptr;
  {
    const auto windows = std::make_shared<Numbered>(10);
    watched = windows;
    comes_back = &windows->comes_back;
    windows->hanging = 2;
    const BatchMaker maker(windows, {.windows = 10, .batch = 2, .shuffle = false}, 1);
    Prefetcher prefetcher(maker, 0, 5, 0.05);
    EXPECT_EQ(prefetcher.next().update, 0);
    for (int i = 0; i < 2; ++i)
      expect_user_error(ExitCode::kIo, "numbers.txt: the next batch was not there within 0 s",
                        [&] { prefetcher.next(); });
    expect_user_error(ExitCode::kIo, "does not answer", [&] { prefetcher.stop(); });
  }
  EXPECT_FALSE(watched.expired());
  comes_back->set_value();
  while (!watched.expired()) std::this_thread::yield();
}

}  // namespace
}  // namespace snug
