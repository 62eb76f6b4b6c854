// The update's sweeps over a parameter: sum of squares of a gradient, and AdamW.
//
// sum_squares follows the tree of update_rules.h, so it has the reference's bits for any number of threads
// and any vector width. AdamW is one pass; its products and sums are separate instructions in PyTorch's
// order, which gives the reference's bits too.
#include "backends/cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/update_vector.h"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include "backends/cpu/update_vector.h"

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

AdamwOperands adamw_operands(const Binding& binding) {
  AdamwOperands operands{.weight = nullptr,
                         .copy = nullptr,
                         .narrow = nullptr,
                         .low = nullptr,
                         .m = binding.outputs.at(1).as<float>(),
                         .v = binding.outputs.at(2).as<float>(),
                         .gradient = binding.inputs.at(3).as<float>()};
  if (binding.attributes.integer_or("split", 0) != 0) {
    operands.narrow = binding.outputs.at(0).as<BFloat16>();
    operands.low = binding.outputs.at(4).as<uint16_t>();
  } else {
    operands.weight = binding.outputs.at(0).as<float>();
    if (binding.attributes.integer_or("narrow", 0) != 0) operands.copy = binding.outputs.at(4).as<BFloat16>();
  }
  return operands;
}

class AdamwKernel : public Kernel {
 public:
  explicit AdamwKernel(const Binding& binding)
      : operands_(adamw_operands(binding)),
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

// `gradient`: which input it is.
template <size_t gradient>
std::optional<std::string> gradient_refusal(const OpQuery& query, const Dispatch&) {
  if (query.inputs[gradient].dtype == DType::kF32) return std::nullopt;
  return fmt::format("sweeps f32, not {}", dtype_name(query.inputs[gradient].dtype));
}

}  // namespace

std::span<const KernelEntry> update_kernels() {
  static const KernelEntry kEntries[] = {
      {"sum_squares", "highway", &gradient_refusal<0>, &block_sums, &make_kernel<SumSquaresKernel>},
      {"adamw", "highway", &gradient_refusal<3>, &no_scratch, &make_kernel<AdamwKernel>},
  };
  return kEntries;
}

}  // namespace snug::cpu
