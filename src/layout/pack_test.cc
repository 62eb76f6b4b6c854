#include "layout/pack.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "layout/check.h"
#include "layout/picture.h"
#include "layout/text.h"

namespace snug::layout {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

void expect_good(const Problem& problem, const Solution& solution) {
  const Check result = check(problem, solution);
  EXPECT_TRUE(result) << result.message << "\n" << print_csv(problem);
  EXPECT_GE(solution.peak, max_live(problem)) << print_csv(problem);
  EXPECT_LE(solution.peak, sum_of_sizes(problem)) << print_csv(problem);
}

TEST(Pack, NothingNeedsNothing) {
  const Solution solution = pack(Problem{});
  EXPECT_TRUE(solution.offsets.empty());
  EXPECT_EQ(solution.peak, Bytes(0));
}

TEST(Pack, BuffersThatNeverMeetShareTheirBytes) {
  const Problem problem{.buffers = {{.first = 0, .last = 1, .size = Bytes(10)},
                                    {.first = 1, .last = 2, .size = Bytes(30)},
                                    {.first = 2, .last = 3, .size = Bytes(20)}}};
  const Solution solution = pack(problem);
  EXPECT_EQ(solution.offsets, (std::vector{Bytes(0), Bytes(0), Bytes(0)}));
  EXPECT_EQ(solution.peak, Bytes(30));
}

// Nested lifetimes, as of a forward and its backward: c, the largest, is placed first, then a, then b above a.
TEST(Pack, NestedLifetimesReachTheBound) {
  const Problem problem{.buffers = {{.first = 0, .last = 3, .size = Bytes(2)},  // a
                                    {.first = 1, .last = 2, .size = Bytes(2)},  // b
                                    {.first = 3, .last = 4, .size = Bytes(3)},  // c
                                    {.size = Bytes(1), .persistent = true}}};
  const Solution solution = pack(problem);
  EXPECT_EQ(draw(problem, solution, 40, 10),
            "4 B |.b..\n"
            "3 B |.b.c\n"
            "2 B |aaac\n"
            "1 B |aaac\n"
            "0 B |####\n"
            "    +----\n"
            "     0..4\n");
  EXPECT_EQ(solution.peak, Bytes(5));
  EXPECT_EQ(solution.order, "size-down,first-up");
}

TEST(Pack, PersistentBuffersLieSideBySideAtTheBottom) {
  const Problem problem{.buffers = {{.first = 0, .last = 5, .size = Bytes(70)},
                                    {.size = Bytes(10), .persistent = true},
                                    {.first = 5, .last = 9, .size = Bytes(70)},
                                    {.size = Bytes(65), .persistent = true}},
                        .alignment = Bytes(64)};
  const Solution solution = pack(problem);
  // 10 takes 64, 65 takes 128, and above them 70 takes 128 in turn.
  EXPECT_EQ(solution.offsets, (std::vector{Bytes(192), Bytes(0), Bytes(192), Bytes(64)}));
  EXPECT_EQ(solution.peak, Bytes(320));
}

TEST(Pack, ABufferOfTheWholeTimelineLiesRightAbovePersistentOnes) {
  const Problem problem{.buffers = {{.first = 0, .last = 2, .size = Bytes(100)},
                                    {.first = 0, .last = 9, .size = Bytes(3)},
                                    {.first = 2, .last = 9, .size = Bytes(50)},
                                    {.size = Bytes(5), .persistent = true}}};
  EXPECT_EQ(pack(problem).offsets, (std::vector{Bytes(8), Bytes(5), Bytes(8), Bytes(0)}));
}

TEST(Pack, ZeroBytesTakeNoPlace) {
  const Problem problem{.buffers = {{.first = 0, .last = 9, .size = Bytes(0)},
                                    {.first = 0, .last = 9, .size = Bytes(8)},
                                    {.size = Bytes(0), .persistent = true}},
                        .alignment = Bytes(64)};
  const Solution solution = pack(problem);
  EXPECT_EQ(solution.offsets, (std::vector{Bytes(0), Bytes(0), Bytes(0)}));
  EXPECT_EQ(solution.peak, Bytes(64));
}

TEST(Pack, RefusesAnInvalidProblem) {
  EXPECT_THROW(pack({.buffers = {{.first = 1, .last = 1, .size = Bytes(1)}}}), InternalError);
  EXPECT_THROW(pack({.buffers = {{.first = 0, .last = 1, .size = Bytes(-1)}}}), InternalError);
  EXPECT_THROW(pack({.alignment = Bytes(0)}), InternalError);
  EXPECT_THAT([] { pack_in_order(Problem{}, "by-colour"); },
              ThrowsMessage<InternalError>(HasSubstr("unknown order \"by-colour\"")));
}

Problem random_problem(std::mt19937_64& random, size_t count, int64_t moments, int64_t sizes) {
  Problem problem;
  for (size_t i = 0; i < count; ++i) {
    const int64_t first = static_cast<int64_t>(random() % static_cast<uint64_t>(moments));
    const int64_t length = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(moments));
    problem.buffers.push_back(
        {.first = first,
         .last = first + length,
         .size = Bytes(static_cast<int64_t>(random() % static_cast<uint64_t>(sizes + 1))),
         .persistent = random() % 10 == 0});
  }
  return problem;
}

// First fit straight from the definition, over the buffers in this order; the peak.
Bytes plain_first_fit(const Problem& problem, const std::vector<size_t>& order) {
  std::vector<size_t> placed;
  std::vector<Bytes> offsets(problem.buffers.size());
  Bytes peak;
  for (const size_t i : order) {
    const Buffer& buffer = problem.buffers[i];
    Bytes offset;
    for (bool moved = true; moved;) {
      moved = false;
      for (const size_t j : placed) {
        const Buffer& other = problem.buffers[j];
        const bool meet =
            buffer.persistent || other.persistent || (buffer.first < other.last && other.first < buffer.last);
        if (meet && offset < offsets[j] + other.size && offsets[j] < offset + buffer.size) {
          offset = offsets[j] + other.size;
          moved = true;
        }
      }
    }
    offsets[i] = offset;
    placed.push_back(i);
    peak = std::max(peak, offset + buffer.size);
  }
  return peak;
}

// The least peak of all: a solution is at least as high as first fit in the order of its offsets.
Bytes optimum(const Problem& problem) {
  std::vector<size_t> order(problem.buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  Bytes best(std::numeric_limits<int64_t>::max());
  do best = std::min(best, plain_first_fit(problem, order));
  while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(Pack, SmallProblemsReachTheBruteForceOptimum) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const Problem problem = random_problem(random, 1 + random() % 7, 6, 9);
    const Bytes best = optimum(problem);
    const Solution solution = pack(problem);
    expect_good(problem, solution);
    EXPECT_EQ(solution.peak, best) << print_csv(problem, solution);
  }
}

TEST(Pack, RandomProblemsAreValidAndNoSingleOrderIsBetter) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 60; ++round) {
    Problem problem =
        random_problem(random, 1 + random() % 60, 1 + static_cast<int64_t>(random() % 40), 1000);
    problem.alignment = Bytes(int64_t{1} << (random() % 8));
    const PackOptions portfolio_only{.search_work = 0};
    const Solution portfolio = pack(problem, portfolio_only);
    const Solution searched = pack(problem, {.search_work = 100'000});
    expect_good(problem, portfolio);
    expect_good(problem, searched);
    EXPECT_LE(searched.peak, portfolio.peak);
    Bytes best_single(std::numeric_limits<int64_t>::max());
    for (const std::string& order : order_names()) {
      const Solution single = pack_in_order(problem, order);
      // What finds no place between two sides lies beyond them, so that one such order alone may need more than all sizes.
      EXPECT_TRUE(check(problem, single)) << order;
      EXPECT_GE(single.peak, max_live(problem));
      EXPECT_EQ(single.order, order);
      best_single = std::min(best_single, single.peak);
    }
    EXPECT_EQ(portfolio.peak, best_single);
    EXPECT_EQ(pack_in_order(problem, portfolio.order), portfolio);
  }
}

TEST(Pack, TheSameProblemHasTheSameSolution) {
  std::mt19937_64 random(3);
  const Problem problem = random_problem(random, 300, 80, 5000);
  const PackOptions options{.search_work = 2'000'000};
  const Solution solution = pack(problem, options);
  EXPECT_EQ(pack(problem, options), solution);
  EXPECT_GT(solution.peak, max_live(problem)) << "a problem on which the search does not end early";
}

// No byte of moment 2 may stay free, so c, which meets a (4 bytes), must lie lowest or on top of both b and d. No
// order of the portfolio does that.
TEST(Pack, TheSqueakyWheelFindsWhatNoSortDoes) {
  const Problem problem{.buffers = {{.first = 0, .last = 2, .size = Bytes(4)},    // a
                                    {.first = 2, .last = 3, .size = Bytes(3)},    // b
                                    {.first = 1, .last = 3, .size = Bytes(2)},    // c
                                    {.first = 2, .last = 3, .size = Bytes(2)}}};  // d
  EXPECT_EQ(max_live(problem), Bytes(7));
  for (const std::string& order : order_names())
    EXPECT_GE(pack_in_order(problem, order).peak, Bytes(8)) << order;
  EXPECT_EQ(pack(problem, {.search_work = 0}).peak, Bytes(8));
  const Solution solution = pack(problem);
  EXPECT_EQ(solution.peak, Bytes(7));
  EXPECT_THAT(solution.order, testing::EndsWith(",squeaky-wheel"));
  EXPECT_EQ(draw(problem, solution, 40, 10),
            "6 B |.cc\n"
            "5 B |.cc\n"
            "4 B |..b\n"
            "3 B |aab\n"
            "2 B |aab\n"
            "1 B |aad\n"
            "0 B |aad\n"
            "    +---\n"
            "     0..3\n");
}

// Moment 2 is the peak. a and b stay until long after it, so they lie at the bottom, first-born lowest; c and d
// hang from the top, the longer-lived higher; e, which begins when c is gone, hangs in c's place.
TEST(Pack, TwoSidedOrdersKeepWhatStaysApart) {
  const Problem problem{.buffers = {{.first = 1, .last = 9, .size = Bytes(2)},    // a
                                    {.first = 2, .last = 9, .size = Bytes(2)},    // b
                                    {.first = 0, .last = 4, .size = Bytes(2)},    // c
                                    {.first = 2, .last = 3, .size = Bytes(1)},    // d
                                    {.first = 4, .last = 5, .size = Bytes(3)}}};  // e
  const Solution solution = pack_in_order(problem, "two-sided,at-peak(last-down),lifetime-down,first-down");
  expect_good(problem, solution);
  EXPECT_EQ(solution.offsets, (std::vector{Bytes(0), Bytes(2), Bytes(5), Bytes(4), Bytes(4)}));
  EXPECT_EQ(solution.peak, max_live(problem));
}

// a and b are saved by a forward that ends at moment 5 with the scratch t; the gradients g and h are made afterwards, while b and
// then a are gone, and outlive both: they grow from the bottom, though neither lives at the peak, and what was saved hangs from the
// top, what dies last highest.
TEST(Pack, WhatIsMadeBehindThePeakAndStaysGrowsFromTheBottom) {
  const Problem problem{.buffers = {{.first = 0, .last = 10, .size = Bytes(2)},     // a
                                    {.first = 1, .last = 8, .size = Bytes(2)},      // b
                                    {.first = 5, .last = 6, .size = Bytes(4)},      // t
                                    {.first = 7, .last = 14, .size = Bytes(3)},     // g
                                    {.first = 9, .last = 13, .size = Bytes(3)},     // h
                                    {.first = 11, .last = 12, .size = Bytes(1)}}};  // of the next phase
  const Solution solution =
      pack_in_order(problem, "two-sided-at-joint,at-turn(last-down),lifetime-down,first-down");
  expect_good(problem, solution);
  EXPECT_EQ(solution.offsets, (std::vector{Bytes(6), Bytes(4), Bytes(0), Bytes(0), Bytes(3), Bytes(6)}));
  EXPECT_EQ(solution.peak, max_live(problem));
}

TEST(Pack, TheSqueakyWheelImprovesOnThePortfolio) {
  std::mt19937_64 random(4);
  int improved = 0;
  for (int round = 0; round < 10; ++round) {
    const Problem problem = random_problem(random, 80, 30, 1000);
    const Solution portfolio = pack(problem, {.search_work = 0});
    const Solution searched = pack(problem, {.search_work = 1'000'000});
    EXPECT_EQ(searched.peak < portfolio.peak, searched.order.ends_with(",squeaky-wheel"));
    improved += searched.peak < portfolio.peak;
  }
  EXPECT_GE(improved, 5);
}

// A training step's lifetimes: every block saves tensors in the forward that die, last block first, in the
// backward; both directions make short-lived tensors on the way. A recomputed block saves only its input and
// makes the rest anew. Weight gradients live from the first micro-step's backward to the end.
struct Step {
  int blocks = 12;
  int64_t tokens = 512;
  int64_t width = 64;
  int micro_steps = 1;
  int recompute_every = 0;  // blocks 0, n, 2n, … recompute; 0: none does
};

Problem training_step(const Step& step) {
  Problem problem{.alignment = Bytes(64)};
  int64_t moment = 0;
  const int64_t hidden = step.tokens * step.width * 4;
  const auto saved_sizes =
      std::vector<int64_t>{hidden, step.tokens * 4, 3 * hidden, hidden,    step.tokens * 8 * 4,
                           hidden, step.tokens * 4, 4 * hidden, 4 * hidden};
  std::vector<size_t> gradients;
  for (int block = 0; block < step.blocks; ++block) {
    for (const int64_t factor : {3, 1, 4, 4})
      problem.buffers.push_back({.size = Bytes(factor * step.width * step.width * 4), .persistent = true});
  }
  // A tensor born now; its end is set when the moment comes.
  const auto birth = [&](int64_t bytes) {
    problem.buffers.push_back({.first = moment, .last = -1, .size = Bytes(bytes)});
    return problem.buffers.size() - 1;
  };
  const auto death = [&](size_t buffer) { problem.buffers[buffer].last = moment + 1; };
  for (int micro_step = 0; micro_step < step.micro_steps; ++micro_step) {
    const auto recomputed = [&](int block) {
      return step.recompute_every > 0 && block % step.recompute_every == 0;
    };
    const auto forward = [&](std::vector<size_t>& saved) {
      for (const int64_t bytes : saved_sizes) {
        const size_t scratch = birth(bytes / 2 + 4096);
        saved.push_back(birth(bytes));
        death(scratch);
        ++moment;
      }
    };
    std::vector<std::vector<size_t>> saved(static_cast<size_t>(step.blocks));
    std::vector<size_t> inputs;
    for (int block = 0; block < step.blocks; ++block) {
      inputs.push_back(birth(hidden));
      ++moment;
      std::vector<size_t>& mine = saved[static_cast<size_t>(block)];
      forward(mine);
      if (!recomputed(block)) continue;
      for (const size_t buffer : mine) problem.buffers[buffer].last = moment;
      mine.clear();
    }
    size_t d_output = birth(hidden);
    for (int block = step.blocks - 1; block >= 0; --block) {
      std::vector<size_t>& mine = saved[static_cast<size_t>(block)];
      if (mine.empty()) forward(mine);
      if (micro_step == 0)
        for (const int64_t factor : {3, 1, 4, 4})
          gradients.push_back(birth(factor * step.width * step.width * 4));
      for (; !mine.empty(); mine.pop_back()) {
        const size_t d_input = birth(problem.buffers[mine.back()].size.value);
        death(mine.back());
        death(d_output);
        d_output = d_input;
        ++moment;
      }
      death(inputs[static_cast<size_t>(block)]);
    }
    death(d_output);
    ++moment;
  }
  for (const size_t gradient : gradients) problem.buffers[gradient].last = moment;
  return problem;
}

TEST(Pack, TrainingStepsReachTheBoundExactly) {
  for (const int blocks : {1, 2, 12, 48})
    for (const int64_t width : {64, 768})
      for (const int micro_steps : {1, 4})
        for (const int recompute_every : {0, 1, 2}) {
          const Problem problem = training_step({blocks, 512, width, micro_steps, recompute_every});
          const Solution solution = pack(problem);
          EXPECT_EQ(solution.peak, max_live(problem))
              << blocks << " blocks, width " << width << ", " << micro_steps
              << " micro-steps, recompute every " << recompute_every << ": " << problem.buffers.size()
              << " buffers, won by " << solution.order;
          EXPECT_TRUE(check(problem, solution));
        }
}

}  // namespace
}  // namespace snug::layout
