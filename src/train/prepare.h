// train/prepare.h — from options to a run that is proven to fit: everything up to touching the arena
//
// `snug plan` and `snug train` both come here and do exactly the same, so that both state the same number: check the options, read the
// model's configuration, open the data, start the backend (its threads, libraries' buffers and one warm-up product), compile the
// plan that fits the budget, and measure what lies outside the arena. No weight is read.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "formats/model_directory.h"
#include "formats/tokenizer/tokenizer.h"
#include "models/model.h"
#include "observe/plan_report.h"
#include "observe/process_memory.h"
#include "observe/reserve.h"
#include "train/costs.h"
#include "train/open_data.h"
#include "train/run_options.h"
#include "train/text_tokenizer.h"

#include "backends/cpu/backend.h"

namespace snug {

enum class RunKind : uint8_t { kTrain, kEvaluate, kGenerate };

struct Prepared {
  RunKind kind = RunKind::kTrain;
  RunOptions asked;    // as given, with max_length, threads and accumulation filled in
  RunOptions options;  // the same with the planner's choices: what the plan is made for
  ModelDirectory directory;
  Model model;
  std::unique_ptr<const Tokenizer> tokenizer;  // of a prompt; none: Snug's byte tokenizer, or no prompt
  std::optional<ChatPrompt> chat;              // of options.chat
  bool trains_on_bytes = false;                // Snug's byte tokenizer reads the training text
  bool evaluates = false;                      // there is a phase that evaluates
  CompileOptions compile_options;
  std::unique_ptr<cpu::CpuBackend> backend;
  Compiled compiled;
  CostsReport costs;  // by what the compiler chose

  RunData data;
  Schedule schedule;                         // of data.train
  int64_t updates = 0;                       // of the whole run; 0 when unknown (no data) or max_steps 0

  ProcessMemory outside;     // the process before the arena
  Reserve reserve;
  MemoryAllowance allowance;  // what the control groups or the machine let this process hold
  Bytes budget;               // options.memory, or what `margin` leaves of the allowance: 0 where it leaves nothing
  Bytes margin;
  PlanSummary summary;
};

// What is asked of the search for a plan.
struct PlanQuestion {
  // The plan is stated for another process, which may measure what lies outside the arena a little larger (observe/reserve.h).
  bool is_stated = false;
  bool with_alternatives = false;               // what each option that is not in use would change (train/changes.h)
  std::function<void(double seconds)> waiting;  // called about once a second while it is sought, with the seconds so far
};

// Throws UserError: kUsage for options that contradict each other, kBadFile for model and data.
Prepared prepare(const RunOptions& options, RunKind kind, const DataWatch& watch = {},
                 const PlanQuestion& question = {});

// From here on large vectors come from mmap and go back at once; the one heap holds small objects only. Of the process; prepare() does it first.
void keep_heap_small();

// What the compiler is asked for. A policy that needs a budget is left to train/fit.h: here it keeps everything.
CompileOptions compile_options(const RunOptions& options, const Model& model, RunKind kind, bool evaluates);

// What the host holds of batches while a plan of these options runs: two of a micro-step and two to evaluate (data/prefetch.h).
Bytes host_batches(const RunOptions& options, RunKind kind, bool evaluates);

// What lies outside the arena of `plan`: what is there now, what libraries will take while an operation runs
// (base/library_pool.h keeps it from growing beyond), and `batches` (host_batches).
Reserve reserve_beside(const Plan& plan, const cpu::CpuBackend& backend, const ProcessMemory& outside,
                       Bytes batches);

}  // namespace snug
