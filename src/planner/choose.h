// planner/choose.h — which forward values a micro-step keeps, so that it fits a budget and costs the fewest
// extra seconds
//
// The budget counts every byte that this machine's arena holds while the micro-step runs: the graph's own
// state, inputs and carried tensors, its values and scratch, and `outside` (moments and whatever else other
// phases hold meanwhile). A Planner is made once a graph; each budget after that takes milliseconds.
//
// Method: modes.h makes the chain, chain.h solves it; the plan is then taken through the real passes on the
//         whole graph, and where that holds more bytes than the chain said, the chain gets a smaller budget
//         (three times at most). docs/planner.md says what is certified.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "ir/graph.h"
#include "passes/recompute.h"
#include "plan/target.h"
#include "planner/chain.h"
#include "planner/modes.h"
#include "planner/price.h"
#include "planner/price_book.h"
#include "planner/two_passes.h"

namespace snug::planner {

struct Choice {
  Retentions retentions;
  Bytes peak;               // held at the worst moment of the micro-step, `outside` included
  double seconds = 0;       // more than with everything kept, of one micro-step
  double step_seconds = 0;  // of one micro-step with everything kept
  // No plan is faster by more than this fraction of the micro-step where none takes fewer extra seconds than Planner::bound_seconds().
  double gap(double bound_seconds) const { return (seconds - bound_seconds) / (step_seconds + seconds); }
};

// A droppable value (with those that are made by the same operation beside it), for simple policies.
struct Droppable {
  std::vector<TensorId> values;
  Bytes bytes;
  double seconds = 0;  // of making it again from what is kept otherwise
};

class Planner {
 public:
  // `graph` is what differentiate leaves; `finish` are the passes between recompute and liveness.
  // `book` must outlive the planner; planners whose `finish` does the same to slices have the same word for `passes`. A graph without blocks, or without a backward, has one plan: keep all.
  // With `compresses` values may be held in 8 bits as well, which changes gradients.
  Planner(Graph graph, PriceBook& book, const std::string& passes, Finish finish, Bytes outside,
          bool compresses = false);
  // With a book of its own; `target` must outlive the planner.
  Planner(Graph graph, const Target& target, Finish finish, Bytes outside, bool compresses = false);

  const Graph& graph() const { return graph_; }

  double keep_all_seconds() const { return keep_seconds_; }  // of one micro-step

  // None if no plan fits; never none from smallest_budget() on.
  std::optional<Choice> choose(Bytes budget);
  Bytes smallest_budget() { return smallest().peak; }
  // The same by the chain's own numbers, the smallest plan where none fits: what a plan will hold, and its extra seconds.
  ChainPlan estimate(Bytes budget) const;
  // No plan of the planner's modes within `budget`, the smallest one at least, takes fewer extra seconds. Remembered for the budget that
  // was asked last.
  double bound_seconds(Bytes budget);
  // What choose() makes of the smallest budget; where values may be compressed, behind it what it would make of its
  // smallest budget if they might not: that may be laid out better.
  const std::vector<Retentions>& smallest_retentions() { return smallest().retentions; }
  // Predicted budgets and extra seconds, from the smallest budget to everything kept: a sweep for free.
  std::vector<ChainSolver::Step> frontier();

  // Bytes and seconds of any retentions, by the real passes: what a named policy needs.
  struct Outcome {
    Bytes peak;
    double seconds = 0;  // extra
  };
  Outcome outcome(const Retentions& retentions);

  // The order in which policy `memory` drops: the largest first (ties: later blocks last).
  std::vector<Droppable> order_by_size() const;
  // The order in which policy `heuristic` drops: the fewest seconds per byte first.
  std::vector<Droppable> order_by_cost() const;
  // What dropping the first `count` of an order makes of the graph's values.
  Retentions retentions_of_prefix(const std::vector<Droppable>& order, size_t count) const;

 private:
  struct Smallest {
    Bytes peak;
    std::vector<Retentions> retentions;
  };
  const Smallest& smallest();
  std::optional<ChainPlan> best(Bytes budget) const;
  Choice keep_all();
  Retentions smallest_without_compression();
  // The plan for a budget, without its bound.
  std::optional<Choice> fitting(Bytes budget);
  std::vector<Droppable> droppable() const;

  Planner(Graph graph, std::unique_ptr<PriceBook> own, Finish finish, Bytes outside, bool compresses);

  std::unique_ptr<PriceBook> own_book_;
  Graph graph_;
  Finish finish_;
  Bytes outside_;
  OpPrices* prices_;  // of the book
  Anatomy anatomy_;
  std::vector<std::vector<bool>> read_;  // per block, per value: whether its backward reads it
  std::optional<PricedChain> priced_;
  std::optional<PriceBook::Shifted> solver_;
  std::optional<Smallest> smallest_;  // once it was asked for
  struct Bound {
    Bytes budget;
    double seconds = 0;
  };
  std::optional<Bound> bound_;
  double keep_seconds_ = 0;
};

}  // namespace snug::planner
