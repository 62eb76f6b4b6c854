// backends/cpu/norm_operands.h — the operands of every norm kernel, row by row
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace snug::cpu {

// Null where the operation has no such operand. Activations and weights are of the activation type.
struct NormOperands {
  const std::byte *x = nullptr, *d_y = nullptr;        // (rows, C)
  const std::byte *weight = nullptr, *bias = nullptr;  // (C)
  const float *mean = nullptr, *rstd = nullptr;        // (rows), saved by the forward
  std::byte* y = nullptr;                              // (rows, C): y or d_x
  float *mean_out = nullptr, *rstd_out = nullptr;      // (rows)
  int64_t channels = 0;
  float eps = 0;

  template <typename A>
  const A* x_row(int64_t row) const {
    return reinterpret_cast<const A*>(x) + row * channels;
  }
  template <typename A>
  const A* d_y_row(int64_t row) const {
    return reinterpret_cast<const A*>(d_y) + row * channels;
  }
  template <typename A>
  A* y_row(int64_t row) const {
    return reinterpret_cast<A*>(y) + row * channels;
  }
  template <typename A>
  const A* weights() const {
    return reinterpret_cast<const A*>(weight);
  }
  template <typename A>
  const A* biases() const {
    return reinterpret_cast<const A*>(bias);
  }
};

}  // namespace snug::cpu
