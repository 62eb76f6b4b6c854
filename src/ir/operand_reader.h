// ir/operand_reader.h — reads the operands of one operation in order and refuses the first that does not fit
//
// The shape rules of ir/operations_*.cc are written with it. Every refusal is a UserError(kBadFile) that
// names the operation, the operand, what was found and what was expected.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>

#include "base/attributes.h"
#include "base/errors.h"
#include "base/operand_type.h"

namespace snug {

class OperandReader {
 public:
  // Checks the attributes against the table's list for `kind`.
  OperandReader(std::string_view kind, const Attributes& attributes, std::span<const OperandType> inputs);

  // The next operand: f32, bf16, f16 or f64, of that rank (negative: any rank from 1).
  const OperandType& floating(std::string_view name, int rank = -1);
  // The next operand: of that element type and that shape, or of that rank.
  const OperandType& exactly(std::string_view name, DType dtype, const Shape& shape);
  const OperandType& of_rank(std::string_view name, DType dtype, int rank);
  // Refuses operands that nobody asked for.
  void done() const;
  bool more() const { return next_ < inputs_.size(); }

  // Refuses unless `fits`: the operation's own conditions ("heads must divide …"). Types are passed as they
  // are: they become text only in a refusal.
  template <typename... Args>
  void expect(bool fits, fmt::format_string<Args...> format, Args&&... args) const {
    if (!fits) refuse(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const OperandType& take(std::string_view name);
  [[noreturn]] void refuse(const std::string& what) const;

  std::string_view kind_;
  std::span<const OperandType> inputs_;
  size_t next_ = 0;
};

// Type of statistics, losses and parameters' gradients beside an activation of that type: f32, or f64 in
// gradient checks.
constexpr DType wide(DType activation) { return activation == DType::kF64 ? DType::kF64 : DType::kF32; }

// `shape` with its last dimension replaced, and without it ([1] when nothing is left).
Shape with_last(const Shape& shape, int64_t last);
Shape without_last(const Shape& shape);

// "bf16[4,1024]"; what {} prints of an OperandType.
std::string type_text(const OperandType& type);

}  // namespace snug

template <>
struct fmt::formatter<snug::OperandType> : fmt::formatter<std::string_view> {
  auto format(const snug::OperandType& type, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(snug::type_text(type), context);
  }
};
