#include "data/permutation.h"

#include <bit>

#include "base/errors.h"

namespace snug {
namespace {

// SplitMix64's finaliser (Steele, Lea & Flood 2014): every input bit reaches every output bit.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(int64_t count, uint64_t seed, uint64_t epoch)
    : count_(static_cast<uint64_t>(count)) {
  require(count >= 1, "a permutation of {} elements", count);
  const int bits = std::bit_width(count_ - 1);
  half_bits_ = (bits + 1) / 2;
  uint64_t key = mix(mix(seed) ^ epoch);
  for (uint64_t& k : keys_) k = key = mix(key);
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint64_t key : keys_) {
    const uint64_t next = left ^ (mix(right ^ key) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

int64_t Permutation::operator()(int64_t position) const {
  require(position >= 0 && static_cast<uint64_t>(position) < count_, "position {} of {}", position, count_);
  uint64_t value = static_cast<uint64_t>(position);
  do value = encrypt(value);
  while (value >= count_);
  return static_cast<int64_t>(value);
}

}  // namespace snug
