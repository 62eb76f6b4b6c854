// observe/plan_report.h — what a plan needs, for eyes (table with bars) and for programs (`snug plan --json`)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json_type.h"
#include "observe/reserve.h"
#include "plan/plan.h"

namespace snug {

// The answer of `snug plan` as plain data.
struct PlanSummary {
  struct Memory {
    std::string name;
    Bytes budget, peak, arena;  // of the first memory (this machine's): budget and peak of the whole process
  };
  struct Category {
    std::string name;
    Bytes bytes;
  };
  struct Phase {
    std::string name;
    int64_t repeats = 1;
    Bytes peak;  // live in the arena at the phase's worst moment
  };

  bool fits = true;
  Bytes budget, peak, arena, reserve, lower_bound;  // budget and peak: of the process; peak = arena + reserve
  std::vector<Memory> memories;
  std::vector<Category>
      categories;  // live at the peak moment, then "unused" and "reserve": they sum to `peak`
  std::vector<Phase> phases;
  std::string peak_phase, peak_operation;
  double step_seconds = 0;      // estimated, of one update
  int64_t tokens_per_step = 0;  // of one update
  int64_t parameters = 0;
};

// What a plan holds at its worst moment. Of tensors that share a buffer the largest counts; a tensor's
// padding is unused.
struct PlanPeak {
  std::string phase, operation;
  std::vector<PlanSummary::Category> categories;  // in the order of first use, without empty ones
  Bytes live;
};
// The peak of the plan's first memory.
PlanPeak plan_peak(const Plan& plan);

// Fills in everything that follows from the plan and its reserve; `budget` is the whole process'.
PlanSummary summarize(const Plan& plan, const Reserve& reserve, Bytes budget, int64_t tokens_per_step,
                      int64_t parameters);

// The object of `snug plan --json`, format 1; docs/options.md lists its keys.
Json plan_json(const PlanSummary& summary);

// The same as a table: bytes by category with bars, phases, the peak's operation, budget and what is left
// of it.
std::string plan_table(const PlanSummary& summary);

}  // namespace snug
