// planner/price_book.h — what was priced once and is asked for again by another planner of the same run
//
// Why:    variants of a run (compile/outer_search.h) differ in moments, in where the update stands, in rows of the head: outside the
//         blocks, mostly. What a treatment of a block costs is then the same, and it is what planning takes the most time for.
//         Chains that differ in what lives anyway by the same bytes everywhere (moments in another form, say) are one chain, shifted: their
//         solver is remembered, too.
// Method: notes go by the text of the slice and by which passes finish it; a slice's text holds all that pricing looks at.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/price.h"
#include "planner/slice.h"
#include "planner/subsets.h"
#include "planner/two_passes.h"

namespace snug::planner {

class PriceBook {
 public:
  // `target` must outlive the book.
  explicit PriceBook(const Target& target) : ops_(target) {}

  OpPrices& ops() { return ops_; }

  // Of one slice: prices and norm_moments() by retentions, a byte a tensor; promising subsets by their limit, without and with
  // compression.
  struct Notes {
    std::unordered_map<std::string, SlicePrice> prices;
    std::unordered_map<std::string, std::vector<Bytes>> norms;
    std::map<std::pair<size_t, bool>, std::vector<Subset>> subsets;
  };
  // `passes` tells apart what finishes slices. The notes stay where they are.
  Notes& notes(const Slice& slice, const std::string& passes);

  // The solver of that chain; budgets that it is asked are less by `shift` than those of the chain. The ones that were used last stay.
  struct Shifted {
    std::shared_ptr<const PlanSolver> solver;
    Bytes shift;
  };
  Shifted solver(Chain chain, const std::vector<std::vector<int32_t>>& known);

  // Prices that were worked out, not looked up: for tests.
  size_t priced() const;

 private:
  OpPrices ops_;
  std::map<std::string, Notes> notes_;
  struct Solved {
    std::vector<std::vector<int32_t>> known;
    std::shared_ptr<const PlanSolver> solver;
  };
  std::deque<Solved> solved_;  // used last first
};

}  // namespace snug::planner
