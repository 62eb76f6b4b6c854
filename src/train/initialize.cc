#include "train/initialize.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/checked.h"

namespace snug {
namespace {

// SplitMix64's finaliser (Steele, Lea & Flood 2014).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// FNV-1a over the name, continued from the seed.
uint64_t stream_of(std::string_view name, uint64_t seed) {
  uint64_t hash = 0xCBF29CE484222325ULL ^ mix(seed + 0x9E3779B97F4A7C15ULL);
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

// Uniform in (0, 1): 53 bits, never 0.
double uniform(uint64_t stream, uint64_t counter) {
  const uint64_t bits = mix(mix(stream + counter * 0x9E3779B97F4A7C15ULL) ^ stream);
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53;
}

}  // namespace

void initialize(const ParameterSpec& parameter, uint64_t seed, int64_t first, std::span<float> out) {
  switch (parameter.initializer.kind) {
    case Initializer::Kind::kZeros:
      std::fill(out.begin(), out.end(), 0.0f);
      return;
    case Initializer::Kind::kOnes:
      std::fill(out.begin(), out.end(), 1.0f);
      return;
    case Initializer::Kind::kNormal:
      break;
  }
  const uint64_t stream = stream_of(parameter.name, seed);
  // Elements 2p and 2p+1 are the two values of one draw, so that a piece may begin and end anywhere.
  const auto end = first + static_cast<int64_t>(out.size());
#pragma omp parallel for schedule(static)
  for (int64_t pair = first / 2; pair < ceil_div(end, 2); ++pair) {
    const auto draw = static_cast<uint64_t>(pair);
    const double radius = parameter.initializer.std * std::sqrt(-2 * std::log(uniform(stream, 2 * draw)));
    const double angle = 2 * std::numbers::pi * uniform(stream, 2 * draw + 1);
    const double values[2] = {radius * std::cos(angle), radius * std::sin(angle)};
    for (int64_t element = std::max(first, 2 * pair); element < std::min(end, 2 * pair + 2); ++element)
      out[static_cast<size_t>(element - first)] = static_cast<float>(values[element - 2 * pair]);
  }
}

}  // namespace snug
