// backends/cpu/float16.h — the scalar f16 type of kernels (IEEE binary16), with the roundings of base/float16.h
//
// Activations and weights alike round to nearest even: there are no spare low bits to keep beside an f16 weight. Vector forms with
// the same bits: vector_io.h.
#pragma once

#include <cstdint>

#include "base/float16.h"

namespace snug::cpu {

struct Float16 {
  uint16_t bits = 0;
};

inline float widen(Float16 x) { return widen_f16(x.bits); }
inline Float16 narrow_to_f16(float x) { return {narrow_f16(x)}; }

}  // namespace snug::cpu
