// planner/chain_dual.h — a bound on the seconds of every plan within a budget, by prices of bytes
//
// Method: the Lagrangian dual with a price for each block's moments and the head's, transients included, and one for the backlog
//         before each block, by subgradient steps of Polyak's length.
// Source: Polyak, Minimization of unsmooth functionals (1969), eq. 4, for the step length; Everett, Generalized Lagrange multiplier
//         method (1963), for the bound.
#pragma once

#include "planner/chain_runs.h"

namespace snug::planner {

// No list of runs within `budget` takes fewer seconds. `target`: the seconds of one that fits, at which the steps aim. O(steps · runs).
double dual_bound(const ChainRuns& runs, Bytes budget, double target);

}  // namespace snug::planner
