#include "planner/price_book.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/text.h"

namespace snug::planner {
namespace {

// Solvers that are remembered: some MB each.
constexpr size_t kMostSolvers = 6;

}  // namespace

PriceBook::Notes& PriceBook::notes(const Slice& slice, const std::string& passes) {
  // Which of the text's operations belong to the first block.
  return notes_[fmt::format("{}\n{} {}\n{}", passes, slice.first, slice.count, print(slice.graph))];
}

size_t PriceBook::priced() const {
  size_t count = 0;
  for (const auto& [slice, notes] : notes_) count += notes.prices.size() + notes.norms.size();
  return count;
}

PriceBook::Shifted PriceBook::solver(Chain chain, const std::vector<std::vector<int32_t>>& known) {
  const Bytes shift = chain.blocks.front().fixed.forward;
  for (ChainBlock& block : chain.blocks) {
    block.fixed.forward -= shift;
    block.fixed.backward -= shift;
    block.fixed.norm -= shift;
  }
  chain.head -= shift;
  chain.floor -= shift;
  const auto same = std::find_if(solved_.begin(), solved_.end(), [&](const Solved& solved) {
    return solved.known == known && solved.solver->chain() == chain;
  });
  if (same != solved_.end()) {
    std::rotate(solved_.begin(), same, std::next(same));
  } else {
    if (solved_.size() == kMostSolvers) solved_.pop_back();
    solved_.push_front({known, std::make_shared<const PlanSolver>(std::move(chain), known)});
  }
  return {solved_.front().solver, shift};
}

}  // namespace snug::planner
