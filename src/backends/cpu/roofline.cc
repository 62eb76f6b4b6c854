#include "backends/cpu/roofline.h"

#include <algorithm>

#include "backends/cpu/kernel.h"
#include "base/mlp_operands.h"

namespace snug::cpu {
namespace {

// Share of the product rate that an operation's needed FLOPs reach (bench/kernels).
double product_share(const OpQuery& query) {
  constexpr double kProduct = 0.95;
  const std::string_view op = query.op;
  if (op == "attention" || op == "attention_qkv") return 0.75;
  if (op == "attention_backward" || op == "attention_qkv_backward") return 0.65;
  if (op == "mlp_gradient") {  // it makes products of the forward again, all of one size
    const MlpOperands positions(query.attributes);
    const auto needed = static_cast<double>(positions.needed_products());
    return kProduct * needed / std::max(1.0, needed + static_cast<double>(positions.repeated_products()));
  }
  return kProduct;
}

double product_rate(const OpQuery& query, const Dispatch& dispatch, const CpuRates& rates) {
  const double rate = rates.product_flops_per_second * product_share(query);
  if (!dispatch.native_bf16_products()) return rate;
  // The products of an MLP's chunk are those of linear.
  if (query.op.starts_with("mlp")) return query.inputs[0].dtype == DType::kBF16 ? 2 * rate : rate;
  return pick_kernel(query, dispatch).implementation.ends_with("_bf16") ? 2 * rate : rate;
}

}  // namespace

double roofline_seconds(const OpQuery& query, const OpCost& cost, const Dispatch& dispatch,
                        const CpuRates& rates) {
  return std::max(cost.flops / product_rate(query, dispatch, rates), cost.bytes / rates.bytes_per_second);
}

double work_seconds(const OpQuery& query, const OpCost& cost, const Dispatch& dispatch,
                    const CpuRates& rates) {
  return cost.flops / product_rate(query, dispatch, rates) + cost.bytes / rates.bytes_per_second;
}

}  // namespace snug::cpu
