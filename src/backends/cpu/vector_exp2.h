// backends/cpu/vector_exp2.h — 2^x for vectors, the exponential of attention and of the loss
//
// Included once per Highway target, like vector_io.h.
#if defined(SNUG_BACKENDS_CPU_VECTOR_EXP2_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_BACKENDS_CPU_VECTOR_EXP2_H_
#undef SNUG_BACKENDS_CPU_VECTOR_EXP2_H_
#else
#define SNUG_BACKENDS_CPU_VECTOR_EXP2_H_
#endif

#include "backends/cpu/vector_io.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {

// 2^x for x ≤ 127: 0 below −126 (so also for −∞), NaN for NaN. x = n + r with |r| ≤ ½; 2^r is a polynomial fitted to
// relative error 2.5e−9 before rounding.
HWY_INLINE FloatVector exp2_vector(FloatVector x) {
  const FloatTag floats;
  const hn::RebindToSigned<FloatTag> integers;
  const FloatVector n = hn::Round(x);
  const FloatVector r = hn::Sub(x, n);
  FloatVector p = hn::Set(floats, 1.546144470e-04f);
  for (float c :
       {1.340042818e-03f, 9.618056679e-03f, 5.550327227e-02f, 2.402265092e-01f, 6.931472067e-01f, 1.0f})
    p = hn::MulAdd(p, r, hn::Set(floats, c));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(integers, n), hn::Set(integers, 127)));
  const FloatVector y = hn::Mul(p, hn::BitCast(floats, exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(floats, -126.0f)), y);
}

}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
