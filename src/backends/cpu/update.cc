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
#include <optional>

#include "backends/cpu/elementwise_kernels.h"
#include "backends/cpu/parallel_ranges.h"

namespace snug::cpu {
namespace {

HWY_EXPORT(sum_block);
HWY_EXPORT(sum_narrow_block);
HWY_EXPORT(narrow_gradient_range);
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
    const auto sum_of_narrow = HWY_DYNAMIC_DISPATCH(sum_narrow_block);
    const bool is_narrow = gradient_.type.dtype == DType::kBF16;
    const int64_t elements = gradient_.elements(), blocks = ceil_div(elements, kSumBlock);
    parallel_ranges(threads_, blocks, 1, 4, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        const int64_t begin = block * kSumBlock, count = std::min(kSumBlock, elements - begin);
        blocks_[block] = is_narrow ? sum_of_narrow(gradient_.as<BFloat16>() + begin, count)
                                   : sum_of(gradient_.as<float>() + begin, count);
      }
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

class NarrowGradientKernel : public Kernel {
 public:
  explicit NarrowGradientKernel(const Binding& binding)
      : wide_(binding.inputs.at(0)), narrow_(binding.outputs.at(0)), threads_(binding.dispatch.threads) {}
  void run(bool) override {
    const auto range = HWY_DYNAMIC_DISPATCH(narrow_gradient_range);
    parallel_ranges(threads_, wide_.elements(), 64, 16 * 1024, [&](int64_t first, int64_t last) {
      range(wide_.as<float>(), narrow_.as<BFloat16>(), first, last);
    });
  }

 private:
  Operand wide_, narrow_;
  int threads_;
};

AdamwOperands adamw_operands(const Binding& binding) {
  AdamwOperands operands;
  const Operand &weight = binding.outputs.at(0), &m = binding.outputs.at(1), &v = binding.outputs.at(2);
  const Operand& gradient = binding.inputs.at(3);
  if (gradient.type.dtype == DType::kBF16)
    operands.narrow_gradient = gradient.as<BFloat16>();
  else
    operands.gradient = gradient.as<float>();
  if (weight.type.dtype == DType::kBF16) {
    operands.narrow = weight.as<BFloat16>();
    if (binding.attributes.integer_or("split", 0) != 0) operands.low = binding.outputs.at(4).as<uint16_t>();
    operands.stochastic_weight = binding.attributes.word_or("rounding", "nearest") == "stochastic";
  } else {
    operands.weight = weight.as<float>();
    if (binding.attributes.integer_or("narrow", 0) != 0) {
      operands.copy = binding.outputs.at(4).data;
      operands.copy_type = binding.outputs.at(4).type.dtype;
    }
  }
  if (m.type.dtype == DType::kF32) {
    operands.m = m.as<float>();
    operands.v = v.as<float>();
  } else if (m.type.dtype == DType::kBF16) {
    operands.m_half = m.as<BFloat16>();
    operands.v_half = v.as<BFloat16>();
  } else {
    const size_t scales = AdamwPositions(binding.attributes, m.type.dtype).scales;
    operands.m_codes = m.as<uint8_t>();
    operands.v_codes = v.as<uint8_t>();
    operands.m_scales = binding.outputs.at(scales).as<float>();
    operands.v_scales = binding.outputs.at(scales + 1).as<float>();
  }
  return operands;
}

// The input `randomness`; null where nothing is rounded stochastically.
const uint32_t* randomness_of(const Binding& binding) {
  if (!binding.attributes.has("stream")) return nullptr;
  const size_t position = AdamwPositions(binding.attributes, binding.outputs.at(1).type.dtype).randomness;
  return binding.inputs.at(position).as<uint32_t>();
}

class AdamwKernel : public Kernel {
 public:
  explicit AdamwKernel(const Binding& binding)
      : operands_(adamw_operands(binding)),
        hyperparameters_(binding.inputs.at(4).as<float>()),
        control_(binding.inputs.at(5).as<float>()),
        randomness_(randomness_of(binding)),
        stream_(binding.attributes.integer_or("stream", 0)),
        moved_(binding.outputs.at(3).as<int32_t>()),
        attributes_(binding.attributes),
        elements_(binding.outputs.at(0).elements()),
        threads_(binding.dispatch.threads) {}
  void run(bool) override {
    *moved_ = 0;
    if (control_[kApply] == 0) return;
    const AdamwScalars<float> scalars(attributes_, hyperparameters_, control_);
    const auto range = HWY_DYNAMIC_DISPATCH(adamw_range);
    std::optional<UpdateDraws> draws;
    if (randomness_ != nullptr) draws.emplace(randomness_, stream_);
    // Each thread only ever writes 1: the order of the writes does not matter.
    parallel_ranges(threads_, elements_, kMomentBlock, 16 * 1024, [&](int64_t first, int64_t last) {
      if (range(operands_, scalars, draws ? &*draws : nullptr, first, last))
        std::atomic_ref<int32_t>(*moved_).store(1, std::memory_order_relaxed);
    });
  }

 private:
  AdamwOperands operands_;
  const float *hyperparameters_, *control_;
  const uint32_t* randomness_;
  int64_t stream_;
  int32_t* moved_;
  Attributes attributes_;
  int64_t elements_;
  int threads_;
};

// `gradient`: which input it is.
template <size_t gradient>
std::optional<std::string> gradient_refusal(const OpQuery& query, const Dispatch&) {
  const DType dtype = query.inputs[gradient].dtype;
  if (dtype == DType::kF32 || dtype == DType::kBF16) return std::nullopt;
  return fmt::format("sweeps f32 and bf16, not {}", dtype_name(dtype));
}
std::optional<std::string> wide_refusal(const OpQuery& query, const Dispatch&) {
  if (query.inputs[0].dtype == DType::kF32) return std::nullopt;
  return fmt::format("narrows f32, not {}", dtype_name(query.inputs[0].dtype));
}

}  // namespace

std::span<const KernelEntry> update_kernels() {
  static const KernelEntry kEntries[] = {
      {"narrow_gradient", "highway", &wide_refusal, &no_scratch, &make_kernel<NarrowGradientKernel>},
      {"sum_squares", "highway", &gradient_refusal<0>, &block_sums, &make_kernel<SumSquaresKernel>},
      {"adamw", "highway", &gradient_refusal<3>, &no_scratch, &make_kernel<AdamwKernel>},
  };
  return kEntries;
}

}  // namespace snug::cpu
