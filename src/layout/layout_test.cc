#include "layout/layout.h"

#include <gmock/gmock.h>

namespace snug::layout {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(MaxLive, NoBuffersNeedNothing) {
  EXPECT_EQ(max_live(Problem{}), Bytes(0));
  EXPECT_EQ(sum_of_sizes(Problem{}), Bytes(0));
}

//   moment   0  1  2  3
//   a (5)    x  x
//   b (3)       x  x
//   c (4)          x  x     live: 5, 8, 7, 4
TEST(MaxLive, IsTheFullestMoment) {
  const Problem problem{.buffers = {{.first = 0, .last = 2, .size = Bytes(5)},
                                    {.first = 1, .last = 3, .size = Bytes(3)},
                                    {.first = 2, .last = 4, .size = Bytes(4)}}};
  EXPECT_EQ(max_live(problem), Bytes(8));
  EXPECT_EQ(sum_of_sizes(problem), Bytes(12));
}

TEST(MaxLive, ABufferThatEndsWhereAnotherBeginsDoesNotMeetIt) {
  const Problem problem{
      .buffers = {{.first = 3, .last = 7, .size = Bytes(10)}, {.first = 7, .last = 8, .size = Bytes(9)}}};
  EXPECT_EQ(max_live(problem), Bytes(10));
}

TEST(MaxLive, CountsSizesRoundedUpToTheAlignment) {
  const Problem problem{.buffers = {{.first = 0, .last = 1, .size = Bytes(1)},   // 64
                                    {.first = 0, .last = 1, .size = Bytes(64)},  // 64
                                    {.first = 0, .last = 1, .size = Bytes(65)},  // 128
                                    {.first = 0, .last = 1, .size = Bytes(0)}},  // 0
                        .alignment = Bytes(64)};
  EXPECT_EQ(max_live(problem), Bytes(256));
  EXPECT_EQ(sum_of_sizes(problem), Bytes(256));
}

TEST(MaxLive, PersistentBuffersLiveAtEveryMoment) {
  const Problem problem{.buffers = {{.size = Bytes(100), .persistent = true},
                                    {.first = 5, .last = 6, .size = Bytes(7)},
                                    {.first = 8, .last = 9, .size = Bytes(9)}}};
  EXPECT_EQ(max_live(problem), Bytes(109));
}

TEST(Verify, RefusesWhatIsOutOfRange) {
  const auto verifying = [](const Problem& problem) { return [problem] { verify(problem); }; };
  const Buffer good{.first = 0, .last = 1, .size = Bytes(1)};
  EXPECT_NO_THROW(verify({.buffers = {good}}));
  EXPECT_THAT(verifying({.buffers = {good, {.first = 4, .last = 4, .size = Bytes(1)}}}),
              ThrowsMessage<InternalError>(HasSubstr("buffer 1 lives in [4, 4), which is empty")));
  EXPECT_THAT(verifying({.buffers = {{.first = 5, .last = 4, .size = Bytes(1)}}}),
              ThrowsMessage<InternalError>(HasSubstr("buffer 0 lives in [5, 4)")));
  EXPECT_THAT(verifying({.buffers = {{.first = -1, .last = 4, .size = Bytes(1)}}}),
              ThrowsMessage<InternalError>(HasSubstr("begins at moment -1")));
  EXPECT_THAT(verifying({.buffers = {{.first = 0, .last = 4, .size = Bytes(-8)}}}),
              ThrowsMessage<InternalError>(HasSubstr("has size -8")));
  EXPECT_THAT(verifying({.buffers = {good}, .alignment = Bytes(0)}),
              ThrowsMessage<InternalError>(HasSubstr("alignment is 0")));
}

TEST(Verify, PersistentBuffersNeedNoMoments) { EXPECT_NO_THROW(verify({.buffers = {{.persistent = true}}})); }

TEST(MaxLive, SizesBeyond64BitsAreReportedNotWrapped) {
  const Bytes half(int64_t{1} << 62);
  const Problem problem{
      .buffers = {{.first = 0, .last = 1, .size = half}, {.first = 0, .last = 1, .size = half}}};
  EXPECT_THROW(max_live(problem), UserError);
}

}  // namespace
}  // namespace snug::layout
