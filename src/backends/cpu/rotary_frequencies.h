// backends/cpu/rotary_frequencies.h — inverse frequencies of rotary positions for every supported scaling
#pragma once

#include <vector>

#include "base/attributes.h"

namespace snug::cpu {

template <typename Real>
struct RotaryFrequencies {
  std::vector<Real> inverse;  // (D/2): radians a position
  Real factor = 1;            // cos and sin are multiplied by it (yarn's attention factor)
};

// From the attributes of `rotary_table`. Real is float (the arithmetic of transformers'
// modeling_rope_utils.py, element for element: exponent, power and quotient in f32) or double (gradient
// checks).
//   default  Su et al. 2021, section 3.2.2: θ_i = theta^(−2i/D)
//   linear   θ_i / factor: Chen et al. 2023, "Extending context window … via positional interpolation", eq. 3
//   llama3   _compute_llama3_parameters: long wavelengths divided by factor, short ones kept, a linear blend
//   between yarn     _compute_yarn_parameters; Peng et al. 2023, "YaRN", section 3.2 (ramp) and eq. 22
//   (attention factor)
// Throws InternalError for an unknown type.
template <typename Real>
RotaryFrequencies<Real> rotary_frequencies(const Attributes& attributes);

extern template RotaryFrequencies<float> rotary_frequencies<float>(const Attributes&);
extern template RotaryFrequencies<double> rotary_frequencies<double>(const Attributes&);

}  // namespace snug::cpu
