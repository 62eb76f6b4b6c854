// bench/step/updates.h — whole updates of a model on random tokens, as the trainer carries them out
#pragma once

#include <vector>

#include "backends/cpu/backend.h"
#include "compile/pipeline.h"
#include "data/windows.h"
#include "models/model.h"
#include "runtime/executor.h"
#include "step_options.h"
#include "train/host_inputs.h"

namespace snug::bench {

// The middle value; of an even number the mean of the middle two.
double median(std::vector<double> values);

CompileOptions compile_options(const StepOptions& options);

// The plan that the options ask for: of a named policy, or the fastest within --memory by measured costs. Throws
// UserError(kDoesNotFit) where none fits.
Compiled compile_step(const StepOptions& options, const Model& model, cpu::CpuBackend& backend);

// What an update does, again and again on the same batch.
class Updates {
 public:
  Updates(const StepOptions& options, const Model& model, Executor& executor);

  int64_t tokens() const { return static_cast<int64_t>(batch_.tokens.size()) * accumulation_; }

  // One update. Returns the mean loss. Throws InternalError when it is not finite.
  double run();

 private:
  // Of fp16, always the same.
  void write_loss_scale(std::string_view phase);

  Executor& executor_;
  BatchInputs inputs_;
  PlanTensorId loss_;
  bool updates_in_backward_;
  PlanTensorId hyperparameters_;
  Batch batch_;
  int64_t accumulation_;
  int64_t updates_ = 0;
};

}  // namespace snug::bench
