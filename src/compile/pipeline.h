// compile/pipeline.h — the compiler: a model and options become a Plan and a report on it
#pragma once

#include <span>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/liveness.h"
#include "analysis/peak.h"
#include "compile/options.h"
#include "ir/graph.h"
#include "layout/layout.h"
#include "models/model.h"
#include "plan/plan.h"
#include "plan/target.h"

namespace snug {

struct CompileReport {
  std::vector<PassTiming> passes;  // in the order in which they ran, phase by phase
  double seconds = 0;              // of the whole compilation
  double layout_seconds = 0;       // of packing and judging it

  std::string layout_order;  // which order of packing won
  Bytes arena, lower_bound;  // what the layout needs, and what none can go below
  Bytes sum_of_sizes;        // what the buffers would take without sharing a byte
  double gap = 0;            // arena / lower_bound − 1: 0 is perfect

  std::vector<PhasePeak> phases;  // in plan order, each with its bytes by category
  PhasePeak peak;                 // the largest of them
  std::array<Bytes, kCategories> category_peaks;  // the most that each category holds at any moment

  int64_t parameters = 0;      // elements
  double update_flops = 0;     // needed by one update: forward and backward of all its micro-steps
  double recompute_flops = 0;  // repeated in one update
  double update_seconds = 0;   // of one update, as the target estimates it
};

struct Compiled {
  Plan plan;
  CompileReport report;
  Program program;         // the graphs after the last pass
  layout::Problem layout;  // one buffer each; its offsets are in the plan
};

// Throws UserError(kUsage) for options out of range, an unknown or indispensable pass among disabled_passes,
// or an operation that the target refuses; InternalError when the layout's or the plan's judge finds a
// fault.
Compiled compile(const Model& model, const CompileOptions& options, const Target& target);

// The same with a layout that is not improved further once its arena fits `enough`.
Compiled compile_within(const Model& model, const CompileOptions& options, Bytes enough, const Target& target);

// The same in three steps, for searches that compare many plans and finish one.
// A run up to its layout: what is computed, how long every byte is held, what that takes. `report.arena` is the lower
// bound until there is a layout.
struct Draft {
  CompileReport report;
  Program program;
  Timeline timeline;
  layout::Problem layout;
};
Draft draft(const Model& model, const CompileOptions& options, const Target& target,
            Checks checks = Checks::kEveryPass);
// Where every byte lies, judged; a layout that fits `enough` is not improved further. Fills in the report.
layout::Solution lay_out(Draft& draft, Bytes enough);
// The plan, judged.
Compiled finish(Draft draft, const layout::Solution& solution, const Target& target);

// The micro-step between `differentiate` and `recompute`: what retentions are chosen for.
Graph differentiated_micro_step(const Model& model, const CompileOptions& options);

// The passes that follow `recompute`, bare: no verifier, timer or observer. For a planner that prices many small
// graphs. Passes named in `without` are left out, as those that the options disable.
void finish_micro_step(Graph& graph, const CompileOptions& options,
                       std::span<const std::string_view> without = {});

// The passes that disabled_passes may name. Without them the numbers are the same; the plan needs more bytes.
std::span<const std::string_view> optional_passes();

}  // namespace snug
