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

// No line of a report is wider, and none wider than the terminal, where a word of its own does not need more.
inline constexpr size_t kReportColumns = 100;

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
  // What a block's forward leaves for the backward, and what is made again there.
  struct Block {
    int32_t block = 0;
    Bytes kept, compressed, recomputed;  // compressed: codes and scales; recomputed: written again in one
                                         // micro-step
    double recompute_seconds = 0;        // estimated, of one micro-step, decoding included
    // Operations, without the block's prefix, in execution order.
    std::vector<std::string> keeps, compresses, recomputes;
  };
  // The same run under a named recompute policy.
  struct Policy {
    std::string name;
    Bytes peak;  // of the process
    double step_seconds = 0;
  };

  // What was chosen besides recomputation.
  struct Chosen {
    std::string update_placement;          // "after", "in_backward"; empty for a plan that does not train
    int64_t backward_passes = 1;           // of one micro-step
    int64_t micro_batch = 0, accumulation = 1;
    int64_t head_chunk_rows = 0;           // rows of logits at a time
    int64_t mlp_chunk_rows = 0;            // rows an MLP works on at a time; 0: all
    std::vector<std::string> forms;        // words of --allow that are made use of
    std::vector<std::string> planned;      // options of which the planner chose the value
    std::string because;                   // why not the run without these choices
  };
  // What one option would change if it were given besides.
  struct Alternative {
    std::string option;
    // The most that each term holds at any moment with everything kept, less what it is now; those that change.
    std::vector<Category> terms;
    Bytes peak;  // of the process, planned within the same budget; estimated, like the rest: nothing is laid out
    double step_seconds = 0;
    bool fits = false;
  };

  bool fits = true;
  Bytes budget, peak, arena, reserve, lower_bound;  // budget and peak: of the process; peak = arena + reserve
  std::vector<Memory> memories;
  // Live at the peak moment, then "unused" and "reserve": they sum to `peak`.
  std::vector<Category> categories;
  std::vector<Phase> phases;
  std::string peak_phase, peak_operation;
  double step_seconds = 0;      // estimated, of one update
  int64_t tokens_per_step = 0;  // of one update
  int64_t parameters = 0;

  // What recomputation was chosen, and what it costs. The caller fills in all but `blocks`.
  std::string recompute;      // the policy
  std::vector<Block> blocks;  // in order; empty for a plan that does not train
  double slowdown = 0;        // step_seconds / the keep-all plan's - 1
  std::optional<double> gap;  // no plan of these techniques can be faster by more than this fraction at this
                              // budget; none where nothing was proven
  std::optional<Bytes> smallest_budget;  // of the process, by the techniques that are allowed
  std::vector<Policy> policies;
  Chosen chosen;
  Bytes carried_gradients;  // held from one micro-step to the next; 0 without accumulation
  // Each option alone, all else equal; none where nobody asked (train/changes.h).
  std::optional<std::vector<Alternative>> alternatives;
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

// Per transformer block of the plan's micro-step, from the plan alone. Values that share a buffer count once.
std::vector<PlanSummary::Block> block_choices(const Plan& plan);

// Fills in everything that follows from the plan and its reserve; `budget` is the whole process'.
PlanSummary summarize(const Plan& plan, const Reserve& reserve, Bytes budget, int64_t tokens_per_step,
                      int64_t parameters);

// The object of `snug plan --json`, format 1; docs/options.md lists its keys.
Json plan_json(const PlanSummary& summary);

// The same as a table: bytes by category with bars, phases, the peak's operation, budget and what is left
// of it; then what was chosen and why.
std::string plan_table(const PlanSummary& summary, size_t columns = kReportColumns);

// What the blocks do, a row for all that do the same ("0–6, 8–13"); then slowdown, gap, smallest budget and the named policies.
// "attn.*" are all operations of attn that some block keeps or computes again. Empty for a plan that does not train.
std::string choices_table(const PlanSummary& summary, size_t columns = kReportColumns);

// "update in_backward (two passes), micro-batch 4 × 2, head 256 rows, bf16_optimizer".
std::string describe(const PlanSummary::Chosen& chosen);

// What each alternative would change, a row an option. Empty where there are none.
std::string alternatives_table(const PlanSummary& summary, size_t columns = kReportColumns);

}  // namespace snug
