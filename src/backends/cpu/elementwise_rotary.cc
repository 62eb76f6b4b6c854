// Rotary positions: the table of cosines and sines, and the rotation of heads. Parallel over tokens.
#include "backends/cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise_rotary_vector.h"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include "backends/cpu/elementwise_rotary_vector.h"

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
