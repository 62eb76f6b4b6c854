// planner/chain_grid.h — the least seconds of the rest of a chain, by what the runs before it leave, on a grid of bytes
//
// Why:     the exact step function (chain.h) of a long chain has too many steps. On a grid each run is one pass over two contiguous
//          rows: a shift, an addition and a minimum.
// Method:  the row of a position (and a backlog) begins at the least allowance that its rest needs, exactly, and ends where a larger
//          allowance makes nothing faster, or cannot be left by earlier runs. One step for all rows, so that a run is one shift.
//          kBetween  values at the grid's points, interpolated where a run's bytes are no multiple of the step: what a plan is
//                    found by, and no bound;
//          kBelow    values of the grid's intervals, each at most the least of the interval: shifts are rounded towards more
//                    bytes left. A bound.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/chain_runs.h"

namespace snug::planner {

class ChainGrid {
 public:
  enum class Values : uint8_t { kBetween, kBelow };

  // About `points` points in the first row.
  ChainGrid(const ChainRuns& runs, Values values, size_t points);

  // The least allowance with which the rest from `position` with that backlog can go on. Exact with kBetween.
  Bytes least(size_t position, size_t backlog) const { return rows_[position][backlog].least; }
  // From here on a larger allowance makes nothing faster.
  Bytes most(size_t position, size_t backlog) const { return rows_[position][backlog].most; }
  // Of the rest, with an allowance of at least the least.
  double seconds(size_t position, size_t backlog, Bytes allowance) const;

 private:
  struct Row {
    Bytes least, most;
    double fewest = 0;  // with an allowance of `most` and more
    std::vector<double> seconds;
  };
  // A run from one backlog, and the row that goes on behind it.
  struct Way {
    const Run* run;
    const Row* rest;
    Bytes need;
  };
  std::vector<Way> ways_from(const ChainRuns& runs, size_t position, size_t backlog) const;
  void fill(Row& row, const std::vector<Way>& ways, Bytes last) const;
  void add_between(Row& row, const Way& way, size_t first) const;
  void add_below(Row& row, const Way& way, size_t first) const;

  Values values_;
  int64_t step_bytes_ = 1;
  double per_step_ = 1;                 // 1 / step_bytes_
  std::vector<std::vector<Row>> rows_;  // per position, one more for the head, and backlog
};

}  // namespace snug::planner
