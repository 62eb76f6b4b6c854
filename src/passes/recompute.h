// passes/recompute.h — chosen forward values are not held for the backward but computed again in it
//
// Why:      a dropped value no longer costs its bytes from forward to backward, but the work of its
//           producers once more. Policy `block` holds one activation a block (B·T·C elements) instead of all
//           that its gradient rules name, for at most one more forward pass.
// Requires: `differentiate` has run, this pass has not; forward operations have no aliases yet (`in_place`
//           comes later). Operations are deterministic (dropout counts, it does not draw), so every bit of
//           the result stays the same.
// Ensures:  no backward operation reads a dropped value; it reads a clone in part recompute instead. The
//           n-th clone of `x` is called x.recompute (first) or x.recompute.n (later ones). What no backward
//           operation needs, directly or through the chain, has no clone.
// Order:    after `differentiate`; before `fuse` and `in_place`, which then see that forward values die
//           early.
// Method:   1. walk the backward in order; before an operation that reads dropped values without a valid
//              copy, collect their producers, and close over dropped operands that have no valid copy;
//           2. clone these operations in forward order right there, and let the operation read the copies;
//           3. a new run of backward operations of one block (op.block; −1 is one of its own) ends the
//              validity of kRecomputeEachBlock copies.
//           So a chain starts at what is held, or copied already, and nothing else runs. A held operand of a
//           clone is held until then, whether or not a gradient rule names it. O(uses + clones · log clones).
// Source:   Chen et al., Training Deep Nets with Sublinear Memory Cost (2016), section 4; the held set is a
//           parameter here.
// See:      passes/test/recompute.ir; docs/recomputation.md on policies
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace snug {

// What becomes of one forward value between its making and its readers in the backward.
enum class Retention : uint8_t {
  kKeep,
  kRecompute,           // made again once, right before the first backward operation that needs it; that copy
                        // is shared by all later ones
  kRecomputeEachBlock,  // the same, but a copy serves only the backward of the block in which it was made: the
                        // next block's backward makes it again if it needs it
};

using Retentions =
    std::vector<Retention>;  // indexed by TensorId; only forward values may be other than kKeep

// Throws InternalError if `retentions` does not match the graph. Returns whether a backward operation read a
// dropped value; if none did, the graph is unchanged.
bool recompute(Graph& graph, const Retentions& retentions);

// A named way to choose retentions: plain data.
struct RecomputePolicy {
  enum class Kind : uint8_t {
    kNone,     // keep every value that a gradient rule names
    kUniform,  // keep the inputs of blocks 0, every, 2·every, … and what leaves the last one; drop all else
               // that blocks make
    kBlock,    // keep only what crosses from one block to the next: kUniform with every = 1
    kSelective,  // drop what operations of `groups` make inside a block, never what leaves one
    kMemory,     // drop the largest first until the budget holds the plan
    kHeuristic,  // drop those with the fewest seconds per byte first until the budget holds the plan
    kOptimal,    // what the planner finds fastest in the budget
  };
  Kind kind = Kind::kNone;
  int64_t every = 1;                     // kUniform: blocks a segment, at least 1
  std::vector<std::string> groups = {};  // kSelective: of recompute_groups(), at least one

  friend bool operator==(const RecomputePolicy&, const RecomputePolicy&) = default;
};

// "none", "uniform:2", "selective:attention,norm": what parse_recompute_policy reads.
std::string to_string(const RecomputePolicy& policy);
// Throws UserError(kUsage) that quotes what was found and lists what is expected.
RecomputePolicy parse_recompute_policy(std::string_view text);

// Groups of values that kSelective can name, by the operation that makes them: attention (its output and
// log-sum-exp), norm (output and statistics), activation (gelu, swiglu), mlp (activations and the products
// that feed them), projection (all other products, rotary turns included).
std::vector<std::string_view> recompute_groups();

// kMemory, kHeuristic and kOptimal: the planner chooses their retentions, not retentions().
bool needs_budget(const RecomputePolicy& policy);

// What `policy` makes of each value of `graph`, which `differentiate` has left. Throws UserError(kUsage) for
// an unknown group or every < 1, InternalError for policies that need a budget.
Retentions retentions(const Graph& graph, const RecomputePolicy& policy);

}  // namespace snug
