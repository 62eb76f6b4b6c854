// base/float16.h — which types take 16 bits, and IEEE 754 binary16 (f16) from f32 and back, one element at a time
//
// The bits are those of the processor's own conversion (F16C): rounding is to nearest even, from 65,520 on to infinity, subnormals are
// kept in both directions, and a NaN stays one, quiet, with the upper bits of its payload.
#pragma once

#include <bit>
#include <cstdint>

#include "base/dtype.h"

namespace snug {

// A 16-bit floating type: stored so, computed in f32.
constexpr bool is_half(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

constexpr float widen_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 0x1F, mantissa = half & 0x3FF;
  if (exponent == 31)
    return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13 | (mantissa != 0 ? 0x00400000u : 0u));
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-24f));
}

constexpr uint16_t narrow_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7FFFFFFFu;
  const uint32_t sign = bits >> 16 & 0x8000u;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) {  // below 2^-14: the sum's last bit is 2^-24, the unit of subnormals
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

}  // namespace snug
