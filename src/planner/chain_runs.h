// planner/chain_runs.h — the runs of a chain, as its solver, its grid of values and its bound read them
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "planner/chain.h"

namespace snug::planner {

// A run that may begin at one position, with the moments of that position.
struct Run {
  int32_t mode = 0, span = 1;
  Bytes saved, need;  // need: the least allowance at which every moment of the run fits, without a backlog
  Bytes sent, moved;  // over the link
  double seconds = 0;
};

// What a backlog becomes when it is not one of those that a position is solved for: the next larger one, so that plans stay
// feasible, or the next smaller one, so that bounds stay bounds.
enum class BacklogRounding : uint8_t { kUp, kDown };

// The runs that can be of use, and the backlogs that are told apart.
struct ChainRuns {
  std::vector<std::vector<Run>> at;          // per position
  std::vector<std::vector<Bytes>> backlogs;  // per position, one more for the head: rising from 0
  Bytes head;                                // the allowance that the head needs
  bool uses_link = false;
  bool rounds_backlogs = false;  // there are more backlogs than are told apart

  size_t length() const { return at.size(); }
  // Runs that are read in one pass over the chain: those of each position once a backlog.
  size_t reads() const;
  // Of the backlog of `position` that stands for this one; none where all are smaller (kUp).
  std::optional<size_t> backlog_index(size_t position, Bytes backlog, BacklogRounding rounding) const;
};

// Leaves out runs that never make a better plan than another one of the same position and span. With `excess_limit` runs of a larger
// norm_excess() may not begin, and the head needs that much at least. Throws InternalError where the chain is malformed or no list of
// runs covers it.
ChainRuns runs_of(const Chain& chain, std::optional<Bytes> excess_limit);

Bytes backlog_after(Bytes backlog, Bytes sent, Bytes moved);

}  // namespace snug::planner
