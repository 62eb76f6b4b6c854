// Reference kernels of saved activations in 8 bits, by arithmetic on doubles: what the formats mean, without their bits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/fp8.h"
#include "backends/cpu/reference.h"

namespace snug::cpu::reference {
namespace {

// Exponent of the smallest normal number.
int smallest_exponent(const Fp8Format& format) { return 1 - format.bias; }
double largest(const Fp8Format& format) { return std::ldexp(1.75, format.largest_exponent); }

// The code of a finite magnitude: nearest, ties to even, never above the largest finite number.
uint32_t nearest_code(const Fp8Format& format, double magnitude) {
  if (magnitude == 0) return 0;
  const int exponent = std::max(std::ilogb(magnitude), smallest_exponent(format));
  // nearbyint rounds ties to even; a whole number of units is the code of an exponent's range but for that exponent itself.
  const auto units =
      static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
  const auto below = static_cast<uint32_t>(exponent - smallest_exponent(format)) << format.mantissa_bits;
  return std::min(below + units, format.largest_code);
}

double magnitude_of(const Fp8Format& format, uint32_t code) {
  const uint32_t mantissas = 1u << format.mantissa_bits;
  const uint32_t exponent = code / mantissas, mantissa = code % mantissas;
  if (code > format.largest_code)
    return code == format.infinity_code && code != kFp8NanCode ? std::numeric_limits<double>::infinity()
                                                               : std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return std::ldexp(mantissa, smallest_exponent(format) - format.mantissa_bits);
  return std::ldexp(mantissas + mantissa, static_cast<int>(exponent) - format.bias - format.mantissa_bits);
}

struct Fp8Encode {
  template <typename A>
  static void run(const Call& call, bool) {
    const Fp8Format& format = fp8_format(call.attributes.word("format"));
    const A* x = call.input<A>(0);
    auto* codes = call.output<uint8_t>(0);
    auto* scales = call.output<float>(1);
    const int64_t elements = call.input_shape(0).elements(), block = call.attributes.integer("block");
    for (int64_t begin = 0; begin < elements; begin += block) {
      const int64_t end = std::min(begin + block, elements);
      double most = 0;
      for (int64_t i = begin; i < end; ++i)
        if (std::isfinite(load(x[i]))) most = std::max<double>(most, std::abs(load(x[i])));
      double scale = 0x1p-126;
      while (most / scale > largest(format)) scale *= 2;
      scales[begin / block] = static_cast<float>(scale);
      for (int64_t i = begin; i < end; ++i) {
        const double value = load(x[i]);
        const uint32_t code = std::isnan(value)   ? kFp8NanCode
                              : std::isinf(value) ? format.infinity_code
                                                  : nearest_code(format, std::abs(value) / scale);
        codes[i] = static_cast<uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
      }
    }
  }
};

// The largest finite number of type A.
template <typename A>
double largest_number() {
  if constexpr (std::is_same_v<A, BFloat16>)
    return widen(BFloat16{0x7F7F});
  else if constexpr (std::is_same_v<A, Float16>)
    return widen(Float16{0x7BFF});
  else
    return std::numeric_limits<A>::max();
}

struct Fp8Decode {
  static constexpr size_t kTypeOutput = 0;
  template <typename A>
  static void run(const Call& call, bool) {
    const Fp8Format& format = fp8_format(call.attributes.word("format"));
    const auto* codes = call.input<uint8_t>(0);
    const auto* scales = call.input<float>(1);
    A* y = call.output<A>(0);
    const int64_t elements = call.output_shape(0).elements(), block = call.attributes.integer("block");
    for (int64_t i = 0; i < elements; ++i) {
      double value = magnitude_of(format, codes[i] & 0x7F);
      if (std::isfinite(value)) value = std::min(value * scales[i / block], largest_number<A>());
      y[i] = store<A>(std::copysign(value, codes[i] >= 0x80 ? -1.0 : 1.0));
    }
  }
};

}  // namespace

std::span<const KernelEntry> fp8_entries() {
  static constexpr KernelEntry kEntries[] = {entry<Fp8Encode>("fp8_encode"), entry<Fp8Decode>("fp8_decode")};
  return kEntries;
}

}  // namespace snug::cpu::reference
