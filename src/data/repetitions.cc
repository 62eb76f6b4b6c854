#include "data/repetitions.h"

#include <algorithm>
#include <vector>

#include "base/checked.h"

namespace snug {

int64_t count_repetitions(int64_t count,
                          const std::function<void(const std::function<void(uint64_t)>& take)>& visit,
                          int64_t most_hashes) {
  // The parts differ in size by a few per cent.
  const auto passes = static_cast<uint64_t>(std::max<int64_t>(1, ceil_div(count + count / 8, most_hashes)));
  int64_t repetitions = 0;
  std::vector<uint64_t> hashes;
  for (uint64_t pass = 0; pass < passes; ++pass) {
    hashes.clear();
    visit([&](uint64_t hash) {
      if (hash % passes == pass) hashes.push_back(hash);
    });
    std::sort(hashes.begin(), hashes.end());
    for (size_t i = 1; i < hashes.size(); ++i) repetitions += hashes[i] == hashes[i - 1] ? 1 : 0;
  }
  return repetitions;
}

}  // namespace snug
