#include "backends/null/null_target.h"

#include <algorithm>

#include "base/errors.h"

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
  return profile_.scratch;
}

double NullTarget::seconds(const OpQuery&, const OpCost& cost) const {
  return std::max(cost.flops / profile_.flops_per_second, cost.bytes / profile_.bytes_per_second);
}

}  // namespace snug
