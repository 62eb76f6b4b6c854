// Fast element-wise kernels in f32, bf16 and f16: add, gelu, swiglu and their gradients, dropout, fill,
// narrow_weight.
//
// Parallel over ranges of elements; every element's bits are independent of threads and ranges.
#include "backends/cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise_vector.h"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include "backends/cpu/elementwise_vector.h"

#include "backends/cpu/elementwise_kernels.h"
#include "backends/cpu/parallel_ranges.h"
#include "backends/cpu/reference.h"
#include "base/float16.h"

namespace snug::cpu {
namespace {

HWY_EXPORT(add);
HWY_EXPORT(gelu_tanh);
HWY_EXPORT(gelu_erf);
HWY_EXPORT(gelu_tanh_backward);
HWY_EXPORT(gelu_erf_backward);
HWY_EXPORT(swiglu);
HWY_EXPORT(swiglu_backward);
HWY_EXPORT(narrow);
HWY_EXPORT(words_of_groups);
HWY_EXPORT(drop);

// Elements below which another thread costs more than it saves.
constexpr int64_t kSmallestRange = 16 * 1024;
// Ranges begin at a multiple of this: whole cache lines and whole Philox groups.
constexpr int64_t kRangeUnit = 64;

class RangeKernel : public Kernel {
 public:
  RangeKernel(const Binding& binding, ElementwiseRange range)
      : range_(range),
        activation_(binding.outputs.at(0).type.dtype),
        elements_(binding.outputs.at(0).elements()),
        threads_(binding.dispatch.threads) {
    for (size_t i = 0; i < std::min<size_t>(binding.inputs.size(), 3); ++i)
      operands_.inputs[i] = binding.inputs[i].data;
    for (size_t i = 0; i < std::min<size_t>(binding.outputs.size(), 2); ++i)
      operands_.outputs[i] = binding.outputs[i].data;
  }
  void run(bool) override {
    parallel_ranges(threads_, elements_, kRangeUnit, kSmallestRange,
                    [this](int64_t first, int64_t last) { range_(activation_, operands_, first, last); });
  }

 private:
  ElementwiseRange range_;
  ElementwiseOperands operands_;
  DType activation_;
  int64_t elements_;
  int threads_;
};

bool by_tanh(const Binding& binding) { return binding.attributes.word_or("approximate", "tanh") == "tanh"; }

template <ElementwiseRange (*Range)()>
std::unique_ptr<Kernel> make_range(const Binding& binding) {
  return std::make_unique<RangeKernel>(binding, Range());
}
template <ElementwiseRange (*Range)(bool)>
std::unique_ptr<Kernel> make_gelu(const Binding& binding) {
  return std::make_unique<RangeKernel>(binding, Range(by_tanh(binding)));
}

class DropoutKernel : public Kernel {
 public:
  explicit DropoutKernel(const Binding& binding)
      : x_(binding.inputs.at(0).data),
        randomness_(binding.inputs.at(1).as<uint32_t>()),
        y_(binding.outputs.at(0).data),
        activation_(binding.outputs.at(0).type.dtype),
        samples_(binding.outputs.at(0).type.shape.dim(0)),
        sample_elements_(samples_ == 0 ? 0 : binding.outputs.at(0).elements() / samples_),
        stream_(binding.attributes.integer("stream")),
        threshold_(drop_threshold(binding.attributes.real("probability"))),
        scale_(static_cast<float>(keep_scale(binding.attributes.real("probability")))),
        threads_(binding.dispatch.threads) {}
  void run(bool) override {
    const auto range = HWY_DYNAMIC_DISPATCH(drop);
    const int64_t sample_bytes = sample_elements_ * dtype_bytes(activation_);
    for (int64_t b = 0; b < samples_; ++b) {
      const RandomStream stream(randomness_ + 4 * b, stream_);
      const ElementwiseOperands operands{{x_ + b * sample_bytes}, {y_ + b * sample_bytes}};
      parallel_ranges(
          threads_, sample_elements_, kRangeUnit, kSmallestRange, [&](int64_t first, int64_t last) {
            if (threshold_ > UINT32_MAX)
              std::fill(operands.outputs[0] + first * dtype_bytes(activation_),
                        operands.outputs[0] + last * dtype_bytes(activation_), std::byte{0});
            else
              range(activation_, operands, stream, static_cast<uint32_t>(threshold_), scale_, first, last);
          });
    }
  }

 private:
  const std::byte* x_;
  const uint32_t* randomness_;
  std::byte* y_;
  DType activation_;
  int64_t samples_, sample_elements_, stream_;
  uint64_t threshold_;
  float scale_;
  int threads_;
};

class FillKernel : public Kernel {
 public:
  explicit FillKernel(const Binding& binding)
      : y_(binding.outputs.at(0)),
        value_(static_cast<float>(reference::number(binding.attributes, "value"))),
        threads_(binding.dispatch.threads) {}
  void run(bool) override {
    parallel_ranges(threads_, y_.elements(), kRangeUnit, kSmallestRange, [this](int64_t first, int64_t last) {
      if (y_.type.dtype == DType::kU8)
        std::fill(y_.as<uint8_t>() + first, y_.as<uint8_t>() + last, static_cast<uint8_t>(value_));
      else if (y_.type.dtype == DType::kBF16)
        std::fill(y_.as<BFloat16>() + first, y_.as<BFloat16>() + last, narrow_nearest_even(value_));
      else if (y_.type.dtype == DType::kF16)
        std::fill(y_.as<Float16>() + first, y_.as<Float16>() + last, narrow_to_f16(value_));
      else
        std::fill(y_.as<float>() + first, y_.as<float>() + last, value_);
    });
  }

 private:
  Operand y_;
  float value_;
  int threads_;
};

std::optional<std::string> narrow_refusal(const OpQuery& query, const Dispatch&) {
  if (query.inputs[0].dtype == DType::kF32 && is_half(query.outputs[0].dtype)) return std::nullopt;
  return fmt::format("narrows f32 to 16 bits, not {} to {}", dtype_name(query.inputs[0].dtype),
                     dtype_name(query.outputs[0].dtype));
}

}  // namespace

ElementwiseRange add_range() { return HWY_DYNAMIC_DISPATCH(add); }
ElementwiseRange gelu_range(bool by_tanh) {
  return by_tanh ? HWY_DYNAMIC_DISPATCH(gelu_tanh) : HWY_DYNAMIC_DISPATCH(gelu_erf);
}
ElementwiseRange gelu_backward_range(bool by_tanh) {
  return by_tanh ? HWY_DYNAMIC_DISPATCH(gelu_tanh_backward) : HWY_DYNAMIC_DISPATCH(gelu_erf_backward);
}
ElementwiseRange swiglu_range() { return HWY_DYNAMIC_DISPATCH(swiglu); }
ElementwiseRange swiglu_backward_range() { return HWY_DYNAMIC_DISPATCH(swiglu_backward); }
ElementwiseRange narrow_weight_range() { return HWY_DYNAMIC_DISPATCH(narrow); }

void philox_words(const RandomStream& stream, uint64_t first_group, int64_t groups, uint32_t* words) {
  HWY_DYNAMIC_DISPATCH(words_of_groups)(stream, first_group, groups, words);
}

std::optional<std::string> element_type_refusal(const OpQuery& query, const Dispatch&) {
  for (std::span<const OperandType> operands : {query.inputs, query.outputs})
    for (const OperandType& operand : operands)
      if (is_floating(operand.dtype) && operand.dtype != DType::kF32 && !is_half(operand.dtype))
        return fmt::format("computes f32, bf16 and f16, not {}", dtype_name(operand.dtype));
  return std::nullopt;
}

Bytes no_scratch(const OpQuery&, const Dispatch&) { return Bytes(0); }

std::span<const KernelEntry> elementwise_kernels() {
  static const KernelEntry kEntries[] = {
      {"add", "highway", &element_type_refusal, &no_scratch, &make_range<&add_range>},
      {"gelu", "highway", &element_type_refusal, &no_scratch, &make_gelu<&gelu_range>},
      {"gelu_backward", "highway", &element_type_refusal, &no_scratch, &make_gelu<&gelu_backward_range>},
      {"swiglu", "highway", &element_type_refusal, &no_scratch, &make_range<&swiglu_range>},
      {"swiglu_backward", "highway", &element_type_refusal, &no_scratch, &make_range<&swiglu_backward_range>},
      {"dropout", "highway", &element_type_refusal, &no_scratch, &make_kernel<DropoutKernel>},
      {"rotary_table", "parallel", &element_type_refusal, &no_scratch, &make_rotary_table},
      {"rotary", "highway", &element_type_refusal, &no_scratch, &make_rotary},
      {"embedding", "parallel", &element_type_refusal, &no_scratch, &make_embedding},
      {"embedding_dtable", "highway", &element_type_refusal, &no_scratch, &make_embedding_dtable},
      {"fill", "parallel", &element_type_refusal, &no_scratch, &make_kernel<FillKernel>},
      {"narrow_weight", "highway", &narrow_refusal, &no_scratch, &make_range<&narrow_weight_range>},
  };
  return kEntries;
}

}  // namespace snug::cpu
