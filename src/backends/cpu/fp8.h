// backends/cpu/fp8.h — the two 8-bit floating formats, and the scale that a block of numbers shares
//
// Source: Micikevicius et al., FP8 Formats for Deep Learning (2022), table 1 (the OCP 8-bit floating point specification has the
//         same values). e4m3 has no infinity and one NaN magnitude; e5m2 follows IEEE 754. The scale is the power of two of the OCP
//         microscaling formats, but rounded up where the largest number would not be finite: it loses no bit of any number, and
//         floating codes need no finer one. Vector forms with the same bits: fp8_vector.h; by arithmetic: reference_fp8.cc.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "backends/cpu/kernel.h"
#include "base/dtype.h"
#include "base/errors.h"

namespace snug::cpu {

struct Fp8Format {
  int exponent_bits, mantissa_bits, bias;
  uint32_t largest_code;  // of a finite number: (2 − 2^−m, or 1.75 in e4m3) · 2^largest_exponent
  int largest_exponent;
  uint32_t infinity_code;  // what ±∞ is stored as; e4m3 has none, so it is the NaN there
};
inline constexpr Fp8Format kE4M3{.exponent_bits = 4,
                                 .mantissa_bits = 3,
                                 .bias = 7,
                                 .largest_code = 0x7E,  // 448
                                 .largest_exponent = 8,
                                 .infinity_code = 0x7F};
inline constexpr Fp8Format kE5M2{.exponent_bits = 5,
                                 .mantissa_bits = 2,
                                 .bias = 15,
                                 .largest_code = 0x7B,  // 57344
                                 .largest_exponent = 15,
                                 .infinity_code = 0x7C};
inline constexpr uint32_t kFp8NanCode = 0x7F;

inline const Fp8Format& fp8_format(std::string_view name) {
  require(name == "e4m3" || name == "e5m2", "fp8: no format '{}'", name);
  return name == "e4m3" ? kE4M3 : kE5M2;
}

// The scale of a block whose largest finite magnitude is `largest`: the smallest power of two from 2^−126 on with
// largest / scale ≤ 1.75 · 2^largest_exponent, the largest finite number of either format.
inline float fp8_scale(const Fp8Format& format, float largest) {
  const uint32_t bits = std::bit_cast<uint32_t>(largest);
  const int exponent =
      static_cast<int>(bits >> 23) - format.largest_exponent + ((bits & 0x7FFFFF) > 0x600000 ? 1 : 0);
  return std::bit_cast<float>(static_cast<uint32_t>(std::max(exponent, 1)) << 23);
}

// 1 / scale, exactly: scales lie between 2^−126 and 2^120.
inline float fp8_inverse(float scale) {
  return std::bit_cast<float>((254u << 23) - std::bit_cast<uint32_t>(scale));
}

// Operands of fp8_encode and fp8_decode.
struct Fp8Operands {
  std::byte* numbers = nullptr;  // of type `activation`: f32, bf16 or f16
  uint8_t* codes = nullptr;
  float* scales = nullptr;
  DType activation = DType::kF32;
  int64_t elements = 0, block = 0;
};

std::span<const KernelEntry> fp8_kernels();  // fp8_encode, fp8_decode
namespace reference {
std::span<const KernelEntry> fp8_entries();
}

}  // namespace snug::cpu
