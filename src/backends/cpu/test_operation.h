// backends/cpu/test_operation.h — for tests: one operation on tensors of its own, run by a chosen kernel
#pragma once

#include <hwy/aligned_allocator.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/cpu/bfloat16.h"
#include "backends/cpu/float16.h"
#include "backends/cpu/kernel.h"
#include "base/errors.h"

namespace snug::cpu {

// A tensor with guard bytes on both sides of its storage.
class TestTensor {
 public:
  explicit TestTensor(OperandType type)
      : type_(std::move(type)), bytes_(static_cast<size_t>(type_.bytes().value)) {
    storage_ = hwy::AllocateAligned<std::byte>(bytes_ + 2 * kGuardBytes);
    std::fill_n(storage_.get(), bytes_ + 2 * kGuardBytes, kGuard);
  }

  // Values rounded to the element type (i32 and u32: converted).
  static TestTensor of(OperandType type, const std::vector<double>& values) {
    TestTensor tensor(std::move(type));
    require(static_cast<int64_t>(values.size()) == tensor.type_.shape.elements(),
            "test tensor: {} values for {}", values.size(), to_string(tensor.type_.shape));
    for (size_t i = 0; i < values.size(); ++i) tensor.set(i, values[i]);
    return tensor;
  }
  // Normal values of deviation `scale`.
  static TestTensor random(OperandType type, uint32_t seed, double scale = 1.0) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal(0.0, scale);
    std::vector<double> values(static_cast<size_t>(type.shape.elements()));
    for (double& value : values) value = normal(engine);
    return of(std::move(type), values);
  }

  const OperandType& type() const { return type_; }
  std::byte* data() const { return storage_.get() + kGuardBytes; }
  Operand operand() const { return {data(), type_}; }
  std::vector<double> values() const {
    std::vector<double> result(static_cast<size_t>(type_.shape.elements()));
    for (size_t i = 0; i < result.size(); ++i) result[i] = get(i);
    return result;
  }
  TestTensor copy() const {
    TestTensor result(type_);
    std::memcpy(result.data(), data(), bytes_);
    return result;
  }
  bool same_bits(const TestTensor& other) const {
    return bytes_ == other.bytes_ && std::memcmp(data(), other.data(), bytes_) == 0;
  }
  bool guards_intact() const {
    const auto intact = [](const std::byte* from) {
      return std::all_of(from, from + kGuardBytes, [](std::byte b) { return b == kGuard; });
    };
    return intact(storage_.get()) && intact(data() + bytes_);
  }

 private:
  static constexpr size_t kGuardBytes = 128;
  static constexpr std::byte kGuard{0xA5};

  void set(size_t i, double value) {
    switch (type_.dtype) {
      case DType::kF64:
        reinterpret_cast<double*>(data())[i] = value;
        return;
      case DType::kF32:
        reinterpret_cast<float*>(data())[i] = static_cast<float>(value);
        return;
      case DType::kBF16:
        reinterpret_cast<BFloat16*>(data())[i] = narrow_nearest_even(static_cast<float>(value));
        return;
      case DType::kF16:
        reinterpret_cast<Float16*>(data())[i] = narrow_to_f16(static_cast<float>(value));
        return;
      case DType::kI32:
        reinterpret_cast<int32_t*>(data())[i] = static_cast<int32_t>(value);
        return;
      case DType::kU32:
        reinterpret_cast<uint32_t*>(data())[i] = static_cast<uint32_t>(value);
        return;
      case DType::kU8:
        reinterpret_cast<uint8_t*>(data())[i] = static_cast<uint8_t>(value);
        return;
      default:
        throw_internal("test tensor of {}", dtype_name(type_.dtype));
    }
  }
  double get(size_t i) const {
    switch (type_.dtype) {
      case DType::kF64:
        return reinterpret_cast<const double*>(data())[i];
      case DType::kF32:
        return reinterpret_cast<const float*>(data())[i];
      case DType::kBF16:
        return widen(reinterpret_cast<const BFloat16*>(data())[i]);
      case DType::kF16:
        return widen(reinterpret_cast<const Float16*>(data())[i]);
      case DType::kI32:
        return reinterpret_cast<const int32_t*>(data())[i];
      case DType::kU32:
        return reinterpret_cast<const uint32_t*>(data())[i];
      case DType::kU8:
        return reinterpret_cast<const uint8_t*>(data())[i];
      default:
        throw_internal("test tensor of {}", dtype_name(type_.dtype));
    }
  }

  OperandType type_;
  size_t bytes_;
  hwy::AlignedFreeUniquePtr<std::byte[]> storage_;
};

// How to run an operation.
struct TestRun {
  Dispatch dispatch;
  std::string_view implementation = {};  // empty: the one that pick_kernel chooses
  bool overwrite = false;
};

// Runs `op` once into `outputs`, which may include inputs (aliases). Scratch is filled with NaNs first and
// guarded. Throws InternalError when a guard was overwritten.
inline void run_operation(std::string_view op, const Attributes& attributes,
                          const std::vector<const TestTensor*>& inputs,
                          const std::vector<const TestTensor*>& outputs, const TestRun& how) {
  std::vector<OperandType> input_types, output_types;
  Binding binding{op, "test", attributes, {}, {}, {}, how.dispatch};
  for (const TestTensor* tensor : inputs) {
    input_types.push_back(tensor->type());
    binding.inputs.push_back(tensor->operand());
  }
  for (const TestTensor* tensor : outputs) {
    output_types.push_back(tensor->type());
    binding.outputs.push_back(tensor->operand());
  }
  const OpQuery query{op, input_types, output_types, attributes};
  const KernelEntry& entry = pick_kernel(query, how.dispatch, how.implementation);
  const Bytes scratch_bytes = entry.scratch_bytes(query, how.dispatch);
  const TestTensor scratch(OperandType{DType::kU8, Shape{scratch_bytes.value}});
  std::memset(scratch.data(), 0xFF, static_cast<size_t>(scratch_bytes.value));
  binding.scratch = {scratch.data(), static_cast<size_t>(scratch_bytes.value)};
  omp_set_num_threads(how.dispatch.threads);  // as CpuBackend::enqueue does
  entry.make(binding)->run(how.overwrite);
  require(scratch.guards_intact(), "{}: wrote outside its scratch", op);
  for (const auto& operands : {inputs, outputs})
    for (const TestTensor* tensor : operands)
      require(tensor->guards_intact(), "{}: wrote outside an operand", op);
}

// The largest |a − b| / (1 + |b|).
inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  require(a.size() == b.size(), "comparing {} values with {}", a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]) / (1.0 + std::abs(b[i]));
    if (!(difference <= largest)) largest = difference;  // a NaN stays
  }
  return largest;
}

}  // namespace snug::cpu
