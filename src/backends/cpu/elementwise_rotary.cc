// Rotary positions: the table of cosines and sines, and the rotation of heads. Parallel over tokens.
#include "backends/cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise_rotary.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "backends/cpu/vector_io.h"
#include "base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {
namespace {

// One token's heads: x, y (H·2·pairs); cosine, sine (pairs). Rounded like the reference: two products, one
// sum.
template <typename A>
void rotate(const A* x, const float* cosine, const float* sine, float sign, int64_t heads, int64_t pairs,
            A* y) {
  const FloatVector signs = hn::Set(FloatTag(), sign);
  for (int64_t head = 0; head < heads; ++head) {
    const A *first = x + head * 2 * pairs, *second = first + pairs;
    A *to_first = y + head * 2 * pairs, *to_second = to_first + pairs;
    for_lanes(0, pairs, [&](auto lanes) {
      const FloatVector c = lanes.load(cosine), s = hn::Mul(signs, lanes.load(sine));
      const FloatVector x1 = lanes.load(first), x2 = lanes.load(second);
      lanes.store(hn::Sub(hn::Mul(x1, c), hn::Mul(x2, s)), to_first);
      lanes.store(hn::Add(hn::Mul(x2, c), hn::Mul(x1, s)), to_second);
    });
  }
}

void rotate_token(DType activation, const std::byte* x, const float* cosine, const float* sine, float sign,
                  int64_t heads, int64_t pairs, std::byte* y) {
  if (activation == DType::kBF16)
    rotate(reinterpret_cast<const BFloat16*>(x), cosine, sine, sign, heads, pairs,
           reinterpret_cast<BFloat16*>(y));
  else
    rotate(reinterpret_cast<const float*>(x), cosine, sine, sign, heads, pairs, reinterpret_cast<float*>(y));
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <cmath>

#include "backends/cpu/elementwise_kernels.h"
#include "backends/cpu/parallel_ranges.h"
#include "backends/cpu/rotary_frequencies.h"

namespace snug::cpu {
namespace {

HWY_EXPORT(rotate_token);

class RotaryTableKernel : public Kernel {
 public:
  explicit RotaryTableKernel(const Binding& binding)
      : positions_(binding.inputs.at(0).as<int32_t>()),
        cosine_(binding.outputs.at(0).as<float>()),
        sine_(binding.outputs.at(1).as<float>()),
        tokens_(binding.inputs.at(0).elements()),
        pairs_(binding.outputs.at(0).type.shape.last()),
        threads_(binding.dispatch.threads) {
    const RotaryFrequencies<float> frequencies(binding.attributes);
    factor_ = frequencies.factor();
    for (int64_t pair = 0; pair < pairs_; ++pair) inverse_.push_back(frequencies.inverse(pair));
  }
  void run(bool) override {
    parallel_ranges(threads_, tokens_, 1, 32, [this](int64_t first, int64_t last) {
      for (int64_t token = first; token < last; ++token)
        for (int64_t pair = 0; pair < pairs_; ++pair) {
          const float angle = static_cast<float>(positions_[token]) * inverse_[static_cast<size_t>(pair)];
          cosine_[token * pairs_ + pair] = std::cos(angle) * factor_;
          sine_[token * pairs_ + pair] = std::sin(angle) * factor_;
        }
    });
  }

 private:
  const int32_t* positions_;
  float *cosine_, *sine_;
  int64_t tokens_, pairs_;
  std::vector<float> inverse_;
  float factor_ = 1;
  int threads_;
};

class RotaryKernel : public Kernel {
 public:
  explicit RotaryKernel(const Binding& binding)
      : x_(binding.inputs.at(0)),
        cosine_(binding.inputs.at(1).as<float>()),
        sine_(binding.inputs.at(2).as<float>()),
        y_(binding.outputs.at(0).data),
        heads_(binding.attributes.integer("heads")),
        pairs_(binding.inputs.at(1).type.shape.last()),
        sign_(binding.attributes.integer_or("inverse", 0) != 0 ? -1.0f : 1.0f),
        threads_(binding.dispatch.threads) {}
  void run(bool) override {
    const auto rotate = HWY_DYNAMIC_DISPATCH(rotate_token);
    const int64_t row_bytes = x_.type.shape.last() * dtype_bytes(x_.type.dtype);
    parallel_ranges(threads_, x_.type.shape.rows(), 1, 16, [&](int64_t first, int64_t last) {
      for (int64_t token = first; token < last; ++token)
        rotate(x_.type.dtype, x_.data + token * row_bytes, cosine_ + token * pairs_, sine_ + token * pairs_,
               sign_, heads_, pairs_, y_ + token * row_bytes);
    });
  }

 private:
  Operand x_;
  const float *cosine_, *sine_;
  std::byte* y_;
  int64_t heads_, pairs_;
  float sign_;
  int threads_;
};

}  // namespace

std::unique_ptr<Kernel> make_rotary_table(const Binding& binding) {
  return std::make_unique<RotaryTableKernel>(binding);
}
std::unique_ptr<Kernel> make_rotary(const Binding& binding) {
  return std::make_unique<RotaryKernel>(binding);
}

}  // namespace snug::cpu

#endif  // HWY_ONCE
