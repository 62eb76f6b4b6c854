// backends/cpu/reference_swiglu.h — one element of SwiGLU and of its backward, rounded to A where docs/operations.md says it
#pragma once

#include <cmath>

#include "backends/cpu/reference.h"

namespace snug::cpu::reference {

// round_A(gate·σ(gate))·up; Shazeer 2020.
template <typename A>
A swiglu(Compute<A> gate, Compute<A> up) {
  const Compute<A> s = 1 / (1 + std::exp(-gate));
  return store<A>(rounded<A>(gate * s) * up);
}

template <typename A>
struct SwigluGradient {
  A gate, up;
};
template <typename A>
SwigluGradient<A> swiglu_gradient(Compute<A> d_h, Compute<A> gate, Compute<A> up) {
  const Compute<A> s = 1 / (1 + std::exp(-gate));
  return {store<A>(d_h * up * (s * (1 + gate * (1 - s)))), store<A>(d_h * rounded<A>(gate * s))};
}

}  // namespace snug::cpu::reference
