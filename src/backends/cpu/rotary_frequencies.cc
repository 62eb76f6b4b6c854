#include "backends/cpu/rotary_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "backends/cpu/reference.h"
#include "base/errors.h"

namespace snug::cpu {
namespace {

using reference::number;
using reference::number_or;

// The channel pair at which `rotations` full turns happen within the original context.
double correction_dimension(double rotations, double head_dim, double theta, double context) {
  return head_dim * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

template <typename Real>
void scale_llama3(const Attributes& attributes, std::vector<Real>& inverse) {
  const double factor = number(attributes, "factor");
  const double low = number(attributes, "low_freq_factor"), high = number(attributes, "high_freq_factor");
  const double context = number(attributes, "original_max_position_embeddings");
  for (Real& frequency : inverse) {
    const Real wavelength = static_cast<Real>(2 * std::numbers::pi) / frequency;
    if (wavelength > static_cast<Real>(context / low)) {
      frequency = frequency / static_cast<Real>(factor);
    } else if (!(wavelength < static_cast<Real>(context / high))) {
      const Real smooth =
          (static_cast<Real>(context) / wavelength - static_cast<Real>(low)) / static_cast<Real>(high - low);
      frequency = (1 - smooth) * frequency / static_cast<Real>(factor) + smooth * frequency;
    }
  }
}

template <typename Real>
void scale_yarn(const Attributes& attributes, double head_dim, double theta, const std::vector<Real>& powers,
                RotaryFrequencies<Real>& frequencies) {
  const double factor = number(attributes, "factor");
  const double context = number(attributes, "original_max_position_embeddings");
  double low = correction_dimension(number_or(attributes, "beta_fast", 32), head_dim, theta, context);
  double high = correction_dimension(number_or(attributes, "beta_slow", 1), head_dim, theta, context);
  if (attributes.integer_or("truncate", 1) != 0) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1);
  if (low == high) high += 0.001;
  for (size_t pair = 0; pair < frequencies.inverse.size(); ++pair) {
    const Real ramp = std::clamp(
        (static_cast<Real>(pair) - static_cast<Real>(low)) / static_cast<Real>(high - low), Real{0}, Real{1});
    const Real extrapolated = frequencies.inverse[pair];
    const Real interpolated = 1 / (static_cast<Real>(factor) * powers[pair]);
    const Real keep = 1 - ramp;
    frequencies.inverse[pair] = interpolated * (1 - keep) + extrapolated * keep;
  }
  const double derived = factor <= 1 ? 1.0 : 0.1 * std::log(factor) + 1.0;
  frequencies.factor = static_cast<Real>(number_or(attributes, "attention_factor", derived));
}

}  // namespace

template <typename Real>
RotaryFrequencies<Real> rotary_frequencies(const Attributes& attributes) {
  const int64_t head_dim = attributes.integer("head_dim");
  const double theta = number(attributes, "theta");
  RotaryFrequencies<Real> frequencies;
  std::vector<Real> powers;
  for (int64_t pair = 0; pair < head_dim / 2; ++pair) {
    const Real exponent = static_cast<Real>(2 * pair) / static_cast<Real>(head_dim);
    powers.push_back(static_cast<Real>(std::pow(theta, static_cast<double>(exponent))));
    frequencies.inverse.push_back(1 / powers.back());
  }
  const std::string type = attributes.word_or("type", "default");
  if (type == "linear") {
    for (Real& frequency : frequencies.inverse) frequency /= static_cast<Real>(number(attributes, "factor"));
  } else if (type == "llama3") {
    scale_llama3(attributes, frequencies.inverse);
  } else if (type == "yarn") {
    scale_yarn(attributes, static_cast<double>(head_dim), theta, powers, frequencies);
  } else {
    require(type == "default", "rotary_table: type is {}, expected default, linear, llama3 or yarn", type);
  }
  return frequencies;
}

template RotaryFrequencies<float> rotary_frequencies<float>(const Attributes&);
template RotaryFrequencies<double> rotary_frequencies<double>(const Attributes&);

}  // namespace snug::cpu
