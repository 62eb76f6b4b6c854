#include "backends/null/null_target.h"

#include <algorithm>

#include "base/errors.h"
#include "base/mlp_operands.h"

namespace snug {

Bytes NullTarget::scratch_bytes(const OpQuery& query) const {
  if (query.op == "read_tensor" || query.op == "write_tensor") return profile_.staging;
  if (query.op == "head_loss" || query.op == "head_loss_gradient") {
    require(query.inputs.size() >= 2, "{} has {} operands, expected x and w first", query.op,
            query.inputs.size());
    const int64_t rows = std::min(query.attributes.integer("chunk"), query.inputs[0].shape.rows());
    const int64_t vocabulary = query.inputs[1].shape.dim(0);
    return Bytes(checked_mul(checked_mul(rows, vocabulary), profile_.head_scratch_bytes_per_logit));
  }
  if (query.op == "mlp" || query.op == "mlp_gradient") {
    const MlpOperands positions(query.attributes);
    const bool gradient = query.op == "mlp_gradient";
    const size_t x = gradient ? 1 : 0;
    require(query.inputs.size() >= x + positions.count(), "{} has {} operands, expected {}", query.op,
            query.inputs.size(), x + positions.count());
    const int64_t rows = std::min(query.attributes.integer("chunk"), query.inputs[x].shape.rows());
    const int64_t inner =
        query.inputs[x + positions.weight(0)].shape.elements() / query.inputs[x].shape.last();
    const int64_t values = (positions.gated ? 2 : 1) + (gradient ? 1 : 0);
    return Bytes(
        checked_mul(checked_mul(rows, checked_mul(values, inner)), dtype_bytes(query.inputs[x].dtype)));
  }
  return profile_.scratch;
}

double NullTarget::seconds(const OpQuery&, const OpCost& cost) const {
  return std::max((cost.flops + cost.repeated_flops) / profile_.flops_per_second,
                  cost.bytes / profile_.bytes_per_second);
}

}  // namespace snug
