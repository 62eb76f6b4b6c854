// base/mlp_operands.h — where the operands of `mlp` and the outputs of `mlp_gradient` stand (docs/operations.md)
//
// x comes first, then each product's weight and, with bias=1, its bias: of `up` and `down`, with activation swiglu of `gate`, `up` and
// `down`. mlp_gradient has d_y in front of all these and its accumulators behind; bit i of its attribute `gradients` says that it makes
// the gradient of operand i of mlp, in that order. Both sides of the plan read the same positions here.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/attributes.h"

namespace snug {

struct MlpOperands {
  bool gated = false;      // gate and up before the activation, instead of up alone
  bool bias = false;       // each product has one
  uint64_t gradients = 0;  // of mlp_gradient

  // From attributes that the operation table has checked.
  explicit MlpOperands(const Attributes& attributes)
      : gated(attributes.word("activation") == "swiglu"),
        bias(attributes.integer("bias") == 1),
        gradients(static_cast<uint64_t>(attributes.integer_or("gradients", 0))) {}

  // Products in the order of their operands; the last is `down`.
  size_t products() const { return gated ? 3 : 2; }
  size_t down() const { return products() - 1; }
  // Operands of mlp, x included, and their positions.
  size_t count() const { return 1 + products() * (bias ? 2 : 1); }
  size_t weight(size_t product) const { return 1 + product * (bias ? 2 : 1); }
  size_t bias_of(size_t product) const { return weight(product) + 1; }

  bool makes(size_t operand) const { return operand < 64 && (gradients >> operand & 1) != 0; }
  // Whether anything is made behind `down`: then its gradient flows on into the activation.
  bool passes_down() const { return (gradients & ((uint64_t{1} << weight(down())) - 1)) != 0; }
  // Whether any output is a parameter's gradient, and at which output those begin.
  size_t parameters() const { return static_cast<size_t>(std::popcount(gradients >> 1)); }
  size_t first_parameter() const { return makes(0) ? 1 : 0; }
  // Position of the gradient of `operand` among the outputs.
  size_t output(size_t operand) const {
    return static_cast<size_t>(std::popcount(gradients & ((uint64_t{1} << operand) - 1)));
  }

  // Products that mlp_gradient needs: one for each weight's gradient and one for each gradient of a product's input.
  size_t needed_products() const {
    size_t needed = passes_down() ? 1 : 0;
    for (size_t product = 0; product < products(); ++product) needed += makes(weight(product)) ? 1 : 0;
    return needed + (makes(0) ? down() : 0);
  }
  // Products of the forward that it makes again: what the activation reads, where that or its output is needed.
  size_t repeated_products() const { return passes_down() || makes(weight(down())) ? down() : 0; }
};

}  // namespace snug
