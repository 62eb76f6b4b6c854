#include "data/windows.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/errors.h"

namespace snug {
namespace {

// Tokens begin, begin+1, …
class Counting : public TokenStream {
 public:
  Counting(int32_t begin, int64_t size) : begin_(begin), size_(size) {}
  const std::string& path() const override { return path_; }
  int64_t size() const override { return size_; }
  void read(int64_t first, std::span<int32_t> out) const override {
    ASSERT_LE(first + static_cast<int64_t>(out.size()), size_);
    std::iota(out.begin(), out.end(), begin_ + static_cast<int32_t>(first));
  }

 private:
  std::string path_ = "counting";
  int32_t begin_;
  int64_t size_;
};

JoinedStream counting(std::vector<int64_t> sizes) {
  std::vector<std::unique_ptr<TokenStream>> streams;
  int64_t begin = 0;
  for (int64_t size : sizes) {
    streams.push_back(std::make_unique<Counting>(static_cast<int32_t>(begin), size));
    begin += size;
  }
  return JoinedStream(std::move(streams));
}

TEST(JoinedStream, ReadsAcrossFiles) {
  JoinedStream stream = counting({3, 1, 4});
  EXPECT_EQ(stream.size(), 8);
  std::vector<int32_t> out(6);
  stream.read(1, out);
  EXPECT_EQ(out, (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_THROW(stream.read(3, out), InternalError);
}

// 10 tokens, L = 4: 9 targets in 3 windows of 4, 4 and 1.
TEST(Windows, EveryTargetIsInOneWindow) {
  Windows windows(counting({6, 4}), 4, "test");
  ASSERT_EQ(windows.count(), 3);
  Batch batch = make_batch(4, 4);
  for (int64_t row = 0; row < 3; ++row) windows.fill_row(batch, row, row);
  windows.fill_row(batch, 3, std::nullopt);
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.targets,
            (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, -100, -100, -100, -100, -100, -100, -100}));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(batch.supervised_tokens, 9);
  EXPECT_EQ(batch.windows, 3);
}

TEST(Windows, ExactlyFullStream) {
  Windows windows(counting({9}), 4, "test");
  EXPECT_EQ(windows.count(), 2);
  EXPECT_EQ(windows.targets_of(1), 4);
}

TEST(Windows, OneTokenIsRefusedByName) {
  try {
    Windows windows(counting({1}), 4, "tiny.txt");
    FAIL() << "one token has no target";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadFile);
    EXPECT_NE(std::string(error.what()).find("tiny.txt"), std::string::npos);
  }
}

TEST(Schedule, OrderDoesNotDependOnBatchSize) {
  const auto order = [](int64_t batch, int64_t accumulation) {
    const Schedule schedule{
        .windows = 21, .batch = batch, .accumulation = accumulation, .shuffle = true, .seed = 5};
    std::vector<int64_t> windows;
    for (int64_t update = 0; update < 2 * schedule.updates_per_epoch(); ++update)
      for (int64_t step = 0; step < accumulation; ++step)
        for (int64_t row = 0; row < batch; ++row)
          if (const auto window = schedule.window(update, step, row)) windows.push_back(*window);
    return windows;
  };
  EXPECT_EQ(order(1, 1), order(4, 2));
  EXPECT_EQ(order(8, 1), order(4, 2));
  const std::vector<int64_t> both = order(4, 2);
  ASSERT_EQ(both.size(), 42u);
  EXPECT_EQ(std::set<int64_t>(both.begin(), both.begin() + 21).size(), 21u);
  EXPECT_NE(std::vector<int64_t>(both.begin(), both.begin() + 21),
            std::vector<int64_t>(both.begin() + 21, both.end()));
}

TEST(Schedule, LastUpdateOfAnEpochIsPadded) {
  const Schedule schedule{.windows = 5, .batch = 2, .accumulation = 2, .shuffle = false, .seed = 0};
  EXPECT_EQ(schedule.updates_per_epoch(), 2);
  EXPECT_EQ(schedule.window(1, 0, 0), 4);
  EXPECT_EQ(schedule.window(1, 0, 1), std::nullopt);
  EXPECT_EQ(schedule.window(1, 1, 0), std::nullopt);
  EXPECT_EQ(schedule.window(2, 0, 0), 0);  // the next epoch begins at an update
}

}  // namespace
}  // namespace snug
