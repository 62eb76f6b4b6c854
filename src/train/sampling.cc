#include "train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace snug {

Sampler::Sampler(const Sampling& sampling, uint64_t seed, int64_t vocabulary)
    : sampling_(sampling),
      state_(seed),
      order_(static_cast<size_t>(vocabulary)),
      weights_(static_cast<size_t>(vocabulary)) {}

int32_t Sampler::next(std::span<const float> logits) {
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::iota(order_.begin(), order_.end(), 0);
  if (sampling_.temperature == 0) return *std::min_element(order_.begin(), order_.end(), likelier);

  size_t kept = order_.size();
  if (sampling_.top_k > 0) kept = std::min(kept, static_cast<size_t>(sampling_.top_k));
  std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(kept), order_.end(),
                    likelier);
  const double largest = logits[static_cast<size_t>(order_[0])];
  double total = 0;
  for (size_t i = 0; i < kept; ++i) {
    weights_[i] = std::exp((logits[static_cast<size_t>(order_[i])] - largest) / sampling_.temperature);
    total += weights_[i];
  }
  // top_p counts after top_k, as transformers chains them.
  if (sampling_.top_p < 1) {
    double held = 0;
    size_t needed = 0;
    while (needed < kept && held < sampling_.top_p * total) held += weights_[needed++];
    kept = std::max<size_t>(1, needed);
    total = held;
  }
  // SplitMix64 (Steele, Lea & Flood 2014): 53 random bits a draw.
  state_ += 0x9E3779B97F4A7C15ULL;
  uint64_t bits = state_;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBULL;
  bits ^= bits >> 31;
  double left = static_cast<double>(bits >> 11) * 0x1.0p-53 * total;
  for (size_t i = 0; i < kept; ++i) {
    left -= weights_[i];
    if (left < 0) return order_[i];
  }
  return order_[kept - 1];
}

}  // namespace snug
