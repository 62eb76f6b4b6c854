// backends/cpu/philox.h — counter-based random words: Philox4x32-10
//
// Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.4. How key
// and counter are made from a run's seed, update, operation and sample is the section "Randomness" of
// docs/operations.md. The vector form is philox_words in elementwise.h.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace snug::cpu {

constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u, kPhiloxMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;

// The four words of one counter.
inline std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  return counter;
}

// The random words of one operation in one sample.
struct RandomStream {
  std::array<uint32_t, 2> key;
  uint32_t update, sample;

  // `randomness`: the sample's four words {seed low, seed high, update, sample index}; `stream`: the
  // operation's attribute.
  RandomStream(const uint32_t* randomness, int64_t stream)
      : key{randomness[0] ^ static_cast<uint32_t>(static_cast<uint64_t>(stream)),
            randomness[1] ^ static_cast<uint32_t>(static_cast<uint64_t>(stream) >> 32)},
        update(randomness[2]),
        sample(randomness[3]) {}

  // Words of elements [4·group, 4·group + 4).
  std::array<uint32_t, 4> group(uint64_t index) const {
    return philox4x32_10({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), update, sample},
                         key);
  }
  uint32_t word(uint64_t element) const { return group(element / 4)[element % 4]; }
};

// An element is kept iff its word is at or above this: round(probability · 2³²), up to 2³² (nothing is kept).
inline uint64_t drop_threshold(double probability) {
  return static_cast<uint64_t>(std::llround(probability * 4294967296.0));
}

// What kept elements are multiplied by: 1/(1−probability); 0 where nothing is kept.
inline double keep_scale(double probability) { return probability < 1.0 ? 1.0 / (1.0 - probability) : 0.0; }

}  // namespace snug::cpu
