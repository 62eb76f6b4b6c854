// train/sampling.h — the next token from a row of logits
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace snug {

struct Sampling {
  double temperature = 1;  // 0: always the likeliest token (the lowest id among equals)
  int64_t top_k = 50;      // 0: all
  double top_p =
      1;  // the fewest likeliest tokens that together hold at least this probability (Holtzman et al. 2020)
};

class Sampler {
 public:
  Sampler(const Sampling& sampling, uint64_t seed, int64_t vocabulary);

  // logits:(V) f32, finite. The draw depends on the seed and on how many draws came before.
  int32_t next(std::span<const float> logits);

 private:
  Sampling sampling_;
  uint64_t state_;
  std::vector<int32_t> order_;  // token ids, likeliest first as far as needed
  std::vector<double> weights_;
};

}  // namespace snug
