// planner/slice.h — the blocks of a differentiated micro-step, and a few neighbours of them cut out as a
// graph of their own
//
// Why:   what one treatment of a block costs is a matter of that block alone: the rest of the graph is there
//        before, meanwhile and after, whatever the block does. So it can be priced, with the real passes, on
//        a graph of some 60 operations instead of thousands.
// Words: leaving value   a forward value that another block, or the head, reads
//        boundary        a leaving value that exactly one block besides its maker reads, the next one (or
//                        the first block reads it and no block makes it); the planner may drop it
//        shared value    any other value that blocks read from outside; always held (rotary angles)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace snug::planner {

// Where the blocks of a graph are. All blocks 0 … n-1 of op.block count, each with a forward operation.
struct Anatomy {
  struct Block {
    std::vector<size_t> forward, backward;  // indices of operations, in execution order
    std::vector<TensorId> values;           // made by `forward`, in order of operations and their outputs
    std::vector<bool> leaving, boundary;    // per value
    int32_t alike = 0;  // blocks of one number differ in names, dropout streams and places alone
  };
  std::vector<Block> blocks;
  std::vector<size_t> source;           // forward operations that only the first block's input needs
  std::vector<TensorId> source_values;  // made by them
  std::vector<int32_t> producer;        // per tensor: operation or -1
  std::vector<bool> shared;             // per tensor: a shared value
};

// `graph` is what differentiate leaves, before any pass that fuses or shares storage.
Anatomy anatomy(const Graph& graph);

// A run of blocks as a graph: what comes in (an operation "slice.enter", there in every slice), the forward,
// "slice.turn" (reads what leaves, makes the gradients that come in), the backward. Both are of kind fill,
// the one kind whose outputs are given. Shared values are inputs; gradients that another block or the outside
// takes are results.
struct Slice {
  Graph graph;
  size_t first = 0, count = 0;                // blocks
  std::vector<std::vector<TensorId>> values;  // per block of the run: its values as in Anatomy::Block
  std::vector<TensorId> source_values;        // of Anatomy, where the slice has them
};

// Blocks [first, first + count); `with_source` (only where first = 0) adds the operations that make the first
// block's input, so that this may be dropped too.
Slice slice(const Graph& graph, const Anatomy& anatomy, size_t first, size_t count, bool with_source);

inline constexpr const char* kEnter = "slice.enter";
inline constexpr const char* kTurn = "slice.turn";

}  // namespace snug::planner
