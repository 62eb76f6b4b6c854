// passes/recompute.h — chosen forward values are not kept for the backward but computed again right before
// it
//
// Why:      a dropped value costs its bytes no longer from forward to backward, but the work of its
//           producers a second time. Policy `block` keeps one activation a block (B·T·C elements) instead of
//           all that its gradient rules name, for at most one more forward pass.
// Requires: `differentiate` has run; forward operations have no aliases yet (`in_place` comes later).
//           Operations are deterministic (dropout counts, it does not draw), so every bit of the result
//           stays the same.
// Ensures:  no backward operation reads a dropped value. Each reads a clone `<name>.recompute` in part
//           recompute, placed before the first backward operation that needs any dropped value of that
//           block; a clone is made once and shared. Forward operations whose values nobody needs in the
//           backward have no clone.
// Order:    after `differentiate`; before `fuse` and `in_place`, which then see that forward values die
//           early.
// Method:   walk the backward in order; at the first reader of a dropped value of a block, collect every
//           dropped value of this block that any backward operation reads, close over dropped inputs, and
//           clone the producers in forward order. O(uses).
// Source:   Chen et al., Training Deep Nets with Sublinear Memory Cost (2016), section 4; the kept set is a
//           parameter here.
// See:      passes/test/recompute.ir
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"

namespace snug {

enum class RecomputePolicy {
  kNone,   // keep every value that a gradient rule names
  kBlock,  // keep only what crosses from one transformer block to the next
};

// The forward values that a policy drops. kBlock: everything that a block makes and that no operation
// outside the block reads, attention statistics included.
std::vector<TensorId> dropped_values(const Graph& graph, RecomputePolicy policy);

// Returns whether a backward operation read one of them.
bool recompute(Graph& graph, std::span<const TensorId> dropped);

}  // namespace snug
