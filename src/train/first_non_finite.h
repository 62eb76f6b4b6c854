// train/first_non_finite.h — names the first tensor of a running phase that holds an infinity or a NaN
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compile/options.h"
#include "runtime/executor.h"

namespace snug {

// Watches an executor (Executor::observe) and looks at every floating output right behind its operation, and at every weight before
// its first use. Reads every byte that is written, in pieces through Executor::read; allocates when something is found.
class FirstNonFinite : public ExecutionObserver {
 public:
  explicit FirstNonFinite(Executor& executor);

  // "h.3.mlp.c_fc (f16[4,1024,3072], operation h.3.mlp.c_fc) holds an infinity"; none while all is finite.
  const std::optional<std::string>& found() const { return found_; }

  void before_phase(const PlanPhase&, int64_t) override {}
  void before_operation(const PlanPhase& phase, const PlanOp& op, int64_t moment,
                        int64_t repetition) override;
  void after_operation(const PlanPhase& phase, const PlanOp& op, int64_t moment, int64_t repetition) override;
  void after_phase(const PlanPhase&, int64_t) override {}
  void after_write(PlanTensorId) override {}

 private:
  void look_at(PlanTensorId id, const PlanPhase& phase, const PlanOp& op);

  Executor& executor_;
  std::vector<std::byte> piece_;
  std::vector<bool> seen_;  // weights, by tensor
  std::optional<std::string> found_;
};

// Ends a run whose numbers are not finite: calls `again`, which repeats the phases in question, watched until something is found, and throws
// UserError(kNonFinite) with `why`, the name that was found and, with fp16, what to do. The executor's observer is gone afterwards.
[[noreturn]] void throw_non_finite(Executor& executor, Precision precision, const std::string& why,
                                   const std::function<void(const FirstNonFinite&)>& again);

}  // namespace snug
