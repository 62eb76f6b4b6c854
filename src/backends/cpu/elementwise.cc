// Fast element-wise kernels in f32 and bf16: add, gelu, swiglu and their gradients, dropout, fill,
// narrow_weight.
//
// Parallel over ranges of elements; every element's bits are independent of threads and ranges.
#include "backends/cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <memory>

#include "backends/cpu/elementwise.h"
#include "backends/cpu/elementwise_math.h"
#include "backends/cpu/vector_io.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {
namespace {

// Calls body with a value of the activation type.
template <typename Body>
HWY_INLINE void by_type(DType activation, const Body& body) {
  if (activation == DType::kBF16)
    body(BFloat16());
  else
    body(float());
}

// outputs[0] = function(inputs[0])
template <typename Function>
HWY_INLINE void map1(DType type, const ElementwiseOperands& o, int64_t first, int64_t last,
                     const Function& function) {
  by_type(type, [&](auto sample) {
    using A = decltype(sample);
    for_lanes(first, last,
              [&](auto lanes) { lanes.store(function(lanes.load(o.input<A>(0))), o.output<A>(0)); });
  });
}

// outputs[0] = function(inputs[0], inputs[1])
template <typename Function>
HWY_INLINE void map2(DType type, const ElementwiseOperands& o, int64_t first, int64_t last,
                     const Function& function) {
  by_type(type, [&](auto sample) {
    using A = decltype(sample);
    for_lanes(first, last, [&](auto lanes) {
      lanes.store(function(lanes.load(o.input<A>(0)), lanes.load(o.input<A>(1))), o.output<A>(0));
    });
  });
}

void add(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  map2(type, o, first, last, [](FloatVector a, FloatVector b) { return hn::Add(a, b); });
}

void gelu_tanh(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  map1(type, o, first, last, [](FloatVector u) { return gelu_by_tanh(u); });
}

void gelu_erf(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  map1(type, o, first, last, [](FloatVector u) { return gelu_exact(u); });
}

void gelu_tanh_backward(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  map2(type, o, first, last,
       [](FloatVector d_h, FloatVector u) { return hn::Mul(d_h, gelu_by_tanh_derivative(u)); });
}

void gelu_erf_backward(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  map2(type, o, first, last,
       [](FloatVector d_h, FloatVector u) { return hn::Mul(d_h, gelu_exact_derivative(u)); });
}

void swiglu(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  by_type(type, [&](auto sample) {
    using A = decltype(sample);
    for_lanes(first, last, [&](auto lanes) {
      const FloatVector gate = lanes.load(o.input<A>(0));
      FloatVector e;
      const FloatVector silu = rounded_vector<A>(hn::Mul(gate, sigmoid(gate, e)));
      lanes.store(hn::Mul(silu, lanes.load(o.input<A>(1))), o.output<A>(0));
    });
  });
}

// d_gate = d_h·up·σ(1 + gate(1−σ)),  d_up = d_h·round_A(gate·σ)
void swiglu_backward(DType type, const ElementwiseOperands& o, int64_t first, int64_t last) {
  by_type(type, [&](auto sample) {
    using A = decltype(sample);
    for_lanes(first, last, [&](auto lanes) {
      const FloatVector d_h = lanes.load(o.input<A>(0)), gate = lanes.load(o.input<A>(1));
      const FloatVector up = lanes.load(o.input<A>(2));
      FloatVector e;
      const FloatVector s = sigmoid(gate, e);
      const FloatVector silu = hn::Mul(gate, s);
      const FloatVector slope = hn::MulAdd(silu, hn::Mul(s, e), s);
      lanes.store(hn::Mul(hn::Mul(d_h, up), slope), o.output<A>(0));
      lanes.store(hn::Mul(d_h, rounded_vector<A>(silu)), o.output<A>(1));
    });
  });
}

void narrow(DType, const ElementwiseOperands& o, int64_t first, int64_t last) {
  for_lanes(first, last,
            [&](auto lanes) { lanes.store_weight(lanes.load(o.input<float>(0)), o.output<BFloat16>(0)); });
}

void words_of_groups(const RandomStream& stream, uint64_t first_group, int64_t groups, uint32_t* words) {
  int64_t group = 0;
  for (; group + kLanes <= groups; group += kLanes)
    philox_block(stream, first_group + static_cast<uint64_t>(group), words + 4 * group);
  if (group == groups) return;
  uint32_t block[4 * kLanes];
  philox_block(stream, first_group + static_cast<uint64_t>(group), block);
  std::memcpy(words + 4 * group, block, static_cast<size_t>(groups - group) * 16);
}

// Elements [first, last) of one sample; `first` is a multiple of 4, threshold ≤ 2³²−1.
void drop(DType type, const ElementwiseOperands& o, const RandomStream& stream, uint32_t threshold,
          float scale, int64_t first, int64_t last) {
  by_type(type, [&](auto sample) {
    using A = decltype(sample);
    const FloatTag floats;
    uint32_t words[4 * kLanes];
    for (int64_t block = first; block < last; block += 4 * kLanes) {
      philox_block(stream, static_cast<uint64_t>(block / 4), words);
      for_lanes(block, std::min(block + 4 * kLanes, last), [&](auto lanes) {
        const auto word = hn::LoadU(WordTag(), words + (lanes.at - block));
        const auto dropped = hn::RebindMask(floats, hn::Lt(word, hn::Set(WordTag(), threshold)));
        const FloatVector scaled = hn::Mul(lanes.load(o.input<A>(0)), constant(scale));
        lanes.store(hn::IfThenZeroElse(dropped, scaled), o.output<A>(0));
      });
    }
  });
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "backends/cpu/elementwise_kernels.h"
#include "backends/cpu/parallel_ranges.h"
#include "backends/cpu/reference.h"

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
      if (y_.type.dtype == DType::kBF16)
        std::fill(y_.as<BFloat16>() + first, y_.as<BFloat16>() + last, narrow_nearest_even(value_));
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
  if (query.inputs[0].dtype == DType::kF32 && query.outputs[0].dtype == DType::kBF16) return std::nullopt;
  return fmt::format("narrows f32 to bf16, not {} to {}", dtype_name(query.inputs[0].dtype),
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
      if (is_floating(operand.dtype) && operand.dtype != DType::kF32 && operand.dtype != DType::kBF16)
        return fmt::format("computes f32 and bf16, not {}", dtype_name(operand.dtype));
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

#endif  // HWY_ONCE
