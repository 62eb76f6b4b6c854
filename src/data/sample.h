// data/sample.h — one example as tokens, with what of it is learned
#pragma once

#include <cstdint>
#include <vector>

namespace snug {

// A sample of n ids is n − 1 positions of a batch: position i reads ids[i], and its target is ids[i + 1] where supervised[i + 1] holds,
// else −100. What supervised[0] says never matters.
struct Sample {
  std::vector<int32_t> ids;
  std::vector<bool> supervised;  // as long as `ids`
};

}  // namespace snug
