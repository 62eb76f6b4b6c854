#include "compile/micro_batch.h"

#include <algorithm>
#include <optional>

#include "base/errors.h"

namespace snug {
namespace {

using Prices = OuterSearch::Prices;

}  // namespace

std::vector<int64_t> divisors(int64_t number) {
  require(number >= 1, "divisors of {}", number);
  std::vector<int64_t> low, high;
  for (int64_t candidate = 1; candidate <= number / candidate; ++candidate) {
    if (number % candidate != 0) continue;
    low.push_back(candidate);
    if (candidate != number / candidate) high.push_back(number / candidate);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

MicroBatch choose_micro_batch(SearchMemory& memory, std::span<const int64_t> sizes,
                              const std::function<std::vector<Variant>(int64_t)>& variants_of,
                              Bytes arena_budget, const RecomputePolicy& policy) {
  require(!sizes.empty(), "choose_micro_batch: no size");
  // None where a size of the run is beyond 64 bits.
  const auto search_of = [&](int64_t size) -> std::optional<OuterSearch> {
    try {
      return OuterSearch(memory.by_work(), variants_of(size), Prices::kForgetOfLosers);
    } catch (const UserError&) {
      return std::nullopt;
    }
  };
  // The least that any size does, by the largest: it reads weights least often.
  double least = 0;
  for (size_t i = sizes.size(); i-- > 0;)
    if (const std::optional<OuterSearch> search = search_of(sizes[i])) {
      least = search->unlimited_seconds();
      break;
    }
  struct Best {
    int64_t size;
    double work;
  };
  std::optional<Best> best;
  struct Smallest {
    int64_t size;
    Bytes arena;
  };
  std::optional<Smallest> smallest;
  // What an update of that size does more than with everything kept; none where it does not fit.
  const auto try_size = [&](int64_t size) -> std::optional<double> {
    std::optional<OuterSearch> search = search_of(size);
    if (!search) return std::nullopt;
    const VariantOutcome found = search->outcome(arena_budget, policy);
    const Bytes arena = found.report.arena;
    if (!smallest || arena < smallest->arena) smallest = {size, arena};
    if (!found.fits) return std::nullopt;
    const double done = found.report.update_seconds;
    if (!best || done <= best->work) best = {size, done};
    return done - search->unlimited_seconds();
  };
  for (int64_t size : sizes.first(sizes.size() - 1)) {
    const std::optional<double> repeated = try_size(size);
    if (!repeated || least + *repeated > best->work) break;
  }
  try_size(sizes.back());
  if (best) return {best->size, true};
  return {smallest ? smallest->size : sizes.front(), false};
}

}  // namespace snug
