// plan/target.h — what the compile side may ask of a backend, as a pure query: no device, no allocation, no
// side effect
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/attributes.h"
#include "base/bytes.h"
#include "base/operand_type.h"

namespace snug {

// One operation with the types of its operands, as in docs/operations.md.
struct OpQuery {
  std::string_view op;
  std::span<const OperandType> inputs;
  std::span<const OperandType> outputs;
  const Attributes& attributes;
};

// FLOPs and bytes an operation needs (ir's cost rule): needed work only, causal attention counts half; and the FLOPs of
// the forward's products that it makes again because nothing of them was saved.
struct OpCost {
  double flops = 0;  // multiply and add count as two
  double bytes = 0;  // read + written
  double repeated_flops = 0;
};

class Target {
 public:
  virtual ~Target() = default;

  // "cpu avx2", "null", …: goes into every plan and benchmark line.
  virtual std::string name() const = 0;
  // None when the operation is supported; otherwise the reason in words ("bf16 products need …").
  virtual std::optional<std::string> refusal(const OpQuery& query) const = 0;
  // Scratch the operation needs inside the arena while it runs, libraries' scratch included.
  virtual Bytes scratch_bytes(const OpQuery& query) const = 0;
  // Every tensor's offset is a multiple of this.
  virtual Bytes alignment() const = 0;
  // Estimated seconds of one execution.
  virtual double seconds(const OpQuery& query, const OpCost& cost) const = 0;
};

}  // namespace snug
