// data/permutation.h — the order of windows: a seeded permutation of [0, count) that needs no memory
//
// position → element is computed, not stored, so shuffling a stream of any size costs no bytes, and the order is a pure function of
// (seed, epoch, position): resuming or another batch size sees the same order.
// Method: a four-round Feistel network over the smallest even number of bits that holds `count`, walked until the value
// falls inside (cycle walking: Black & Rogaway 2002, "Ciphers with arbitrary finite domains"). O(1) expected per position.
#pragma once

#include <array>
#include <cstdint>

namespace snug {

class Permutation {
 public:
  // count >= 1.
  Permutation(int64_t count, uint64_t seed, uint64_t epoch);

  // The element at `position`, both in [0, count).
  int64_t operator()(int64_t position) const;

 private:
  uint64_t encrypt(uint64_t value) const;

  uint64_t count_;
  int half_bits_;
  std::array<uint64_t, 4> keys_;
};

}  // namespace snug
