// planner/price.h — what a graph holds and takes, operation by operation, after the passes that follow
// `recompute`
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "ir/graph.h"
#include "passes/recompute.h"
#include "plan/target.h"
#include "planner/chain.h"
#include "planner/slice.h"

namespace snug::planner {

// The passes of the pipeline between `recompute` and `liveness`: fuse, accumulate, in_place, …
using Finish = std::function<void(Graph&)>;

// What the target says about operations, asked once for each kind, attributes and operand types.
class OpPrices {
 public:
  explicit OpPrices(const Target& target) : target_(target) {}
  struct OpPrice {
    double seconds = 0;
    Bytes scratch;  // rounded up to the alignment
  };
  OpPrice operator()(const Graph& graph, const Op& op);
  Bytes round(Bytes bytes) const { return round_up(bytes, target_.alignment()); }

 private:
  const Target& target_;
  std::string key_;
  std::unordered_map<std::string, OpPrice> known_;
};

// Bytes held at each operation of one graph on its own: scratch, and buffers by the rules of
// analysis/liveness.h; state, carried tensors and inputs, which hold all the time, apart.
struct Sweep {
  std::vector<Bytes> held;      // per operation
  std::vector<double> seconds;  // per operation
  Bytes always;
  double all_seconds = 0;
};
Sweep sweep(const Graph& graph, OpPrices& prices);

// The block during whose forward or backward each operation runs (-1: outside): its own, or for repeated or
// decoded forward work (passes/recompute.h says what it is called) that of the backward operation that it is for.
std::vector<int32_t> serving_blocks(const Graph& graph);

// Bytes and seconds of a slice after recompute(retentions) and `finish`; seconds are those of its
// operations before and after the turn. Without Moments::norm.
struct SlicePrice {
  Bytes saved;
  std::vector<Moments> moments;  // per block of the slice
  double forward_seconds = 0, backward_seconds = 0;
};
SlicePrice price(const Slice& slice, const Retentions& retentions, const Finish& finish, OpPrices& prices);
// Moments::norm per block: of a first backward, in which no saved value dies or gives its place away and parameters'
// gradients die at once.
std::vector<Bytes> norm_moments(const Slice& slice, const Retentions& retentions, const Finish& finish,
                                OpPrices& prices);

}  // namespace snug::planner
