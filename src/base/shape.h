// base/shape.h — dimensions of a tensor, row-major; every size is overflow-checked
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"

namespace snug {

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}

  size_t rank() const { return dims_.size(); }
  // Dimension i; negative counts from the end: dim(-1) is the innermost. Throws InternalError when out of range.
  int64_t dim(int i) const;
  int64_t last() const { return dim(-1); }
  const std::vector<int64_t>& dims() const { return dims_; }

  // Product of all dimensions (1 for rank 0). Throws UserError on overflow.
  int64_t elements() const;
  // Product of all dimensions but the last: the rows of a row-wise operation. 1 for rank 0 and 1.
  int64_t rows() const;
  // elements() * element size.
  Bytes bytes(DType dtype) const { return Bytes(checked_mul(elements(), dtype_bytes(dtype))); }

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::vector<int64_t> dims_;
};

// "[4,1024,768]"; "[]" for rank 0.
std::string to_string(const Shape& shape);

}  // namespace snug
