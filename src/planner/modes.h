// planner/modes.h — from a differentiated micro-step to the chain that the solver works on
//
// Why:    which values can be dropped, what that saves and costs, and what each moment holds then, all follow
//         from the graph: a new family of models, or a new operation, costs the planner nothing.
// Method: 1. blocks that are alike (slice.h) are priced once;
//         2. span 1: the subsets of a block's values that are promising by an estimate (subsets.h) are priced
//            by the real passes on a slice (price.h), then reduced to the Pareto front over saved bytes,
//            seconds and the working sets of forward and backward; where it is allowed, those with compressed
//            values form a second front beside the first;
//         3. span 2 … k: the boundaries inside the run are dropped, with the subsets of small saved bytes,
//            each in two forms: what is made again serves all later readers (uniform:k is this with nothing
//            kept), or the boundaries do and everything else is made again for each block (nested
//            recomputation);
//         4. the first block's input can be dropped as well where it is made of the phase's inputs;
//         5. what lives anyway at each block is the whole graph's bytes, everything kept, less what the
//            slices say of the same moments. So predictions for `none` are exact, and whatever lives outside
//            the blocks is counted without being understood.
// See:    choose_test.cc; docs/planner.md
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/chain.h"
#include "planner/price.h"
#include "planner/price_book.h"
#include "planner/slice.h"

namespace snug::planner {

// What a mode makes of the values of its run.
struct Treatment {
  std::vector<std::vector<Retention>> values;  // per block of the run, per value of Anatomy::Block
  Retention source = Retention::kKeep;         // of Anatomy::source_values
  bool compresses() const;                     // some value is held in 8 bits
};

struct NamedPlan {
  std::string name;            // "none", "block", "uniform:2", …
  std::vector<int32_t> modes;  // of its runs
};

struct PricedChain {
  Chain chain;
  std::vector<Treatment> treatments;  // per mode
  std::vector<NamedPlan> named;
};

struct ChainOptions {
  Bytes outside;  // what other phases hold while this one runs, besides this graph's tensors
  std::string passes = {};  // what tells `finish` from that of other planners with the same book
  bool compresses = false;  // modes may hold values in 8 bits (Retention::kCompress)
  // Subsets of one sort of block: how many are priced by the passes and how many become modes, times the
  // number of blocks; but as many as the least at least, and never more than 1024.
  size_t priced_times_blocks = 4096, least_priced = 200;
  size_t listed_times_blocks = 15000, least_listed = 150;
  size_t most_sequences = 24;  // sorts of runs of two and more blocks that are priced
};

// Requires at least one block. `finish` runs on copies of the graph and of slices of it. What `book` knows is not priced again.
PricedChain priced_chain(const Graph& graph, const Anatomy& anatomy, const Finish& finish, PriceBook& book,
                         const ChainOptions& options);

// The retentions of the whole graph that a plan's modes stand for.
Retentions retentions_of(const Graph& graph, const Anatomy& anatomy, const PricedChain& priced,
                         const std::vector<int32_t>& modes);

}  // namespace snug::planner
