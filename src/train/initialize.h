// train/initialize.h — initial weights as a function of (seed, tensor name, element): no generator state, any order, any part
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "models/model.h"

namespace snug {

// Fills `out` with elements [first, first + out.size()) of the tensor `parameter` as its initialiser says. Normal values by
// the ziggurat (Doornik 2005) from hashes of the element's index, in double precision.
void initialize(const ParameterSpec& parameter, uint64_t seed, int64_t first, std::span<float> out);

}  // namespace snug
