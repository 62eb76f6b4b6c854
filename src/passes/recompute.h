// passes/recompute.h — chosen forward values are not held for the backward but computed again in it, or held
// for it in 8 bits
//
// Why:      a dropped value no longer costs its bytes from forward to backward, but the work of its
//           producers once more. Policy `block` holds one activation a block (B·T·C elements) instead of all
//           that its gradient rules name, for at most one more forward pass. A compressed value costs
//           1 + 4/128 bytes an element and the time to read and write it twice, whatever made it.
// Requires: `differentiate` has run, this pass has not; forward operations have no aliases yet (`in_place`
//           comes later). Operations are deterministic (dropout counts, it does not draw), so every bit of
//           the result stays the same; but for compressed values, of which the backward reads what 8 bits
//           can say. The forward never reads that, so the loss of the same weights stays the same in every bit
//           (unless what the head reads is made again from it, which no policy does).
// Ensures:  no backward operation reads a dropped value; it reads a clone in part recompute instead. The
//           n-th clone of `x` is called x.recompute (first) or x.recompute.n (later ones). What no backward
//           operation needs, directly or through the chain, has no clone. Nor does one read a compressed
//           value x: fp8_encode makes x.codes and x.scales behind its last reader in the forward, and
//           fp8_decode makes x.decode (x.decode.n) in front of what reads it.
// Order:    after `differentiate`; before `fuse` and `in_place`, which then see that forward values die
//           early.
// Method:   1. walk the backward in order; before an operation that reads dropped values without a valid
//              copy, collect their producers, and close over dropped operands that have no valid copy;
//           2. clone these operations in forward order right there, and let the operation read the copies;
//           3. a compressed value among the operands of the clones or of the operation is decoded right
//              before the first that reads it;
//           4. a new run of backward operations of one block (op.block; −1 is one of its own) ends the
//              validity of kRecomputeEachBlock copies and of decoded ones.
//           So a chain starts at what is held, or copied already, and nothing else runs. A held operand of a
//           clone is held until then, whether or not a gradient rule names it. O(uses + clones · log clones).
// Source:   Chen et al., Training Deep Nets with Sublinear Memory Cost (2016), section 4; the held set is a
//           parameter here. Activations for the backward in 8 bits with a scale for each group: Xi et al.,
//           COAT (2024), section 4; groups of 128 numbers: DeepSeek-V3 technical report (2024), section 3.3.
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
  kCompress,      // held as e4m3 codes with a scale for each kFp8Block numbers; decoded for each block's
                  // backward that reads it
  kCompressWide,  // the same as e5m2: a digit less, more range within a block
};

// Consecutive elements of the logical index that share a scale.
inline constexpr int64_t kFp8Block = 128;

// Whether a value may be compressed: a forward operation inside a block makes it as its first output (the
// further ones are statistics, which the backward needs as they are), in an activation's type, and it has at
// least kFp8Block elements.
bool compressible(const Graph& graph, const Op& producer, size_t output);

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
    kCompress,   // compress what operations of `groups` make inside a block, all if there are none; changes
                 // gradients
    kCompressWide,  // the same with kCompressWide
    kMemory,        // drop the largest first until the budget holds the plan
    kHeuristic,     // drop those with the fewest seconds per byte first until the budget holds the plan
    kOptimal,       // what the planner finds fastest in the budget
  };
  Kind kind = Kind::kNone;
  int64_t every = 1;  // kUniform: blocks a segment, at least 1
  // Of recompute_groups(). kSelective: at least one.
  std::vector<std::string> groups = {};

  friend bool operator==(const RecomputePolicy&, const RecomputePolicy&) = default;
};

// "none", "uniform:2", "selective:attention,norm", "compress": what parse_recompute_policy reads.
std::string to_string(const RecomputePolicy& policy);
// Throws UserError(kUsage) that quotes what was found and lists what is expected.
RecomputePolicy parse_recompute_policy(std::string_view text);

// Groups of values that kSelective and kCompress can name, by the operation that makes them: attention (its
// output and log-sum-exp), norm (output and statistics), activation (gelu, swiglu), mlp (activations and the
// products that feed them), projection (all other products, rotary turns included).
std::vector<std::string_view> recompute_groups();

// kCompress and kCompressWide: gradients are not those of keeping everything.
bool changes_gradients(const RecomputePolicy& policy);

// kMemory, kHeuristic and kOptimal: the planner chooses their retentions, not retentions().
bool needs_budget(const RecomputePolicy& policy);

// What `policy` makes of each value of `graph`, which `differentiate` has left. Throws UserError(kUsage) for
// an unknown group or every < 1, InternalError for policies that need a budget.
Retentions retentions(const Graph& graph, const RecomputePolicy& policy);

}  // namespace snug
