#include "ir/operand_reader.h"

#include "base/errors.h"
#include "ir/operations.h"

namespace snug {

OperandReader::OperandReader(std::string_view kind, const Attributes& attributes,
                             std::span<const OperandType> inputs)
    : kind_(kind), inputs_(inputs) {
  check_attributes(operation(kind), attributes);
}

void OperandReader::refuse(const std::string& what) const {
  throw_user(ExitCode::kBadFile, "{}: {}", kind_, what);
}

const OperandType& OperandReader::take(std::string_view name) {
  expect(more(), "operand {} is missing: found {} operands", name, inputs_.size());
  const OperandType& type = inputs_[next_++];
  for (int64_t dim : type.shape.dims())
    expect(dim > 0, "operand {}: found {}, expected dimensions from 1", name, type);
  (void)type.bytes();  // throws when the size exceeds 64 bits
  return type;
}

const OperandType& OperandReader::floating(std::string_view name, int rank) {
  const OperandType& type = take(name);
  expect(is_floating(type.dtype), "operand {}: found {}, expected f32, bf16, f16 or f64", name, type);
  if (rank < 0)
    expect(type.shape.rank() >= 1, "operand {}: found {}, expected at least one dimension", name, type);
  else
    expect(type.shape.rank() == static_cast<size_t>(rank), "operand {}: found {}, expected {} dimensions",
           name, type, rank);
  return type;
}

const OperandType& OperandReader::exactly(std::string_view name, DType dtype, const Shape& shape) {
  const OperandType& type = take(name);
  if (type.dtype != dtype || type.shape != shape)
    refuse(fmt::format("operand {}: found {}, expected {}", name, type, OperandType{dtype, shape}));
  return type;
}

const OperandType& OperandReader::of_rank(std::string_view name, DType dtype, int rank) {
  const OperandType& type = take(name);
  expect(type.dtype == dtype && type.shape.rank() == static_cast<size_t>(rank),
         "operand {}: found {}, expected {} with {} dimensions", name, type, dtype_name(dtype), rank);
  return type;
}

void OperandReader::done() const { expect(!more(), "found {} operands, expected {}", inputs_.size(), next_); }

Shape with_last(const Shape& shape, int64_t last) {
  std::vector<int64_t> dims = shape.dims();
  require(!dims.empty(), "with_last of a shape without dimensions");
  dims.back() = last;
  return Shape(std::move(dims));
}

Shape without_last(const Shape& shape) {
  std::vector<int64_t> dims = shape.dims();
  require(!dims.empty(), "without_last of a shape without dimensions");
  dims.pop_back();
  if (dims.empty()) dims.push_back(1);
  return Shape(std::move(dims));
}

std::string type_text(const OperandType& type) {
  return fmt::format("{}{}", dtype_name(type.dtype), to_string(type.shape));
}

}  // namespace snug
