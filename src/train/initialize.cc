#include "train/initialize.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace snug {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ULL;  // 2^64 / the golden ratio: SplitMix64's increment

// SplitMix64's finaliser (Steele, Lea & Flood 2014).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// FNV-1a over the name, continued from the seed.
uint64_t stream_of(std::string_view name, uint64_t seed) {
  uint64_t hash = 0xCBF29CE484222325ULL ^ mix(seed + kGolden);
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

// The random numbers of one element: SplitMix64 from a start that is a function of (stream, element).
class ElementDraws {
 public:
  ElementDraws(uint64_t stream, int64_t element)
      : state_(mix(stream + static_cast<uint64_t>(element) * kGolden) ^ stream) {}
  uint64_t bits() { return mix(state_ += kGolden); }
  // In (0, 1): 53 bits, never 0.
  double uniform() { return to_unit(bits()); }
  static double to_unit(uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

// Standard normal numbers by the ziggurat (Marsaglia & Tsang 2000) in Doornik's form (2005, algorithm ZIGNOR): the layer comes from other bits
// than the place in it. One hash, one look-up and one product for 98.8 % of the elements, so that weights from a seed do not delay the start.
class Ziggurat {
 public:
  Ziggurat() {
    double density = std::exp(-0.5 * kTail * kTail);
    edge_[0] = kLayerArea / density;
    edge_[1] = kTail;
    for (size_t layer = 2; layer < kLayers; ++layer) {
      edge_[layer] = std::sqrt(-2 * std::log(kLayerArea / edge_[layer - 1] + density));
      density = std::exp(-0.5 * edge_[layer] * edge_[layer]);
    }
    edge_[kLayers] = 0;
  }

  double operator()(ElementDraws draws) const {
    while (true) {
      const uint64_t bits = draws.bits();
      const size_t layer = bits % kLayers;
      const double place = 2 * ElementDraws::to_unit(bits) - 1;
      const double x = place * edge_[layer];
      if (std::abs(x) < edge_[layer + 1]) return x;
      if (layer == 0) return std::copysign(tail(draws), place);
      const double outer = std::exp(-0.5 * (edge_[layer] * edge_[layer] - x * x)),
                   inner = std::exp(-0.5 * (edge_[layer + 1] * edge_[layer + 1] - x * x));
      if (inner + draws.uniform() * (outer - inner) < 1) return x;
    }
  }

 private:
  static constexpr size_t kLayers = 128;
  // Where the base layer's tail begins, and the area of a layer (Doornik 2005, section 3).
  static constexpr double kTail = 3.442619855899, kLayerArea = 9.91256303526217e-3;

  // Beyond kTail, by Marsaglia 1964.
  static double tail(ElementDraws& draws) {
    while (true) {
      const double x = -std::log(draws.uniform()) / kTail, y = -std::log(draws.uniform());
      if (2 * y >= x * x) return kTail + x;
    }
  }

  std::array<double, kLayers + 1> edge_;
};

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
  static const Ziggurat normal;
  const double deviation = parameter.initializer.std;
  const auto count = static_cast<int64_t>(out.size());
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < count; ++i)
    out[static_cast<size_t>(i)] = static_cast<float>(deviation * normal(ElementDraws(stream, first + i)));
}

}  // namespace snug
