#include "data/stream_windows.h"

#include <gtest/gtest.h>

#include <numeric>

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
  std::vector<std::shared_ptr<const TokenStream>> streams;
  int64_t begin = 0;
  for (int64_t size : sizes) {
    streams.push_back(std::make_shared<Counting>(static_cast<int32_t>(begin), size));
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
TEST(StreamWindows, EveryTargetIsInOneWindow) {
  StreamWindows windows(counting({6, 4}), 4, "test");
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

TEST(StreamWindows, ExactlyFullStream) {
  StreamWindows windows(counting({9}), 4, "test");
  EXPECT_EQ(windows.count(), 2);
  EXPECT_EQ(windows.targets_of(1), 4);
}

TEST(StreamWindows, OneTokenIsRefusedByName) {
  try {
    StreamWindows windows(counting({1}), 4, "tiny.txt");
    FAIL() << "one token has no target";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadFile);
    EXPECT_NE(std::string(error.what()).find("tiny.txt"), std::string::npos);
  }
}

TEST(JoinedStream, APartIsAStreamOfItsOwn) {
  const JoinedStream part = counting({3, 1, 4}).part(2, 6);
  ASSERT_EQ(part.size(), 4);
  std::vector<int32_t> out(4);
  part.read(0, out);
  EXPECT_EQ(out, (std::vector<int32_t>{2, 3, 4, 5}));
  EXPECT_EQ(part.part(1, 3).size(), 2);
  EXPECT_THROW(part.read(1, out), InternalError);
}

}  // namespace
}  // namespace snug
