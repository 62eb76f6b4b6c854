#include "layout/check.h"

#include <gmock/gmock.h>

namespace snug::layout {
namespace {

using testing::HasSubstr;

//   offset
//    16 | . b b
//     8 | . b b      8 bytes a row; a in [0, 2), b in [1, 3), c in [2, 3)
//     0 | a a c
//       +-------
//         0 1 2
Problem problem() {
  return {.buffers = {{.first = 0, .last = 2, .size = Bytes(8)},
                      {.first = 1, .last = 3, .size = Bytes(16)},
                      {.first = 2, .last = 3, .size = Bytes(8)}},
          .alignment = Bytes(8)};
}

Solution solution(int64_t a, int64_t b, int64_t c, int64_t peak = 24) {
  return {.offsets = {Bytes(a), Bytes(b), Bytes(c)}, .peak = Bytes(peak)};
}

TEST(Check, AcceptsAGoodSolution) {
  const Check result = check(problem(), solution(0, 8, 0));
  EXPECT_TRUE(result) << result.message;
  EXPECT_EQ(result.message, "good");
  EXPECT_TRUE(check(Problem{}, Solution{}));
}

TEST(Check, NamesEveryBrokenRule) {
  const auto verdict = [](const Solution& tried) { return check(problem(), tried).verdict; };
  EXPECT_EQ(verdict({.offsets = {Bytes(0)}, .peak = Bytes(8)}), Verdict::kWrongCount);
  EXPECT_EQ(verdict(solution(0, 8, -8)), Verdict::kNegativeOffset);
  EXPECT_EQ(verdict(solution(0, 8, 4)), Verdict::kMisaligned);
  EXPECT_EQ(verdict(solution(0, 8, 0, 23)), Verdict::kAbovePeak);
  EXPECT_EQ(verdict(solution(0, 16, 0)), Verdict::kAbovePeak);
  EXPECT_EQ(verdict(solution(0, 8, 8)), Verdict::kOverlap);   // c begins where b does
  EXPECT_EQ(verdict(solution(16, 8, 0)), Verdict::kOverlap);  // a lies within b's upper half
  EXPECT_EQ(verdict(solution(16, 0, 16)), Verdict::kGood);    // a and c may lie alike: a ends where c begins
}

TEST(Check, SaysWhatItSaw) {
  EXPECT_THAT(
      check(problem(), solution(0, 8, 16)).message,
      HasSubstr("buffer 1 (16 bytes at offset 8, alive in moments [1, 3)) overlaps buffer 2 (8 bytes at "
                "offset 16, alive in moments [2, 3))"));
  EXPECT_THAT(check(problem(), solution(0, 9, 0)).message, HasSubstr("is not aligned to 8 bytes"));
  EXPECT_EQ(name(Verdict::kOverlap), "overlap");
  EXPECT_EQ(name(Verdict::kGood), "good");
}

TEST(Check, PersistentBuffersMeetEverything) {
  Problem two{
      .buffers = {{.size = Bytes(4), .persistent = true}, {.first = 50, .last = 51, .size = Bytes(4)}}};
  const Solution stacked{.offsets = {Bytes(0), Bytes(4)}, .peak = Bytes(8)};
  const Solution same{.offsets = {Bytes(0), Bytes(0)}, .peak = Bytes(8)};
  EXPECT_EQ(check(two, stacked).verdict, Verdict::kGood);
  EXPECT_EQ(check(two, same).verdict, Verdict::kOverlap);
  two.buffers[1].persistent = true;
  EXPECT_EQ(check(two, same).verdict, Verdict::kOverlap);
  two.buffers[0] = {.first = 0, .last = 1, .size = Bytes(4)};
  two.buffers[1] = {.first = 50, .last = 51, .size = Bytes(4)};
  EXPECT_EQ(check(two, same).verdict, Verdict::kGood);
}

TEST(Check, BuffersOfZeroBytesMeetNobody) {
  const Problem two{
      .buffers = {{.first = 0, .last = 9, .size = Bytes(8)}, {.first = 0, .last = 9, .size = Bytes(0)}}};
  for (const int64_t offset : {0, 4, 8})
    EXPECT_TRUE(check(two, {.offsets = {Bytes(0), Bytes(offset)}, .peak = Bytes(8)})) << offset;
}

}  // namespace
}  // namespace snug::layout
