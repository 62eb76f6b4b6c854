// backends/cpu/reference.h — how the reference kernels are written: one struct an operation, plain loops, any
// shape
//
// The reference is the meaning of docs/operations.md in code: single-threaded, every rounding where the page
// says it, sums in f64. It accepts activations of f64 (gradient checks: every floating operand is f64
// then), f32, bf16 and f16. A family's file defines
//
//   struct Add {
//     template <typename A> static void run(const Call& call, bool overwrite);   // A: the activation type
//   };
//
// and lists entry<Add>("add"). Optional members: `kTypeInput` (the input whose type is A; default 0),
// `kTypeOutput` (an output instead), `scratch_elements(query)` (doubles of scratch).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/cpu/bfloat16.h"
#include "backends/cpu/float16.h"
#include "backends/cpu/kernel.h"
#include "base/errors.h"

namespace snug::cpu::reference {

// Elementwise arithmetic is done in this type.
template <typename A>
using Compute = std::conditional_t<std::is_same_v<A, double>, double, float>;
// Statistics, losses and gradients of parameters are stored in this type.
template <typename A>
using Statistic = Compute<A>;

inline double load(double x) { return x; }
inline float load(float x) { return x; }
inline float load(BFloat16 x) { return widen(x); }
inline float load(Float16 x) { return widen(x); }

// Rounds to the stored type: once, to nearest even.
template <typename A>
A store(double x) {
  if constexpr (std::is_same_v<A, BFloat16>)
    return narrow_nearest_even(static_cast<float>(x));
  else if constexpr (std::is_same_v<A, Float16>)
    return narrow_to_f16(static_cast<float>(x));
  else
    return static_cast<A>(x);
}

// The value a stored element would read back as.
template <typename A>
Compute<A> rounded(double x) {
  return load(store<A>(x));
}

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, BFloat16>) return DType::kBF16;
  if constexpr (std::is_same_v<T, Float16>) return DType::kF16;
  if constexpr (std::is_same_v<T, int32_t>) return DType::kI32;
  if constexpr (std::is_same_v<T, uint32_t>) return DType::kU32;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::kU8;
}

// One bound operation: operands, attributes and scratch, with typed access that checks the element type.
struct Call {
  std::string name;
  Attributes attributes;
  std::vector<Operand> inputs, outputs;
  std::span<std::byte> scratch_bytes;

  explicit Call(const Binding& binding)
      : name(binding.name),
        attributes(binding.attributes),
        inputs(binding.inputs),
        outputs(binding.outputs),
        scratch_bytes(binding.scratch) {}

  template <typename T>
  const T* input(size_t position) const {
    return typed<T>(inputs, position, "input");
  }
  template <typename T>
  T* output(size_t position) const {
    return typed<T>(outputs, position, "output");
  }
  const Shape& input_shape(size_t position) const { return inputs.at(position).type.shape; }
  const Shape& output_shape(size_t position) const { return outputs.at(position).type.shape; }
  double* scratch() const { return reinterpret_cast<double*>(scratch_bytes.data()); }
  // The accumulator's old content counts.
  bool adds(bool overwrite) const { return attributes.integer_or("accumulate", 0) != 0 && !overwrite; }

 private:
  template <typename T>
  T* typed(const std::vector<Operand>& operands, size_t position, std::string_view kind) const {
    require(position < operands.size(), "{}: {} {} is missing", name, kind, position);
    const Operand& operand = operands[position];
    require(operand.type.dtype == dtype_of<T>(), "{}: {} {} is {}, expected {}", name, kind, position,
            dtype_name(operand.type.dtype), dtype_name(dtype_of<T>()));
    return operand.as<T>();
  }
};

// An attribute that may be written as an integer or as a real.
inline double number(const Attributes& attributes, std::string_view name) {
  const auto found = attributes.entries().find(name);
  if (found != attributes.entries().end() && std::holds_alternative<int64_t>(found->second))
    return static_cast<double>(std::get<int64_t>(found->second));
  return attributes.real(name);
}
inline double number_or(const Attributes& attributes, std::string_view name, double otherwise) {
  return attributes.has(name) ? number(attributes, name) : otherwise;
}

using Function = void (*)(const Call&, bool overwrite);

class FunctionKernel : public Kernel {
 public:
  FunctionKernel(Function function, const Binding& binding) : function_(function), call_(binding) {}
  void run(bool overwrite) override { function_(call_, overwrite); }

 private:
  Function function_;
  Call call_;
};

// The type that decides which instance runs.
template <typename Op>
DType activation_dtype(std::span<const OperandType> inputs, std::span<const OperandType> outputs) {
  if constexpr (requires { Op::kTypeOutput; })
    return outputs[Op::kTypeOutput].dtype;
  else if constexpr (requires { Op::kTypeInput; })
    return inputs[Op::kTypeInput].dtype;
  else
    return inputs[0].dtype;
}

template <typename Op>
std::optional<std::string> refusal(const OpQuery& query, const Dispatch&) {
  const DType dtype = activation_dtype<Op>(query.inputs, query.outputs);
  if (is_floating(dtype)) return std::nullopt;
  return fmt::format("the reference computes f64, f32, bf16 and f16, not {}", dtype_name(dtype));
}

template <typename Op>
Bytes scratch_bytes(const OpQuery& query, const Dispatch&) {
  if constexpr (requires { Op::scratch_elements(query); })
    return Bytes(checked_mul(Op::scratch_elements(query), 8));
  else
    return Bytes(0);
}

template <typename Op>
std::unique_ptr<Kernel> make(const Binding& binding) {
  std::vector<OperandType> inputs, outputs;
  for (const Operand& operand : binding.inputs) inputs.push_back(operand.type);
  for (const Operand& operand : binding.outputs) outputs.push_back(operand.type);
  switch (activation_dtype<Op>(inputs, outputs)) {
    case DType::kF64:
      return std::make_unique<FunctionKernel>(&Op::template run<double>, binding);
    case DType::kF32:
      return std::make_unique<FunctionKernel>(&Op::template run<float>, binding);
    case DType::kBF16:
      return std::make_unique<FunctionKernel>(&Op::template run<BFloat16>, binding);
    case DType::kF16:
      return std::make_unique<FunctionKernel>(&Op::template run<Float16>, binding);
    default:
      throw_internal("{}: no reference for this element type", binding.name);
  }
}

template <typename Op>
constexpr KernelEntry entry(std::string_view op) {
  return {op, "reference", &refusal<Op>, &scratch_bytes<Op>, &make<Op>};
}

// One list a family; reference.cc joins them.
std::span<const KernelEntry>
elementwise_entries();  // add, gelu*, swiglu*, dropout, rotary*, embedding*, fill, narrow_weight
std::span<const KernelEntry> product_entries();    // linear*
std::span<const KernelEntry> mlp_entries();        // mlp*
std::span<const KernelEntry> norm_entries();       // layer_norm*, rms_norm*
std::span<const KernelEntry> attention_entries();  // attention*
std::span<const KernelEntry> head_entries();       // head_loss*, cross_entropy*, last_logits
std::span<const KernelEntry>
update_entries();  // narrow_gradient, sum_squares, update_control, update_gate, adamw

}  // namespace snug::cpu::reference
