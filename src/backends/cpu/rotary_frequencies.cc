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

}  // namespace

template <typename Real>
RotaryFrequencies<Real>::RotaryFrequencies(const Attributes& attributes) {
  const std::string type = attributes.word_or("type", "default");
  theta_ = number(attributes, "theta");
  head_dim_ = static_cast<double>(attributes.integer("head_dim"));
  if (type == "default") return;
  require(type == "linear" || type == "llama3" || type == "yarn",
          "rotary_table: type is {}, expected default, linear, llama3 or yarn", type);
  factor_ = number(attributes, "factor");
  type_ = Type::kLinear;
  if (type == "linear") return;
  context_ = number(attributes, "original_max_position_embeddings");
  if (type == "llama3") {
    type_ = Type::kLlama3;
    low_ = number(attributes, "low_freq_factor");
    high_ = number(attributes, "high_freq_factor");
    return;
  }
  type_ = Type::kYarn;
  low_ = correction_dimension(number_or(attributes, "beta_fast", 32), head_dim_, theta_, context_);
  high_ = correction_dimension(number_or(attributes, "beta_slow", 1), head_dim_, theta_, context_);
  if (attributes.integer_or("truncate", 1) != 0) {
    low_ = std::floor(low_);
    high_ = std::ceil(high_);
  }
  low_ = std::max(low_, 0.0);
  high_ = std::min(high_, head_dim_ - 1);
  if (low_ == high_) high_ += 0.001;
  const double derived = factor_ <= 1 ? 1.0 : 0.1 * std::log(factor_) + 1.0;
  attention_factor_ = static_cast<Real>(number_or(attributes, "attention_factor", derived));
}

template <typename Real>
Real RotaryFrequencies<Real>::inverse(int64_t pair) const {
  const Real exponent = static_cast<Real>(2 * pair) / static_cast<Real>(head_dim_);
  const Real power = static_cast<Real>(std::pow(theta_, static_cast<double>(exponent)));
  switch (type_) {
    case Type::kDefault:
      break;
    case Type::kLinear:
      return 1 / power / static_cast<Real>(factor_);
    case Type::kLlama3:
      return llama3(1 / power);
    case Type::kYarn:
      return yarn(pair, power);
  }
  return 1 / power;
}

template <typename Real>
Real RotaryFrequencies<Real>::llama3(Real frequency) const {
  const Real wavelength = static_cast<Real>(2 * std::numbers::pi) / frequency;
  if (wavelength > static_cast<Real>(context_ / low_)) return frequency / static_cast<Real>(factor_);
  if (wavelength < static_cast<Real>(context_ / high_)) return frequency;
  const Real smooth =
      (static_cast<Real>(context_) / wavelength - static_cast<Real>(low_)) / static_cast<Real>(high_ - low_);
  return (1 - smooth) * frequency / static_cast<Real>(factor_) + smooth * frequency;
}

template <typename Real>
Real RotaryFrequencies<Real>::yarn(int64_t pair, Real power) const {
  const Real ramp =
      std::clamp((static_cast<Real>(pair) - static_cast<Real>(low_)) / static_cast<Real>(high_ - low_),
                 Real{0}, Real{1});
  const Real extrapolated = 1 / power, interpolated = 1 / (static_cast<Real>(factor_) * power);
  const Real keep = 1 - ramp;
  return interpolated * (1 - keep) + extrapolated * keep;
}

template class RotaryFrequencies<float>;
template class RotaryFrequencies<double>;

}  // namespace snug::cpu
