// planner/price_book.h — what was priced once and is asked for again by another planner of the same run
//
// Why:    variants of a run (compile/outer_search.h) differ in moments, in where the update stands, in rows of the head: outside the
//         blocks, mostly. What a treatment of a block costs is then the same, and it is what planning takes the most time for.
// Method: notes go by the text of the slice and by which passes finish it; a slice's text holds all that pricing looks at.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/price.h"
#include "planner/slice.h"
#include "planner/subsets.h"

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

  // Prices that were worked out, not looked up: for tests.
  size_t priced() const;

 private:
  OpPrices ops_;
  std::map<std::string, Notes> notes_;
};

}  // namespace snug::planner
