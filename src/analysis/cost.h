// analysis/cost.h — what an operation and a phase cost: needed FLOPs, bytes read and written, estimated
// seconds
#pragma once

#include "ir/graph.h"
#include "plan/target.h"

namespace snug {

struct Cost {
  double flops =
      0;  // needed work by the operation table: multiply and add count as two, causal attention counts half
  double repeated_flops = 0;  // of the forward's products that the operation makes again (mlp_gradient)
  double bytes = 0;    // of all operands, each read or written once
  double seconds = 0;  // of one execution, as the target estimates it; 0 for what the host does (load, save)
  Cost& operator+=(const Cost& other);
};

// One execution of `op`.
Cost cost(const Graph& graph, const Op& op, const Target& target);

// One repetition of the phase: the sum over its operations.
Cost cost(const Graph& graph, const Target& target);

// The FLOPs of one update by what it is for: `needed` is forward and backward, `repeated` is recomputation: forward operations that are
// repeated, and what backward operations repeat of the forward themselves.
struct UpdateFlops {
  double needed = 0, repeated = 0;
};
UpdateFlops update_flops(const Program& program);

}  // namespace snug
