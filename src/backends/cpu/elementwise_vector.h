// backends/cpu/elementwise_vector.h — element-wise arithmetic over ranges; included once per Highway target
#if defined(SNUG_BACKENDS_CPU_ELEMENTWISE_VECTOR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_BACKENDS_CPU_ELEMENTWISE_VECTOR_H_
#undef SNUG_BACKENDS_CPU_ELEMENTWISE_VECTOR_H_
#else
#define SNUG_BACKENDS_CPU_ELEMENTWISE_VECTOR_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <memory>

#include "backends/cpu/elementwise.h"
#include "backends/cpu/elementwise_math.h"
#include "backends/cpu/vector_io.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {
namespace {

// outputs[0] = function(inputs[0])
template <typename Function>
HWY_INLINE void map1(DType type, const ElementwiseOperands& o, int64_t first, int64_t last,
                     const Function& function) {
  by_type(type, [&](auto sample) {
    using A = decltype(sample);
    for_lanes(first, last,
              [&](auto lanes) { lanes.store(function(lanes.load(o.input<A>(0))), o.output<A>(0)); });
  });
}

// outputs[0] = function(inputs[0], inputs[1])
template <typename Function>
HWY_INLINE void map2(DType type, const ElementwiseOperands& o, int64_t first, int64_t last,
                     const Function& function) {
  by_type(type, [&](auto sample) {
    using A = decltype(sample);
    for_lanes(first, last, [&](auto lanes) {
      lanes.store(function(lanes.load(o.input<A>(0)), lanes.load(o.input<A>(1))), o.output<A>(0));
    });
  });
}

void add(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  map2(type, o, first, last, [](FloatVector a, FloatVector b) { return hn::Add(a, b); });
}

void gelu_tanh(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  map1(type, o, first, last, [](FloatVector u) { return gelu_by_tanh(u); });
}

void gelu_erf(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  map1(type, o, first, last, [](FloatVector u) { return gelu_exact(u); });
}

void gelu_tanh_backward(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  map2(type, o, first, last,
       [](FloatVector d_h, FloatVector u) { return hn::Mul(d_h, gelu_by_tanh_derivative(u)); });
}

void gelu_erf_backward(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  map2(type, o, first, last,
       [](FloatVector d_h, FloatVector u) { return hn::Mul(d_h, gelu_exact_derivative(u)); });
}

void swiglu(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  by_type(type, [&](auto sample) {
    using A = decltype(sample);
    for_lanes(first, last, [&](auto lanes) {
      const FloatVector gate = lanes.load(o.input<A>(0));
      FloatVector e;
      const FloatVector silu = rounded_vector<A>(hn::Mul(gate, sigmoid(gate, e)));
      lanes.store(hn::Mul(silu, lanes.load(o.input<A>(1))), o.output<A>(0));
    });
  });
}

// d_gate = d_h·up·σ(1 + gate(1−σ)),  d_up = d_h·round_A(gate·σ)
void swiglu_backward(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  by_type(type, [&](auto sample) {
    using A = decltype(sample);
    for_lanes(first, last, [&](auto lanes) {
      const FloatVector d_h = lanes.load(o.input<A>(0)), gate = lanes.load(o.input<A>(1));
      const FloatVector up = lanes.load(o.input<A>(2));
      FloatVector e;
      const FloatVector s = sigmoid(gate, e);
      const FloatVector silu = hn::Mul(gate, s);
      const FloatVector slope = hn::MulAdd(silu, hn::Mul(s, e), s);
      lanes.store(hn::Mul(hn::Mul(d_h, up), slope), o.output<A>(0));
      lanes.store(hn::Mul(d_h, rounded_vector<A>(silu)), o.output<A>(1));
    });
  });
}

// The type is the weight's, bf16 or f16.
void narrow(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  const auto narrow_to = [&](auto* weight) {
    for_lanes(first, last,
              [&](auto lanes) { lanes.store_weight(lanes.load(o.input<float>(0)), weight); });
  };
  if (type == DType::kF16)
    narrow_to(o.output<Float16>(0));
  else
    narrow_to(o.output<BFloat16>(0));
}

void words_of_groups(const RandomStream& stream, uint64_t first_group, int64_t groups, uint32_t* words) {
  int64_t group = 0;
  for (; group + kLanes <= groups; group += kLanes)
    philox_block(stream, first_group + static_cast<uint64_t>(group), words + 4 * group);
  if (group == groups) return;
  uint32_t block[4 * kLanes];
  philox_block(stream, first_group + static_cast<uint64_t>(group), block);
  std::memcpy(words + 4 * group, block, static_cast<size_t>(groups - group) * 16);
}

// Elements [first, last) of one sample; `first` is a multiple of 4, threshold ≤ 2³²−1.
void drop(DType type, const ElementwiseOperands& o, const RandomStream& stream, uint32_t threshold,
          float scale, int64_t first, int64_t last) {
  by_type(type, [&](auto sample) {
    using A = decltype(sample);
    const FloatTag floats;
    uint32_t words[4 * kLanes];
    for (int64_t block = first; block < last; block += 4 * kLanes) {
      philox_block(stream, static_cast<uint64_t>(block / 4), words);
      for_lanes(block, std::min(block + 4 * kLanes, last), [&](auto lanes) {
        const auto word = hn::LoadU(WordTag(), words + (lanes.at - block));
        const auto dropped = hn::RebindMask(floats, hn::Lt(word, hn::Set(WordTag(), threshold)));
        const FloatVector scaled = hn::Mul(lanes.load(o.input<A>(0)), constant(scale));
        lanes.store(hn::IfThenZeroElse(dropped, scaled), o.output<A>(0));
      });
    }
  });
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
