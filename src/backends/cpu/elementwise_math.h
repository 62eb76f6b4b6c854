// backends/cpu/elementwise_math.h — vector forms of the activation functions and of Philox; included once per
// Highway target
#if defined(SNUG_BACKENDS_CPU_ELEMENTWISE_MATH_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_BACKENDS_CPU_ELEMENTWISE_MATH_H_
#undef SNUG_BACKENDS_CPU_ELEMENTWISE_MATH_H_
#else
#define SNUG_BACKENDS_CPU_ELEMENTWISE_MATH_H_
#endif

#include <hwy/contrib/math/math-inl.h>

#include "backends/cpu/philox.h"
#include "backends/cpu/vector_io.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {

HWY_INLINE FloatVector constant(float value) { return hn::Set(FloatTag(), value); }

// e^x for x ≤ 88: larger arguments give e^88, so that 1/(1 + e^x) goes to 0 without an infinity in between.
HWY_INLINE FloatVector bounded_exp(FloatVector x) { return hn::Exp(FloatTag(), hn::Min(x, constant(88.0f))); }

// σ(x) = 1/(1 + e⁻ˣ); `exp_minus` receives e⁻ˣ, so that 1 − σ = σ·e⁻ˣ without cancellation.
HWY_INLINE FloatVector sigmoid(FloatVector x, FloatVector& exp_minus) {
  exp_minus = bounded_exp(hn::Neg(x));
  return hn::Div(constant(1.0f), hn::Add(constant(1.0f), exp_minus));
}

// 2√(2/π)(u + 0.044715u³): ½(1 + tanh z) = σ(2z)
HWY_INLINE FloatVector gelu_argument(FloatVector u) {
  const FloatVector cubic = hn::MulAdd(hn::Mul(u, u), constant(0.044715f), constant(1.0f));
  return hn::Mul(hn::Mul(u, constant(1.5957691216057308f)), cubic);
}

HWY_INLINE FloatVector gelu_by_tanh(FloatVector u) {
  const FloatVector e = bounded_exp(hn::Neg(gelu_argument(u)));
  return hn::Div(u, hn::Add(constant(1.0f), e));
}

// σ + u·σ(1−σ)·(2z)′
HWY_INLINE FloatVector gelu_by_tanh_derivative(FloatVector u) {
  FloatVector e;
  const FloatVector s = sigmoid(gelu_argument(u), e);
  const FloatVector inner = hn::Mul(constant(1.5957691216057308f),
                                    hn::MulAdd(hn::Mul(u, u), constant(3 * 0.044715f), constant(1.0f)));
  return hn::MulAdd(hn::Mul(u, inner), hn::Mul(hn::Mul(s, e), s), s);
}

// erfc(t) for t ≥ 0 to about 2⁻²² of 1: 1 − t(1 + P(t²)) below 0.92, e^−Q(t) above; P and Q interpolate
// (erf(√s)/√s) − 1 and −ln erfc(t) at Chebyshev nodes (errors below 1e−8 before rounding). Arguments above 4
// give erfc(4) = 1.5e−8.
HWY_INLINE FloatVector complementary_error(FloatVector t) {
  const FloatVector s = hn::Mul(t, t);
  FloatVector p = constant(8.399424651e-05f);
  for (float c : {-8.149968112e-04f, 5.201707420e-03f, -2.685968782e-02f, 1.128370112e-01f, -3.761263414e-01f,
                  1.283791667e-01f})
    p = hn::MulAdd(p, s, constant(c));
  const FloatVector near = hn::Sub(constant(1.0f), hn::MulAdd(p, t, t));
  const FloatVector bounded = hn::Min(t, constant(4.0f));
  FloatVector q = constant(-1.643569654e-06f);
  for (float c : {4.617791279e-05f, -5.977434720e-04f, 4.763575249e-03f, -2.643101760e-02f, 1.100944808e-01f,
                  6.318145167e-01f, 1.130237616e+00f, -3.204415313e-04f})
    q = hn::MulAdd(q, bounded, constant(c));
  return hn::IfThenElse(hn::Lt(t, constant(0.92f)), near, hn::Exp(FloatTag(), hn::Neg(q)));
}

// Φ(u) = ½erfc(−u/√2)
HWY_INLINE FloatVector normal_distribution(FloatVector u) {
  const FloatVector half =
      hn::Mul(constant(0.5f), complementary_error(hn::Mul(hn::Abs(u), constant(0.70710678118654752f))));
  return hn::IfThenElse(hn::Lt(u, constant(0.0f)), half, hn::Sub(constant(1.0f), half));
}

HWY_INLINE FloatVector gelu_exact(FloatVector u) { return hn::Mul(u, normal_distribution(u)); }

// Φ(u) + u·φ(u)
HWY_INLINE FloatVector gelu_exact_derivative(FloatVector u) {
  const FloatVector density =
      hn::Mul(hn::Exp(FloatTag(), hn::Mul(hn::Mul(u, u), constant(-0.5f))), constant(0.39894228040143268f));
  return hn::MulAdd(u, density, normal_distribution(u));
}

// High and low halves of the 32 × 32 → 64 bit products of every lane.
HWY_INLINE void multiply_wide(WordVector a, uint32_t multiplier, WordVector& high, WordVector& low) {
  const WordTag words;
  const hn::Repartition<uint64_t, WordTag> pairs;
  const WordVector m = hn::Set(words, multiplier);
  const auto even = hn::MulEven(a, m);
  const auto odd = hn::MulEven(hn::BitCast(words, hn::ShiftRight<32>(hn::BitCast(pairs, a))), m);
  high = hn::OddEven(hn::BitCast(words, odd), hn::BitCast(words, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(words, hn::ShiftLeft<32>(odd)), hn::BitCast(words, even));
}

// words[0, 4·kLanes) = the words of groups [first_group, first_group + kLanes).
HWY_INLINE void philox_block(const RandomStream& stream, uint64_t first_group, uint32_t* words) {
  const WordTag tag;
  uint32_t low[kLanes], high[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    const uint64_t group = first_group + static_cast<uint64_t>(lane);
    low[lane] = static_cast<uint32_t>(group);
    high[lane] = static_cast<uint32_t>(group >> 32);
  }
  WordVector c0 = hn::LoadU(tag, low), c1 = hn::LoadU(tag, high);
  WordVector c2 = hn::Set(tag, stream.update), c3 = hn::Set(tag, stream.sample);
  uint32_t key0 = stream.key[0], key1 = stream.key[1];
  for (int round = 0; round < 10; ++round, key0 += kPhiloxWeyl0, key1 += kPhiloxWeyl1) {
    WordVector high0, low0, high1, low1;
    multiply_wide(c0, kPhiloxMultiplier0, high0, low0);
    multiply_wide(c2, kPhiloxMultiplier1, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(tag, key0));
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(tag, key1));
    c1 = low1;
    c3 = low0;
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, tag, words);
}

}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
