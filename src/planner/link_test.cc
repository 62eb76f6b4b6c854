// A second tier behind a link, as a resource of the chain: blocks of 15 tensors with five options each, two of which use
// the link, on a described accelerator. The graph has no pass yet that sends anything; the solver is ready for one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "planner/chain.h"
#include "planner/random_chain_test.h"

namespace snug::planner {
namespace {

// NVIDIA H200 with shares of its data sheet's rates that kernels reach, and a host behind PCIe.
constexpr double kFlops = 989e12 * 0.65, kTraffic = 4.8e12 * 0.8, kLink = 50e9;
constexpr int64_t kTokens = 8192;

struct Tensor {
  int64_t bytes;
  double again_seconds;  // of computing it once more
};

double product_seconds(double in, double out) { return 2.0 * kTokens * in * out / kFlops; }
double traffic_seconds(double bytes) { return bytes / kTraffic; }

// What a Llama block of this width holds for its backward in bf16, from its first norm to the product of its gate.
std::vector<Tensor> llama_block(int64_t hidden, int64_t inner, int64_t kv, int64_t heads) {
  const auto h = static_cast<double>(hidden), f = static_cast<double>(inner), k = static_cast<double>(kv);
  const auto of = [](int64_t width) { return 2 * kTokens * width; };
  const auto pass = [](int64_t bytes) { return traffic_seconds(2.0 * static_cast<double>(bytes)); };
  const double attention = 2.0 * kTokens * kTokens * h / kFlops;  // causal: half of all pairs
  return {
      {of(hidden), pass(of(hidden))},                                      // norm
      {of(hidden), product_seconds(h, h)},                                 // q
      {of(kv), product_seconds(h, k)},                                     // k
      {of(kv), product_seconds(h, k)},                                     // v
      {of(hidden), pass(of(hidden))},                                      // q, turned
      {of(kv), pass(of(kv))},                                              // k, turned
      {of(hidden), attention},                                             // attention
      {4 * kTokens * heads, attention},                                    // log-sum-exp
      {of(hidden), product_seconds(h, h)},                                 // output projection
      {of(hidden), pass(of(hidden))},                                      // residual
      {of(hidden), pass(of(hidden))},                                      // second norm
      {of(inner), product_seconds(h, f)},                                  // gate
      {of(inner), product_seconds(h, f)},                                  // up
      {of(inner), pass(of(inner))},                                        // silu(gate)
      {of(inner), traffic_seconds(3.0 * static_cast<double>(of(inner)))},  // silu(gate) · up
  };
}

struct Way {
  int64_t saved = 0, link = 0, transient = 0;
  double seconds = 0;
};

// Keep; compute again; send to the other tier; hold in 8 bits (a scale for each 128); both of the latter.
std::array<Way, 5> options_of(const Tensor& tensor) {
  const int64_t codes = tensor.bytes * 33 / 64;
  const double coding = 2 * traffic_seconds(1.5 * static_cast<double>(tensor.bytes));
  return {{{tensor.bytes, 0, 0, 0},
           {0, 0, tensor.bytes, tensor.again_seconds},
           {0, tensor.bytes, tensor.bytes, 0},
           {codes, 0, tensor.bytes, coding},
           {0, codes, tensor.bytes, coding}}};
}

bool at_least_as_good(const Way& a, const Way& b) {
  return a.saved <= b.saved && a.link <= b.link && a.transient <= b.transient && a.seconds <= b.seconds;
}

std::vector<Way> front_of(std::vector<Way> all) {
  std::sort(all.begin(), all.end(), [](const Way& a, const Way& b) {
    return std::tuple(a.saved, a.seconds, a.link, a.transient) <
           std::tuple(b.saved, b.seconds, b.link, b.transient);
  });
  std::vector<Way> front;
  for (const Way& each : all)
    if (std::none_of(front.begin(), front.end(),
                     [&](const Way& other) { return at_least_as_good(other, each); }))
      front.push_back(each);
  return front;
}

// All ways to treat a block, merged tensor by tensor. Of those that differ by little one stays, unless `exact`; what
// uses no link stays whole, for a last block may have nothing else.
std::vector<Way> ways_of(const std::vector<Tensor>& tensors, bool exact) {
  int64_t bytes = 0;
  double seconds = 0;
  for (const Tensor& tensor : tensors) {
    bytes += tensor.bytes;
    seconds += tensor.again_seconds;
  }
  std::vector<Way> ways = {{}};
  for (const Tensor& tensor : tensors) {
    std::vector<Way> merged;
    for (const Way& way : ways)
      for (const Way& option : options_of(tensor))
        merged.push_back({way.saved + option.saved, way.link + option.link,
                          std::max(way.transient, option.transient), way.seconds + option.seconds});
    if (!exact) {
      std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, Way> cells;
      std::vector<Way> stay;
      for (const Way& way : merged) {
        if (way.link == 0) {
          stay.push_back(way);
          continue;
        }
        const auto cell =
            std::tuple(way.saved / (bytes / 100), static_cast<int64_t>(way.seconds / (seconds / 400)),
                       way.link / (bytes / 32), way.transient);
        const auto [found, is_new] = cells.try_emplace(cell, way);
        if (!is_new && way.saved < found->second.saved) found->second = way;
      }
      for (const auto& [cell, way] : cells) stay.push_back(way);
      merged = std::move(stay);
    }
    ways = front_of(std::move(merged));
  }
  return ways;
}

// At most about `most`: the best at each of a grid of prices of a held and of a sent byte, and an even sample.
std::vector<Way> thinned(const std::vector<Way>& ways, size_t most) {
  if (ways.size() <= most) return ways;
  std::vector<bool> stays(ways.size(), false);
  double seconds = 0, saved = 0;
  for (const Way& way : ways) {
    seconds = std::max(seconds, way.seconds);
    saved = std::max(saved, static_cast<double>(way.saved));
  }
  for (int held = 0; held < 24; ++held)
    for (int sent = -1; sent < 12; ++sent) {
      const double byte_price = seconds / saved * std::pow(1.6, held - 16);
      const double link_price = sent < 0 ? 0 : byte_price * std::pow(0.6, sent);
      const auto cost = [&](const Way& way) {
        return way.seconds + byte_price * static_cast<double>(way.saved) +
               link_price * static_cast<double>(way.link);
      };
      stays[static_cast<size_t>(
          std::min_element(ways.begin(), ways.end(),
                           [&](const Way& a, const Way& b) { return cost(a) < cost(b); }) -
          ways.begin())] = true;
    }
  for (size_t index = 0; index < most; ++index) stays[index * ways.size() / most] = true;
  std::vector<Way> some;
  for (size_t index = 0; index < ways.size(); ++index)
    if (stays[index]) some.push_back(ways[index]);
  return some;
}

Chain chain_of(const std::vector<Way>& ways, size_t blocks, const std::vector<Tensor>& tensors,
               double link_bandwidth) {
  double forward = 0;
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) {
    forward += tensor.again_seconds;
    bytes += tensor.bytes;
  }
  Chain chain;
  chain.lists.resize(1);
  for (const Way& way : ways) {
    const Bytes held{way.saved + way.link};
    chain.lists[0].push_back(static_cast<int32_t>(chain.modes.size()));
    chain.modes.push_back({.saved = Bytes(way.saved),
                           .seconds = way.seconds,
                           .moments = {{held + Bytes(bytes / 4), held + Bytes(bytes / 3 + way.transient)}},
                           .link = Bytes(way.link)});
  }
  chain.blocks.assign(
      blocks, {.list = 0, .fixed = {}, .link = Bytes(static_cast<int64_t>(forward * link_bandwidth))});
  chain.head = Bytes(bytes / 2);
  chain.step_seconds = 3 * forward * static_cast<double>(blocks);
  return chain;
}

Bytes sent_by(const Chain& chain, const ChainPlan& plan) {
  Bytes sent;
  for (int32_t mode : plan.modes) sent += chain.modes[static_cast<size_t>(mode)].link;
  return sent;
}

// Two tensors of five options each, in three blocks: every plan can be looked at.
TEST(Link, EqualsExhaustiveSearch) {
  const std::vector<Tensor> block = llama_block(1024, 2816, 256, 8);
  for (const auto& [first, second] : {std::pair<size_t, size_t>{1, 11}, {6, 14}, {4, 12}}) {
    const std::vector<Tensor> two = {block[first], block[second]};
    for (double bandwidth : {0.0, kLink, 8 * kLink}) {
      SCOPED_TRACE(bandwidth);
      expect_equal_to_exhaustive_search<ChainSolver>(chain_of(ways_of(two, true), 3, two, bandwidth));
    }
  }
}

TEST(Link, HelpsMoreTheFasterItIs) {
  const std::vector<Tensor> block = llama_block(1024, 2816, 256, 8);
  const std::vector<Tensor> three = {block[1], block[6], block[14]};
  const std::vector<Way> ways = ways_of(three, true);
  const ChainSolver none(chain_of(ways, 3, three, 0));
  ASSERT_TRUE(none.exact());
  const Bytes low = none.smallest_budget(), high = none.frontier().back().budget;
  for (int step = 0; step <= 20; ++step) {
    const Bytes budget = low + Bytes((high - low).value / 20 * step);
    double last = std::numeric_limits<double>::infinity();
    for (double bandwidth : {0.0, kLink / 4, kLink, 4 * kLink, 64 * kLink}) {
      const ChainSolver solver(chain_of(ways, 3, three, bandwidth));
      ASSERT_TRUE(solver.exact());
      const double seconds = solver.best(budget)->seconds;
      EXPECT_LE(seconds, last) << bandwidth;
      last = seconds;
    }
  }
}

TEST(Link, OneHundredBlocksOfFifteenTensorsAreNearTheirBound) {
  const std::vector<Tensor> block = llama_block(8192, 28672, 1024, 64);
  ASSERT_EQ(block.size(), 15u);
  const std::vector<Way> all = ways_of(block, false);
  const std::vector<Way> ways = thinned(all, 96);
  const auto start = std::chrono::steady_clock::now();
  const ChainSolver solver(chain_of(ways, 100, block, kLink));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Chain& chain = solver.chain();
  const ChainSolver without(chain_of(ways, 100, block, 0));

  const Bytes low = solver.smallest_budget(), high = solver.frontier().back().budget;
  double last = std::numeric_limits<double>::infinity();
  for (int step = 0; step <= 100; ++step) {
    const ChainPlan plan = solver.best(low + Bytes((high - low).value / 100 * step)).value();
    EXPECT_LE(plan.needed, low + Bytes((high - low).value / 100 * step));
    EXPECT_LE(plan.seconds, last);
    last = plan.seconds;
  }
  Bytes keep_all;
  for (const Tensor& tensor : block) keep_all += Bytes(100 * tensor.bytes);
  std::cout << all.size() << " ways of a block, " << ways.size() << " modes; 100 blocks solved in " << seconds
            << " s\n";
  for (int percent : {60, 40, 30, 20, 12}) {
    const Bytes budget{keep_all.value / 100 * percent};
    const auto begin = std::chrono::steady_clock::now();
    const ChainPlan plan = solver.best(budget).value();
    const double bound = solver.bound_seconds(budget);
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double gap = (plan.seconds - bound) / (chain.step_seconds + plan.seconds);
    const std::optional<ChainPlan> kept = without.best(budget);
    EXPECT_LE(bound, plan.seconds);
    EXPECT_LE(gap, 0.01);
    EXPECT_GT(sent_by(chain, plan), Bytes(0));
    if (kept) {
      EXPECT_LE(plan.seconds, kept->seconds);
    }
    std::cout << percent << " %: +" << 100 * plan.seconds / chain.step_seconds << " % (without a link +"
              << (kept ? 100 * kept->seconds / chain.step_seconds : 0) << " %), gap " << 100 * gap
              << " %, sent "
              << 100 * static_cast<double>(sent_by(chain, plan).value) / static_cast<double>(keep_all.value)
              << " % in " << took << " s\n";
  }
}

}  // namespace
}  // namespace snug::planner
