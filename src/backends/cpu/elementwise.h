// backends/cpu/elementwise.h — element-wise arithmetic on ranges, for the element-wise kernels and for fused
// ones
//
// Every function runs on the calling thread and may be called inside a parallel region. A is f32, bf16 or
// f16; arithmetic is in f32 and each result is rounded once. An element's bits depend on its operands alone, never
// on the range it was computed in, so a fused operation that calls these gives the bits of its plain
// decomposition. Outputs may be their inputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/philox.h"
#include "base/dtype.h"

namespace snug::cpu {

// Operands of one element-wise operation; what each position holds is said at its function.
struct ElementwiseOperands {
  const std::byte* inputs[3] = {};
  std::byte* outputs[2] = {};

  template <typename T>
  const T* input(size_t position) const {
    return reinterpret_cast<const T*>(inputs[position]);
  }
  template <typename T>
  T* output(size_t position) const {
    return reinterpret_cast<T*>(outputs[position]);
  }
};

// Computes elements [first, last).
using ElementwiseRange = void (*)(DType activation, const ElementwiseOperands& operands, int64_t first,
                                  int64_t last);

// The function for this processor's class: choose_dispatch must have been called before.
ElementwiseRange add_range();                        // a, b → y
ElementwiseRange gelu_range(bool by_tanh);           // u → h
ElementwiseRange gelu_backward_range(bool by_tanh);  // d_h, u → d_u
ElementwiseRange swiglu_range();                     // gate, up → h
ElementwiseRange swiglu_backward_range();            // d_h, gate, up → d_gate, d_up
ElementwiseRange narrow_weight_range();              // master f32 → w, whose type is the activation's

// words[0, 4·groups) = the random words of elements [4·first_group, 4·(first_group + groups)).
void philox_words(const RandomStream& stream, uint64_t first_group, int64_t groups, uint32_t* words);

}  // namespace snug::cpu
