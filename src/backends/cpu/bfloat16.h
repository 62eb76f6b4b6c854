// backends/cpu/bfloat16.h — the scalar bf16 type: the upper half of an f32, and its two roundings
//
// Activations round to nearest even; weights follow decision 14 (ties away from zero), so that the bf16
// weight and the 16 low bits together are the f32 master exactly. Vector forms with the same bits:
// vector_io.h.
#pragma once

#include <bit>
#include <cstdint>

namespace snug::cpu {

struct BFloat16 {
  uint16_t bits = 0;
};

inline float widen(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

// Nearest even; a NaN stays a NaN of the same sign (quiet).
inline BFloat16 narrow_nearest_even(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((bits >> 16) | 0x0040u)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

// (bits + 0x8000) >> 16; infinities and NaNs keep their upper half (a NaN stays quiet, so that it remains
// one).
inline BFloat16 narrow_weight(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7F800000u) == 0x7F800000u)
    return {static_cast<uint16_t>((bits >> 16) | ((bits & 0x007FFFFFu) != 0 ? 0x0040u : 0u))};
  return {static_cast<uint16_t>((bits + 0x8000u) >> 16)};
}

}  // namespace snug::cpu
