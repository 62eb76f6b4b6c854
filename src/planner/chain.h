// planner/chain.h — which mode each block of a chain takes, so that every moment fits a budget and the extra
// seconds are fewest
//
// Plain data, no graphs. The blocks 0 … L-1 run forward, then a head, then the backward of L-1 … 0. A mode
// treats a run of `span` neighbouring blocks in one way. What its forward saves is held until the run's
// backward is over, so the moments of a run that begins at block f hold
//
//   bytes saved by the runs before f  +  what the mode itself holds at that moment  +  what lives there
//   anyway
//
// and a plan (a list of runs that covers the chain) fits a budget if no moment of a run and not the head's
// holds more. This is the exact form: early blocks, under which little is saved, can use modes with a large
// working set.
//
// A mode may send bytes over a link to another tier (none of the graph's does so yet). What is sent and not yet
// over, the backlog, is held as well: a run that begins with backlog q holds q more at each of its moments, which
// count what the run itself sends. The link moves some bytes during each block's forward; so the next run begins
// with max(0, q + sent - moved), and the head holds the last backlog. The backward is the mirror image: it takes
// longer than the forward, so what went over during a block's forward is back when its backward begins.
//
// Method: dynamic programme from the last block to the first. For position f the least seconds of the blocks
//         f … L-1 are a step function of the allowance, the bytes that the runs before f leave:
//           seconds_f(a) = min over modes with need <= a of  seconds + seconds_{f+span}(a - saved)
//         which knows no budget: it is worked out once. Of a short chain every step is kept, and its plans are the optimal ones.
//         Of a long one the function is tabulated (chain_grid.h), and plans are walked: from the first block on, with the exact
//         bytes that are left, each time the run of which run and table promise the fewest seconds. Rounding so never adds up
//         over the blocks, every plan fits, and the smallest budget is exact. A budget is answered by the fastest plan that fits of all
//         that were walked so far, with that budget and with the next smaller ones of a fixed list: of budgets asked in rising
//         order none gets a slower plan than the one before.
//         O(blocks · modes · points).
// Bound:  the larger of two. (1) The table with the least value of each of its intervals. (2) The Lagrangian dual (chain_dual.h),
//         which is tight where the chain is long and (1) loses by rounding.
// Source: the peak form is memory_planning's chain programme; choosing by a table of what follows is dynamic programming's rollout
//         (Bertsekas, Dynamic Programming and Optimal Control, vol. 1).
// See:    chain_test.cc, where both are held against exhaustive search
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace snug::planner {

// The most bytes that live while a block's forward and backward run.
struct Moments {
  Bytes forward, backward;
  Bytes norm = {};  // while the backward runs for the norm alone, where it runs twice (Chain::backward_twice)
  friend bool operator==(const Moments&, const Moments&) = default;
};

// One way to treat a run of neighbouring blocks.
struct Mode {
  Bytes saved;                   // held from the run's forward to the end of its backward
  double seconds = 0;            // more than keeping everything
  std::vector<Moments> moments;  // per block of the run: over what earlier runs saved, own saved and link
                                 // bytes included; its size is the span, >= 1
  Bytes link = {};               // sent over the link in the run's forward and back in its backward
  int32_t span() const { return static_cast<int32_t>(moments.size()); }
  friend bool operator==(const Mode&, const Mode&) = default;
};

struct ChainBlock {
  int32_t list = 0;  // index of Chain::lists: the modes of the runs that may begin here
  Moments fixed;     // what lives anyway: state, inputs, gradients made so far
  Bytes link = {};   // what the link moves while the block's forward runs
  friend bool operator==(const ChainBlock&, const ChainBlock&) = default;
};

struct Chain {
  std::vector<Mode> modes;
  std::vector<std::vector<int32_t>> lists;  // indices of modes; identical blocks share a list
  std::vector<ChainBlock> blocks;           // at least one
  Bytes head;                               // the most that lives in the head besides what the blocks saved
  Bytes floor{0};  // the most that lives before the first block and after the last backward
  // The backward of all blocks runs first for the norm alone, then again: what any block saved is held during
  // the first one of every block. Not with modes that use a link.
  bool backward_twice = false;
  double step_seconds = 0;  // of the step with everything kept
  friend bool operator==(const Chain&, const Chain&) = default;
};

struct ChainPlan {
  std::vector<int32_t> modes;  // of the runs, first block first: indices of Chain::modes
  double seconds = 0;          // sum over the runs
  Bytes needed;                // the smallest budget it fits
};

// Bytes and seconds of a list of runs. Throws InternalError if they do not cover the chain exactly or use a
// mode where it may not begin.
ChainPlan evaluate(const Chain& chain, std::span<const int32_t> modes);

// Adds a plan to plans of rising bytes and falling seconds, unless one of them needs no more and is as fast; those that need as much and are
// no faster go.
void keep_plan(std::vector<ChainPlan>& plans, ChainPlan plan);
// Of such plans the last that fits; null if none does.
const ChainPlan* fastest_within(std::span<const ChainPlan> plans, Bytes budget);

// The least allowance at which the moments of a run of `mode` from `position` fit, without a backlog.
Bytes need_at(const Chain& chain, const Mode& mode, size_t position);
// What a run of `mode` from `position` holds at most in its backward for the norm besides what is saved of
// all blocks.
Bytes norm_excess(const Chain& chain, const Mode& mode, size_t position);

struct ChainRuns;
class ChainGrid;

// One backward pass; two_passes.h solves chains of either sort. Not for several threads at a time: questions fill in what answers them.
class ChainSolver {
 public:
  // `known` plans take part, so no answer is slower than one of them that fits. With `excess_limit` the chain is a level of
  // two_passes.h: modes of a larger norm_excess() may not begin, and the head needs that much at least (in the plans' bytes, too).
  // Throws InternalError where the chain is malformed or no list of runs covers it.
  explicit ChainSolver(std::shared_ptr<const Chain> chain, std::span<const std::vector<int32_t>> known = {},
                       std::optional<Bytes> excess_limit = {});
  explicit ChainSolver(Chain chain, std::span<const std::vector<int32_t>> known = {})
      : ChainSolver(std::make_shared<const Chain>(std::move(chain)), known) {}
  ~ChainSolver();
  ChainSolver(ChainSolver&&) noexcept;
  ChainSolver& operator=(ChainSolver&&) noexcept;

  const Chain& chain() const { return *chain_; }
  // Exact, unless backlogs were rounded: a smaller budget fits no plan.
  Bytes smallest_budget() const { return smallest_; }
  // The fastest plan found that fits; none if and only if `budget` is below the smallest.
  std::optional<ChainPlan> best(Bytes budget) const;
  // No plan that fits `budget` (at least the smallest) has fewer extra seconds.
  double bound_seconds(Bytes budget) const;
  // Whether best() is the optimum for every budget: every step was kept, no backlog rounded.
  bool exact() const { return exact_; }
  // Each budget from which on the best plan is faster, and its seconds: falling as budgets rise.
  struct Step {
    Bytes budget;
    double seconds = 0;
  };
  std::vector<Step> frontier() const;

 private:
  ChainPlan evaluated(std::span<const int32_t> modes) const;
  bool find_every_plan();
  void tabulate();
  size_t points() const;
  Bytes walked_budget(size_t walk) const;
  std::optional<std::vector<int32_t>> walk(Bytes budget) const;
  void walk_and_keep(Bytes budget) const;
  void walk_near(Bytes budget) const;

  std::shared_ptr<const Chain> chain_;
  std::unique_ptr<const ChainRuns> runs_;
  Bytes smallest_, fastest_;  // the smallest budget of any plan, and of the fastest
  bool exact_ = false;
  std::unique_ptr<const ChainGrid> grid_;  // unless exact
  // Filled in by what is asked:
  mutable std::vector<ChainPlan> plans_;  // bytes needed rising, seconds falling
  mutable std::vector<bool> walked_;
  mutable std::unique_ptr<const ChainGrid> bounds_;
};

}  // namespace snug::planner
