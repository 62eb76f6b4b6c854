// base/dtype.h — element types of tensors
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"

namespace snug {

enum class DType : uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kU32, kU8 };

// Bytes of one element.
constexpr int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

// "f64", "f32", "bf16", "f16", "i64", "i32", "u32", "u8": the form used in every text of the graph and the plan.
constexpr std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "f64";
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kI64: return "i64";
    case DType::kI32: return "i32";
    case DType::kU32: return "u32";
    case DType::kU8: return "u8";
  }
  return "?";
}

// The inverse of dtype_name; none for an unknown name.
constexpr std::optional<DType> parse_dtype(std::string_view name) {
  for (DType d : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64, DType::kI32, DType::kU32, DType::kU8})
    if (dtype_name(d) == name) return d;
  return std::nullopt;
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

}  // namespace snug
