#include "planner/price_book.h"

#include <fmt/format.h>

#include "ir/text.h"

namespace snug::planner {

PriceBook::Notes& PriceBook::notes(const Slice& slice, const std::string& passes) {
  // Which of the text's operations belong to the first block.
  return notes_[fmt::format("{}\n{} {}\n{}", passes, slice.first, slice.count, print(slice.graph))];
}

size_t PriceBook::priced() const {
  size_t count = 0;
  for (const auto& [slice, notes] : notes_) count += notes.prices.size() + notes.norms.size();
  return count;
}

}  // namespace snug::planner
