#include "train/cost_check.h"

#include <algorithm>
#include <unordered_set>

namespace snug {
namespace {

constexpr int kUpdatesInARow = 5;
constexpr double kTolerance = 1.15;

bool reads_integers_of_batch(const Plan& plan, const PlanPhase& phase, const PlanOp& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(), [&](PlanTensorId input) {
    return plan.tensor(input).dtype == DType::kI32 &&
           std::find(phase.inputs.begin(), phase.inputs.end(), input) != phase.inputs.end();
  });
}

}  // namespace

CostCheck::CostCheck(const Plan& plan) {
  std::unordered_set<std::string> varying;
  for (const PlanPhase& phase : plan.phases)
    if (phase.repeats > 0)
      for (const PlanOp& op : phase.ops) {
        Planned& kind = kinds_[op.op];
        kind.count += phase.repeats;
        kind.seconds += op.seconds * static_cast<double>(phase.repeats);
        if (reads_integers_of_batch(plan, phase, op)) varying.insert(op.op);
      }
  for (const std::string& kind : varying) kinds_.erase(kind);
  for (const auto& [kind, planned] : kinds_) planned_seconds_ += planned.seconds;
}

std::optional<CostCheck::Contradiction> CostCheck::after_update(
    std::span<const Executor::OperationTime> times) {
  double seconds = 0;
  for (const Executor::OperationTime& time : times) {
    const auto kind = kinds_.find(time.op);
    if (kind == kinds_.end()) continue;
    if (time.count != kind->second.count) return std::nullopt;
    seconds += time.seconds;
  }
  if (planned_seconds_ <= kTolerance * seconds) {
    faster_in_a_row_ = 0;
    return std::nullopt;
  }
  slowest_ = faster_in_a_row_ == 0 ? seconds : std::max(slowest_, seconds);
  if (++faster_in_a_row_ < kUpdatesInARow) return std::nullopt;
  return Contradiction{planned_seconds_, slowest_};
}

}  // namespace snug
