#include "layout/layout.h"

#include <algorithm>
#include <utility>

namespace snug::layout {

void verify(const Problem& problem) {
  require(problem.alignment.value > 0, "layout: alignment is {}, expected more than 0",
          problem.alignment.value);
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    require(buffer.size.value >= 0, "layout: buffer {} has size {}, expected at least 0", i,
            buffer.size.value);
    if (buffer.persistent) continue;
    require(buffer.first >= 0, "layout: buffer {} begins at moment {}, expected at least 0", i, buffer.first);
    require(buffer.first < buffer.last, "layout: buffer {} lives in [{}, {}), which is empty", i,
            buffer.first, buffer.last);
  }
}

Bytes max_live(const Problem& problem) {
  verify(problem);
  Bytes persistent;
  std::vector<std::pair<int64_t, int64_t>> changes;  // (moment, bytes that appear or, negative, disappear)
  changes.reserve(2 * problem.buffers.size());
  for (const Buffer& buffer : problem.buffers) {
    const Bytes size = round_up(buffer.size, problem.alignment);
    if (buffer.persistent) {
      persistent += size;
    } else {
      changes.emplace_back(buffer.first, size.value);
      changes.emplace_back(buffer.last, -size.value);
    }
  }
  // Pairs sort the disappearing bytes of a moment before its appearing ones: lifetimes are half-open.
  std::sort(changes.begin(), changes.end());
  Bytes live, most;
  for (const auto& [moment, bytes] : changes) {
    live += Bytes(bytes);
    most = std::max(most, live);
  }
  return persistent + most;
}

Bytes sum_of_sizes(const Problem& problem) {
  verify(problem);
  Bytes sum;
  for (const Buffer& buffer : problem.buffers) sum += round_up(buffer.size, problem.alignment);
  return sum;
}

}  // namespace snug::layout
