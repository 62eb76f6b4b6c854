// train/prepare.h — from options to a run that is proven to fit: everything up to touching the arena
//
// `snug plan` and `snug train` both come here and do exactly the same, so that both state the same number: check the options, read the
// model's configuration, open the data, start the backend (its threads, libraries' buffers and one warm-up product), compile the
// plan, and measure what lies outside the arena. No weight is read.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "data/windows.h"
#include "formats/model_directory.h"
#include "models/model.h"
#include "observe/plan_report.h"
#include "observe/process_memory.h"
#include "observe/reserve.h"
#include "train/costs.h"
#include "train/run_options.h"

#include "backends/cpu/backend.h"

namespace snug {

enum class RunKind : uint8_t { kTrain, kEvaluate, kGenerate };

struct Prepared {
  RunKind kind = RunKind::kTrain;
  RunOptions options;  // effective: max_length and threads filled in, memory as it was given
  ModelDirectory directory;
  Model model;
  CompileOptions compile_options;
  std::unique_ptr<cpu::CpuBackend> backend;
  Compiled compiled;
  CostsReport costs;  // by what the compiler chose

  std::optional<Windows> train, validation;  // none without a file
  Schedule schedule;                         // of `train`
  int64_t updates = 0;                       // of the whole run; 0 when unknown (no data) or max_steps 0

  ProcessMemory outside;     // the process before the arena
  Reserve reserve;
  MemoryAllowance allowance;  // what the control groups or the machine let this process hold
  Bytes budget;               // options.memory, or the allowance less `margin`
  Bytes margin;
  PlanSummary summary;
};

// Throws UserError: kUsage for options that contradict each other, kBadFile for model and data.
Prepared prepare(const RunOptions& options, RunKind kind);

// Throws UserError(kDoesNotFit) when the plan's process peak exceeds the budget: the missing bytes, the bytes by category unless
// plan_table() has just shown them, and which changes would make it fit.
void require_plan_fits(const Prepared& run, bool table_was_shown = false);
// Throws UserError(kUsage) when the budget exceeds what the control groups or the machine allow, with both numbers.
void require_budget_allowed(const Prepared& run);

// One change of options with the process peak that follows from it.
struct Change {
  std::string description;
  Bytes peak;
  bool fits = false;
};
// What of `recompute block`, `precision bf16`, a smaller batch and a shorter max_length would lower the peak, alone and together; fitting
// ones first. Batch and length are left out where what lives at every moment exceeds the budget already: they are not the knob then.
std::vector<Change> changes_that_help(const Prepared& run);

// What no batch, length or recomputation can lower: the state (weights, masters, moments) and the reserve.
Bytes fixed_bytes(const Prepared& run);

}  // namespace snug
