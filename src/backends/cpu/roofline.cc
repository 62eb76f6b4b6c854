#include "backends/cpu/roofline.h"

#include <algorithm>

#include "backends/cpu/kernel.h"

namespace snug::cpu {
namespace {

// Share of the product rate that an operation's needed FLOPs reach (bench/kernels).
double product_share(std::string_view op) {
  if (op == "attention" || op == "attention_qkv") return 0.75;
  if (op == "attention_backward" || op == "attention_qkv_backward") return 0.65;
  return 0.95;
}

double product_rate(const OpQuery& query, const Dispatch& dispatch, const CpuRates& rates) {
  const double rate = rates.product_flops_per_second * product_share(query.op);
  if (!dispatch.native_bf16_products()) return rate;
  return pick_kernel(query, dispatch).implementation == "onednn_bf16" ? 2 * rate : rate;
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
