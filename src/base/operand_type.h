// base/operand_type.h — element type and shape of one operand, shared by the graph and the plan
#pragma once

#include "base/dtype.h"
#include "base/shape.h"

namespace snug {

struct OperandType {
  DType dtype = DType::kF32;
  Shape shape;

  Bytes bytes() const { return shape.bytes(dtype); }
  friend bool operator==(const OperandType&, const OperandType&) = default;
};

}  // namespace snug
