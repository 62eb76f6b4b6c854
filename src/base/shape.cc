#include "base/shape.h"

#include <fmt/ranges.h>

namespace snug {

int64_t Shape::dim(int i) const {
  const int rank = static_cast<int>(dims_.size());
  const int position = i < 0 ? rank + i : i;
  if (position < 0 || position >= rank) throw_internal("dimension {} of shape {}", i, to_string(*this));
  return dims_[static_cast<size_t>(position)];
}

int64_t Shape::elements() const {
  int64_t product = 1;
  for (int64_t d : dims_) product = checked_mul(product, d);
  return product;
}

int64_t Shape::rows() const {
  int64_t product = 1;
  for (size_t i = 0; i + 1 < dims_.size(); ++i) product = checked_mul(product, dims_[i]);
  return product;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.dims(), ",")); }

}  // namespace snug
