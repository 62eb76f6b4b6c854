// backends/cpu/rotary_frequencies.h — inverse frequencies of rotary positions for every supported scaling
#pragma once

#include <cstdint>

#include "base/attributes.h"

namespace snug::cpu {

// From the attributes of `rotary_table`. Real is float (the arithmetic of transformers'
// modeling_rope_utils.py, element for element: exponent, power and quotient in f32) or double (gradient
// checks).
//   default  Su et al. 2021, section 3.2.2: θ_i = theta^(−2i/D)
//   linear   θ_i / factor: Chen et al. 2023, "Extending context window … via positional interpolation", eq. 3
//   llama3   _compute_llama3_parameters: long wavelengths divided by factor, short ones kept, a linear blend
//   between yarn     _compute_yarn_parameters; Peng et al. 2023, "YaRN", section 3.2 (ramp) and eq. 22
//   (attention factor)
template <typename Real>
class RotaryFrequencies {
 public:
  // Throws InternalError for an unknown type or a missing key.
  explicit RotaryFrequencies(const Attributes& attributes);

  // Radians a position, for channel pair `pair` of D/2. Allocates nothing.
  Real inverse(int64_t pair) const;
  // cos and sin are multiplied by this (yarn; 1 otherwise).
  Real factor() const { return attention_factor_; }

 private:
  enum class Type { kDefault, kLinear, kLlama3, kYarn };

  Real llama3(Real frequency) const;
  Real yarn(int64_t pair, Real power) const;

  Type type_ = Type::kDefault;
  double theta_ = 0, head_dim_ = 0;
  double factor_ = 1, context_ = 0;
  double low_ = 0, high_ = 0;  // llama3: frequency factors; yarn: the pairs between which the ramp rises
  Real attention_factor_ = 1;
};

extern template class RotaryFrequencies<float>;
extern template class RotaryFrequencies<double>;

}  // namespace snug::cpu
