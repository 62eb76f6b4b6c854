// train/host_inputs.h — one batch on its way from the host into a phase's inputs
#pragma once

#include <span>
#include <string_view>

#include "data/batch.h"
#include "runtime/executor.h"

namespace snug {

// The inputs that a phase's plan has; the ones it does not use are left out.
class BatchInputs {
 public:
  BatchInputs(const Executor& executor, std::string_view phase);

  // Writes all of `batch` and `inverse_tokens`. Allocates nothing.
  void write(Executor& executor, const Batch& batch, float inverse_tokens) const;

 private:
  PlanTensorId tokens_, targets_, positions_, document_starts_, inverse_tokens_, randomness_;
};

// The tensor PHASE/NAME; invalid when the phase has no such tensor.
PlanTensorId phase_tensor(const Executor& executor, std::string_view phase, std::string_view name);

}  // namespace snug
