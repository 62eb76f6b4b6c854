#include "data/packing.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/errors.h"

namespace snug {

std::vector<int32_t> first_fit_decreasing(std::span<const int32_t> sizes, int32_t capacity) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });

  // Node 1 is the root, the bins are the leaves; a node holds the largest room below it. All bins are there from the start, empty.
  const size_t leaves = std::bit_ceil(std::max<size_t>(1, sizes.size()));
  std::vector<int32_t> room(2 * leaves, capacity);
  std::vector<int32_t> bins(sizes.size());
  for (const size_t piece : order) {
    const int32_t size = sizes[piece];
    require(size >= 1 && size <= capacity, "a piece of {} for bins of {}", size, capacity);
    size_t node = 1;
    while (node < leaves) node = 2 * node + (room[2 * node] >= size ? 0 : 1);
    bins[piece] = static_cast<int32_t>(node - leaves);
    room[node] -= size;
    for (node /= 2; node >= 1; node /= 2) room[node] = std::max(room[2 * node], room[2 * node + 1]);
  }
  return bins;
}

}  // namespace snug
