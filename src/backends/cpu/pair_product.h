// backends/cpu/pair_product.h — small products of bf16 on the calling thread, where the processor multiplies bf16
//
// The processor multiplies pairs: a lane adds both products of two pairs to its f32 sum. A pair holds two neighbours along the dimension
// that is summed, the first in the low half; an odd last one is paired with 0. Denormal numbers count as 0.
#pragma once

#include <cstdint>

namespace snug::cpu {

using Bf16Pair = uint32_t;

// Columns are multiplied so many at a time: rows of b and c have room for the next multiple.
constexpr int64_t kPairColumns = 16;

// Pair p of row r is data[r · row + p · pair].
struct LeftPairs {
  const Bf16Pair* data = nullptr;
  int64_t row = 0, pair = 1;
};

// c (rows, columns) = a (rows, 2 · pairs) · b, or c plus that. b holds a row of `columns` pairs for each two rows of the matrix. Every element
// is one sum over the pairs in order. Needs a processor for which bf16_product_refusal (onednn.h) is silent.
void multiply_pairs(int64_t rows, int64_t columns, int64_t pairs, LeftPairs a, const Bf16Pair* b,
                    int64_t b_stride, bool adds, float* c, int64_t c_stride);

}  // namespace snug::cpu
