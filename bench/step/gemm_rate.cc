#include "gemm_rate.h"

#include <algorithm>
#include <chrono>
#include <span>

namespace snug::bench {
namespace {

constexpr int64_t kElements = GemmRate::kSize * GemmRate::kSize;

// Numerical Recipes' generator: operands differ, since a processor's speed may depend on how many bits change.
uint32_t next(uint32_t& state) { return state = state * 1664525u + 1013904223u; }

void fill(std::span<float> values) {
  uint32_t state = 1;
  for (float& value : values) value = static_cast<float>(static_cast<int32_t>(next(state))) * 0x1p-31f;
}

// bf16 values of either sign in [0.5, 2).
void fill(std::span<uint16_t> values) {
  uint32_t state = 1;
  for (uint16_t& value : values) value = static_cast<uint16_t>((next(state) >> 16 & 0x80FF) | 0x3F00);
}

}  // namespace

GemmRate::GemmRate(const cpu::Dispatch& dispatch, Precision precision)
    : matrices_(Bytes(3 * kElements * 4), "reference product") {
  matrices_.commit(matrices_.size());
  matrices_.touch();
  const std::span<float> values(reinterpret_cast<float*>(matrices_.bytes().data()), 3 * kElements);
  fill(values);
  run();
  const cpu::MatmulShape shape{.m = kSize, .n = kSize, .k = kSize};
  if (precision != Precision::kBF16 || !dispatch.native_bf16_products() || cpu::Matmul::refusal(shape))
    return;

  const double f32_rate = measure();
  bf16_ = std::make_unique<cpu::Matmul>(shape, dispatch.threads);
  scratch_ = Reservation(std::max(cpu::Matmul::scratch_bytes(shape, dispatch.threads), kMiB),
                         "reference product's scratch");
  scratch_.commit(scratch_.size());
  fill(std::span(reinterpret_cast<uint16_t*>(matrices_.bytes().data()), 2 * kElements));
  dtype_ = DType::kBF16;
  run();
  if (measure() >= f32_rate) return;
  dtype_ = DType::kF32;
  fill(values);
}

double GemmRate::measure() {
  const auto begin = std::chrono::steady_clock::now();
  run();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return 2.0 * kSize * kSize * kSize / seconds;
}

void GemmRate::run() {
  std::byte* bytes = matrices_.bytes().data();
  if (dtype_ == DType::kBF16) {
    bf16_->run(bytes, bytes + kElements * 2, bytes + kElements * 8, scratch_.bytes().data());
    return;
  }
  float* values = reinterpret_cast<float*>(bytes);
  cpu::sgemm(false, false, kSize, kSize, kSize, values, kSize, values + kElements, kSize, 0,
             values + 2 * kElements, kSize);
}

}  // namespace snug::bench
