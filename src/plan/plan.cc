#include "plan/plan.h"

namespace snug {

const PlanPhase* Plan::phase(std::string_view phase_name) const {
  for (const PlanPhase& phase : phases)
    if (phase.name == phase_name) return &phase;
  return nullptr;
}

PlanTensorId Plan::find(std::string_view tensor_name) const {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].name == tensor_name) return PlanTensorId(i);
  return PlanTensorId();
}

}  // namespace snug
