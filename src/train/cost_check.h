// train/cost_check.h — whether a run's own updates contradict the costs that it was planned with
//
// Why:    what disturbs a measurement makes it longer, so costs that were measured beside other work are too large, and with them
//         every later plan is judged wrongly. A run on the quiet machine shows it: nothing makes it faster than its operations are.
//         That it is slower shows nothing: now the run may be what is disturbed.
// Rule:   contradicted are costs by which each of five updates in a row should have taken more than 15 % longer than it did.
// Counts: operations whose work is the same in every update. Those that read a batch's integers (attention, head, embedding) do less where
//         documents are short or nothing is supervised; an update with fewer micro-steps than planned, at an epoch's end, is passed over.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "plan/plan.h"
#include "runtime/executor.h"

namespace snug {

class CostCheck {
 public:
  // By the seconds that `plan` says of its operations; it is not kept.
  explicit CostCheck(const Plan& plan);

  struct Contradiction {
    double planned_seconds = 0,
           measured_seconds = 0;  // of one update's operations that count; measured: the slowest of the five
  };
  // After each update: what an executor measured of its operations. Answers once the rule above is met. Allocates nothing.
  std::optional<Contradiction> after_update(std::span<const Executor::OperationTime> times);

 private:
  struct Planned {
    int64_t count = 0;  // executions in one update
    double seconds = 0;
  };
  std::map<std::string, Planned, std::less<>> kinds_;
  double planned_seconds_ = 0, slowest_ = 0;
  int faster_in_a_row_ = 0;
};

}  // namespace snug
