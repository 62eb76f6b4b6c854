// backends/cpu/panel.h — moving rows in and out of f32 panels: widening bf16 and f16, and finishing a product
//
// Where a processor cannot multiply a 16-bit type, products are made in f32 panels that stay in cache. Each of these
// functions is one pass over such a panel, parallel over rows, and element-wise: its bits do not depend on
// threads, panels or alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace snug::cpu {

// A row-major matrix of f32, bf16 or f16; `stride` is the number of elements from one row to the next.
struct ConstRows {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t stride = 0;

  // The same matrix from (row, column) on.
  ConstRows from(int64_t row, int64_t column) const {
    return {data + (row * stride + column) * dtype_bytes(dtype), dtype, stride};
  }
  const float* f32() const { return reinterpret_cast<const float*>(data); }
};

struct Rows {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t stride = 0;

  Rows from(int64_t row, int64_t column) const {
    return {data + (row * stride + column) * dtype_bytes(dtype), dtype, stride};
  }
  float* f32() const { return reinterpret_cast<float*>(data); }
  operator ConstRows() const { return {data, dtype, stride}; }
};

// to (rows, columns) f32 = from, which is f32, bf16 or f16.
void widen_rows(ConstRows from, int64_t rows, int64_t columns, Rows to);

// y = round_A(residual + round_A(product + bias)), where A is y's type, f32, bf16 or f16. `bias` (one of these, one
// row) and `residual` (A) may be absent (data == nullptr). y may be the product's or the residual's own
// storage.
void finish_rows(ConstRows product, ConstRows bias, ConstRows residual, int64_t rows, int64_t columns,
                 Rows y);

}  // namespace snug::cpu
