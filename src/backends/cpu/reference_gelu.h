// backends/cpu/reference_gelu.h — GELU and its derivative by std functions, in the argument's precision
//
// Hendrycks & Gimpel 2016, section 2: u·Φ(u), or ½u(1 + tanh(√(2/π)(u + 0.044715u³))).
#pragma once

#include <cmath>
#include <numbers>

namespace snug::cpu::reference {

// √(2/π)
template <typename Real>
constexpr Real kGeluInner = static_cast<Real>(std::numbers::sqrt2* std::numbers::inv_sqrtpi);

template <typename Real>
Real gelu(Real u, bool by_tanh) {
  if (!by_tanh) return Real(0.5) * u * (1 + std::erf(u * static_cast<Real>(1 / std::numbers::sqrt2)));
  return Real(0.5) * u * (1 + std::tanh(kGeluInner<Real> * (u + Real(0.044715) * u * u * u)));
}

template <typename Real>
Real gelu_derivative(Real u, bool by_tanh) {
  if (!by_tanh) {
    const Real density =
        std::exp(Real(-0.5) * u * u) * static_cast<Real>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    return Real(0.5) * (1 + std::erf(u * static_cast<Real>(1 / std::numbers::sqrt2))) + u * density;
  }
  const Real t = std::tanh(kGeluInner<Real> * (u + Real(0.044715) * u * u * u));
  const Real inner = kGeluInner<Real> * (1 + Real(3 * 0.044715) * u * u);
  return Real(0.5) * (1 + t) + Real(0.5) * u * (1 - t * t) * inner;
}

}  // namespace snug::cpu::reference
