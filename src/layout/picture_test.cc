#include "layout/picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "layout/pack.h"

namespace snug::layout {
namespace {

TEST(Picture, ShowsEveryByteAndMomentWhereThereIsRoom) {
  const Problem problem{.buffers = {{.first = 0, .last = 2, .size = Bytes(2)},
                                    {.first = 1, .last = 4, .size = Bytes(1)},
                                    {.first = 2, .last = 4, .size = Bytes(2)},
                                    {.size = Bytes(1), .persistent = true}}};
  const Solution solution{.offsets = {Bytes(0), Bytes(2), Bytes(0), Bytes(3)}, .peak = Bytes(4)};
  EXPECT_EQ(draw(problem, solution, 40, 10),
            "3 B |####\n"
            "2 B |.bbb\n"
            "1 B |aacc\n"
            "0 B |aacc\n"
            "    +----\n"
            "     0..4\n");
}

// Cells of two moments and 100 bytes. In the last column a and b have one moment each: below they share the
// cell and the first shows, above half of it is free and b shows. c has a quarter of its cells: free shows.
TEST(Picture, ACellShowsWhoHasMostOfIt) {
  const Problem problem{.buffers = {{.first = 0, .last = 33, .size = Bytes(100)},
                                    {.first = 33, .last = 34, .size = Bytes(200)},
                                    {.first = 0, .last = 4, .size = Bytes(25)}}};
  const Solution solution{.offsets = {Bytes(0), Bytes(0), Bytes(100)}, .peak = Bytes(200)};
  EXPECT_EQ(draw(problem, solution, 24, 4),
            "100 B |................b\n"
            "  0 B |aaaaaaaaaaaaaaaaa\n"
            "      +-----------------\n"
            "       0..34\n");
}

TEST(Picture, AnEmptyProblemHasOneFreeCell) {
  EXPECT_EQ(draw(Problem{}, Solution{}, 40, 10),
            "0 B |.\n"
            "    +-\n"
            "     0..1\n");
}

TEST(Picture, StaysWithinItsSize) {
  Problem problem;
  for (int64_t i = 0; i < 200; ++i)
    problem.buffers.push_back(
        {.first = i * 1'000'003, .last = i * 1'000'003 + 9'999'999'999, .size = Bytes(1 << 20)});
  const Solution solution = pack(problem);
  for (const int width : {24, 80}) {
    for (const int height : {4, 25}) {
      std::istringstream picture(draw(problem, solution, width, height));
      std::string line;
      int lines = 0;
      for (; std::getline(picture, line); ++lines) {
        if (lines + 1 == height) continue;  // the moments
        EXPECT_EQ(line.size(), static_cast<size_t>(width)) << line;
      }
      EXPECT_EQ(lines, height);
    }
  }
}

TEST(Picture, RefusesASolutionOfAnotherProblem) {
  EXPECT_THROW(draw(Problem{.buffers = {{.first = 0, .last = 1, .size = Bytes(1)}}}, Solution{}, 40, 10),
               InternalError);
}

}  // namespace
}  // namespace snug::layout
