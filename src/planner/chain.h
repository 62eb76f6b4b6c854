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
//         which knows no budget: one pass answers every budget, and is monotone in it by construction. The
//         functions are kept as exact Pareto fronts (bytes are never rounded); a front of more points than
//         its limit keeps one point in each of as many equal intervals of the allowance (the fastest) and its
//         smallest point. So plans are always feasible, and optimal as long as no front was thinned. Fronts
//         rather than a grid of granules, because rounding up at each of 100 blocks costs about 50 granules
//         of the budget. O(blocks · modes · limit), where blocks · modes · limit is at most about 4e7.
// Bound:  the larger of two. (1) The same programme with an interval's points replaced by their best corner
//         (least bytes, least seconds) and backlogs rounded down: every plan is dominated by such a point. (2) The
//         Lagrangian dual with a price for each block's moments and the head's, transients included, and one for
//         the backlog before each block, by subgradient steps of
//         Polyak's length. It is tight where the chain is long and (1) loses by thinning.
// Source: the peak form is memory_planning's chain programme; Polyak, Minimization of unsmooth functionals
//         (1969), eq. 4, for the step length; Everett, Generalized Lagrange multiplier method (1963), for
//         the bound.
// See:    chain_test.cc, where both are held against exhaustive search
#pragma once

#include <cstdint>
#include <optional>
#include <span>
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
};

struct ChainPlan {
  std::vector<int32_t> modes;  // of the runs, first block first: indices of Chain::modes
  double seconds = 0;          // sum over the runs
  Bytes needed;                // the smallest budget it fits
};

// Bytes and seconds of a list of runs. Throws InternalError if they do not cover the chain exactly or use a
// mode where it may not begin.
ChainPlan evaluate(const Chain& chain, std::span<const int32_t> modes);

// The least allowance at which the moments of a run of `mode` from `position` fit, without a backlog.
Bytes need_at(const Chain& chain, const Mode& mode, size_t position);
// What a run of `mode` from `position` holds at most in its backward for the norm besides what is saved of
// all blocks.
Bytes norm_excess(const Chain& chain, const Mode& mode, size_t position);

// One backward pass; two_passes.h solves chains of either sort.
class ChainSolver {
 public:
  // `effort` scales the limit of points. `known` plans take part at the whole chain's level, so no answer is
  // slower than one of them that fits.
  // Throws InternalError where the chain is malformed or no list of runs covers it.
  explicit ChainSolver(Chain chain, std::span<const std::vector<int32_t>> known = {}, double effort = 1);

  const Chain& chain() const { return chain_; }
  // Exact, unless backlogs were rounded: a smaller budget fits no plan.
  Bytes smallest_budget() const { return fronts_.front().front().points.front().allowance; }
  // The fastest plan found that fits; none if and only if `budget` is below the smallest.
  std::optional<ChainPlan> best(Bytes budget) const;
  // No plan that fits `budget` (at least the smallest) has fewer extra seconds.
  double bound_seconds(Bytes budget) const;
  // Whether best() is the optimum for every budget: no front was thinned, no backlog rounded.
  bool exact() const { return exact_; }
  // Each budget from which on the best plan is faster, and its seconds: falling as budgets rise.
  struct Step {
    Bytes budget;
    double seconds = 0;
  };
  std::vector<Step> frontier() const;

 private:
  struct Point {
    Bytes allowance;  // the least that this many seconds need
    double seconds = 0;
    int32_t mode = -1;  // of the first run; in the whole chain's front a negative one -2-k is known plan k
  };
  struct Front {
    std::vector<Point> points;  // allowance rising, seconds falling
  };
  using Fronts = std::vector<std::vector<Front>>;  // per position, one more for the head alone, and backlog
  // The runs that may begin at one position, with the moments of that position.
  struct Run {
    int32_t mode = 0, span = 1;
    Bytes saved, need;  // need: the least allowance at which every moment of the run fits, without a backlog
    Bytes sent, moved;  // over the link
    double seconds = 0;
  };
  enum class Keep { kFastest, kCorner };
  // A run from one backlog, and the points that go on behind it.
  struct Way {
    const Run* run;
    const std::vector<Point>* rest;
    Bytes need;
  };

  void list_runs();
  void drop_dominated_runs();
  void list_backlogs(size_t most);
  // Of the backlog of `position` that stands for this one; kCorner: one that is at most as large. None where all
  // are smaller.
  std::optional<size_t> backlog_index(size_t position, Bytes backlog, Keep keep) const;
  Bytes raise_to_floor(Front& front) const;
  Front front_of(size_t position, size_t backlog, const Fronts& later, size_t limit, Keep keep);
  Front front_of(const std::vector<Way>& ways, size_t limit, Keep keep);
  double lagrangian(Bytes budget, double target) const;

  Chain chain_;
  std::vector<std::vector<int32_t>> known_;
  std::vector<std::vector<Run>> runs_;        // per position
  std::vector<std::vector<Bytes>> backlogs_;  // per position, one more for the head: rising from 0
  bool uses_link_ = false;
  Fronts fronts_;
  Front relaxed_;      // the whole chain's, for the bound
  Bytes below_floor_;  // the allowance of the whole chain's first point before it was raised
  bool exact_ = true;
};

}  // namespace snug::planner
