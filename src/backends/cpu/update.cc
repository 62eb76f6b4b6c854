// The update's sweeps over a parameter: sum of squares of a gradient, and AdamW.
//
// sum_squares follows the tree of update_rules.h, so it has the reference's bits for any number of threads
// and any vector width. AdamW is one pass; its products and sums are separate instructions in PyTorch's
// order, which gives the reference's bits too.
#include "backends/cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/update.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>

#include "backends/cpu/update_rules.h"
#include "backends/cpu/vector_io.h"

// Once for all targets.
#ifndef SNUG_BACKENDS_CPU_UPDATE_CC_OPERANDS
#define SNUG_BACKENDS_CPU_UPDATE_CC_OPERANDS
namespace snug::cpu {
namespace {
struct AdamwOperands {
  float *weight, *m, *v;
  const float* gradient;
  BFloat16* copy;  // null without `narrow`
};
}  // namespace
}  // namespace snug::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {
namespace {

// Sum of squares of one block of at most kSumBlock elements. The square of an f32 is exact in f64.
double sum_block(const float* g, int64_t count) {
  using DoubleTag = hn::ScalableTag<double>;
  const DoubleTag doubles;
  const hn::Rebind<float, DoubleTag> halves;
  constexpr int64_t kDoubles = HWY_MAX_BYTES / 8, kVectors = kSumLanes / kDoubles;
  hn::Vec<DoubleTag> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(doubles);
  const auto add = [&](const float* from) {
    for (int64_t k = 0; k < kVectors; ++k) {
      const auto value = hn::PromoteTo(doubles, hn::LoadU(halves, from + k * kDoubles));
      sums[k] = hn::MulAdd(value, value, sums[k]);
    }
  };
  int64_t at = 0;
  for (; at + kSumLanes <= count; at += kSumLanes) add(g + at);
  if (at < count) {
    float padded[kSumLanes] = {};
    std::copy(g + at, g + count, padded);
    add(padded);
  }
  double lanes[kSumLanes];
  for (int64_t k = 0; k < kVectors; ++k) hn::StoreU(sums[k], doubles, lanes + k * kDoubles);
  return add_lanes(lanes);
}

// Elements [first, last); whether any weight changed.
bool adamw_range(const AdamwOperands& o, const AdamwScalars<float>& s, int64_t first, int64_t last) {
  const FloatTag floats;
  const auto set = [&](float value) { return hn::Set(floats, value); };
  const FloatVector clip = set(s.clip), decay = set(s.decay), beta2 = set(s.beta2), step = set(s.step_size);
  const FloatVector keep1 = set(s.one_minus_beta1), keep2 = set(s.one_minus_beta2);
  const FloatVector root = set(s.correction2_root), eps = set(s.eps);
  WordVector changed = hn::Zero(WordTag());
  for_lanes(first, last, [&](auto lanes) {
    const FloatVector gradient = hn::Mul(lanes.load(o.gradient), clip);
    const FloatVector before = lanes.load(o.weight);
    const FloatVector m0 = lanes.load(o.m);
    const FloatVector m = hn::Add(m0, hn::Mul(keep1, hn::Sub(gradient, m0)));
    const FloatVector v =
        hn::Add(hn::Mul(lanes.load(o.v), beta2), hn::Mul(hn::Mul(keep2, gradient), gradient));
    const FloatVector denominator = hn::Add(hn::Div(hn::Sqrt(v), root), eps);
    const FloatVector after = hn::Sub(hn::Mul(before, decay), hn::Mul(step, hn::Div(m, denominator)));
    lanes.store(m, o.m);
    lanes.store(v, o.v);
    lanes.store(after, o.weight);
    if (o.copy != nullptr) lanes.store_weight(after, o.copy);
    // Lanes beyond a ragged end may hold 0/0.
    const FloatVector difference = lanes.select(
        hn::BitCast(floats, hn::Xor(hn::BitCast(WordTag(), before), hn::BitCast(WordTag(), after))));
    changed = hn::Or(changed, hn::BitCast(WordTag(), difference));
  });
  return !hn::AllTrue(WordTag(), hn::Eq(changed, hn::Zero(WordTag())));
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <atomic>

#include "backends/cpu/elementwise_kernels.h"
#include "backends/cpu/parallel_ranges.h"

namespace snug::cpu {
namespace {

HWY_EXPORT(sum_block);
HWY_EXPORT(adamw_range);

// Scratch: one f64 a block.
Bytes block_sums(const OpQuery& query, const Dispatch&) {
  return Bytes(checked_mul(ceil_div(query.inputs[0].shape.elements(), kSumBlock), 8));
}

class SumSquaresKernel : public Kernel {
 public:
  explicit SumSquaresKernel(const Binding& binding)
      : gradient_(binding.inputs.at(0)),
        sum_(binding.outputs.at(0).as<double>()),
        blocks_(reinterpret_cast<double*>(binding.scratch.data())),
        threads_(binding.dispatch.threads) {}
  void run(bool) override {
    const auto sum_of = HWY_DYNAMIC_DISPATCH(sum_block);
    const int64_t elements = gradient_.elements(), blocks = ceil_div(elements, kSumBlock);
    parallel_ranges(threads_, blocks, 1, 4, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block)
        blocks_[block] = sum_of(gradient_.as<float>() + block * kSumBlock,
                                std::min(kSumBlock, elements - block * kSumBlock));
    });
    double total = 0;
    for (int64_t block = 0; block < blocks; ++block) total += blocks_[block];
    *sum_ = total;
  }

 private:
  Operand gradient_;
  double* sum_;
  double* blocks_;
  int threads_;
};

class AdamwKernel : public Kernel {
 public:
  explicit AdamwKernel(const Binding& binding)
      : operands_{binding.outputs.at(0).as<float>(), binding.outputs.at(1).as<float>(),
                  binding.outputs.at(2).as<float>(), binding.inputs.at(3).as<float>(),
                  binding.attributes.integer_or("narrow", 0) != 0 ? binding.outputs.at(4).as<BFloat16>()
                                                                  : nullptr},
        hyperparameters_(binding.inputs.at(4).as<float>()),
        control_(binding.inputs.at(5).as<float>()),
        moved_(binding.outputs.at(3).as<int32_t>()),
        attributes_(binding.attributes),
        elements_(binding.outputs.at(0).elements()),
        threads_(binding.dispatch.threads) {}
  void run(bool) override {
    *moved_ = 0;
    if (control_[kApply] == 0) return;
    const AdamwScalars<float> scalars(attributes_, hyperparameters_, control_);
    const auto range = HWY_DYNAMIC_DISPATCH(adamw_range);
    // Each thread only ever writes 1: the order of the writes does not matter.
    parallel_ranges(threads_, elements_, 64, 16 * 1024, [&](int64_t first, int64_t last) {
      if (range(operands_, scalars, first, last))
        std::atomic_ref<int32_t>(*moved_).store(1, std::memory_order_relaxed);
    });
  }

 private:
  AdamwOperands operands_;
  const float *hyperparameters_, *control_;
  int32_t* moved_;
  Attributes attributes_;
  int64_t elements_;
  int threads_;
};

std::optional<std::string> gradient_refusal(const OpQuery& query, const Dispatch&) {
  if (query.inputs[0].dtype == DType::kF32) return std::nullopt;
  return fmt::format("sweeps f32, not {}", dtype_name(query.inputs[0].dtype));
}

}  // namespace

std::span<const KernelEntry> update_kernels() {
  static const KernelEntry kEntries[] = {
      {"sum_squares", "highway", &gradient_refusal, &block_sums, &make_kernel<SumSquaresKernel>},
      {"adamw", "highway", &gradient_refusal, &no_scratch, &make_kernel<AdamwKernel>},
  };
  return kEntries;
}

}  // namespace snug::cpu

#endif  // HWY_ONCE
