// backends/cpu/update_codes.h — Adam's moments in 8 bits: a code of the dynamic map an element, a scale a block of 256
//
// An element's value is map.values[code] · scale, where scale is the largest magnitude of its block. The values are those of
// Dettmers, Lewis, Shleifer, Zettlemoyer: "8-bit Optimizers via Block-wise Quantization", ICLR 2022, section 2.1: 0, the middles
// of even steps in seven decades from 10⁻⁷…10⁻⁶ to 0.1…1, twice as many in each as in the one below (1 … 64 with either sign for
// m, 2 … 128 without sign for v), and 1, which has no negative. Codes are numbered so that code 0 is 0: memory of zeros is a
// moment of zeros.
// The code of x is that of the nearest value; between two, the one nearer to 0. One rule is not the paper's: no v above 0
// becomes 0, for the next update would then divide by next to nothing.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>

namespace snug::cpu {

constexpr int64_t kMomentBlock = 256;

// Magnitudes are found by their f32 bits: all numbers of a bucket (128 an octave, from 2⁻²³ on; what is smaller is in the first)
// lie around at most one threshold.
constexpr uint32_t kBucketShift = 16, kFirstBucketBits = 0x34000000u, kOneBits = 0x3F800000u;
constexpr size_t kBuckets = ((kOneBits - kFirstBucketBits) >> kBucketShift) + 1;

struct MomentMap {
  bool is_signed = false;
  float values[256] = {};  // of each code
  // By magnitude, 0 first: magnitude p + 1 is nearest above thresholds[p]; behind the last one stands a number above 1.
  float thresholds[256] = {};
  int64_t magnitudes = 0;
  int32_t first[kBuckets] = {};  // magnitude of the smallest number of a bucket

  // For x of at most 1 in magnitude; whatever is larger or no number counts as 1.
  uint8_t code(float x) const {
    const uint32_t bits = std::min(std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu, kOneBits);
    const uint32_t bucket = (std::max(bits, kFirstBucketBits) - kFirstBucketBits) >> kBucketShift;
    int32_t magnitude = first[bucket];
    magnitude += std::bit_cast<float>(bits) > thresholds[magnitude] ? 1 : 0;
    if (!is_signed) return static_cast<uint8_t>(magnitude);
    if (!std::signbit(x) || magnitude == 0) return static_cast<uint8_t>(magnitude);
    return static_cast<uint8_t>(kNegative + std::min(magnitude, kLargestNegative));
  }
  // A code of the signed map from here on is 1 or, above it, the negative of the code that is kNegative smaller.
  static constexpr int32_t kNegative = 128, kLargestNegative = 127;
};

const MomentMap& signed_moment_map();
const MomentMap& unsigned_moment_map();

// The scale of a block from the f32 bits of its largest magnitude: always finite.
inline float moment_scale(uint32_t largest_bits) {
  return std::bit_cast<float>(std::min(largest_bits, std::bit_cast<uint32_t>(FLT_MAX)));
}

}  // namespace snug::cpu
