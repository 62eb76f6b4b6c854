// Options: what a run writes and shows.

#include "cli/options/option_kinds.h"

namespace snug {

std::vector<OptionInfo> output_options() {
  return option_group(
      "Output",
      {path(
           "output_dir", &RunOptions::output_dir,
           {.value = "DIR", .commands = kTraining, .help = "Where model, plan, metrics and checkpoints go."}),
       boolean("overwrite_output_dir", &RunOptions::overwrite_output_dir,
               {.commands = kTraining, .help = "Replace the run or model that output_dir holds."}),
       integer("logging_steps", &RunOptions::logging_steps, 1,
               {.commands = kTraining, .help = "Updates between lines of metrics."}),
       integer("eval_steps", &RunOptions::eval_steps, 0,
               {.commands = kTraining, .help = "Updates between evaluations. 0: only at the end."}),
       strategy("eval_strategy", "eval_steps", &RunOptions::eval_steps,
                {.aliases = {"evaluation_strategy"},
                 .commands = kTraining,
                 .help = "no: eval_steps counts for nothing. steps: it must be given."}),
       integer("save_steps", &RunOptions::save_steps, 0,
               {.commands = kTraining,
                .help = "Updates between checkpoint-N directories. 0: only the final model."}),
       strategy(
           "save_strategy", "save_steps", &RunOptions::save_steps,
           {.commands = kTraining, .help = "no: save_steps counts for nothing. steps: it must be given."}),
       integer("seed", &RunOptions::seed, 0,
               {.commands = kTraining | kGenerate | kDataInspect,
                .help = "Seed of initial weights, order of data, dropout and sampling."}),
       boolean("progress", &RunOptions::progress,
               {.commands = kTraining | kEval | kDataInspect,
                .help = "Progress bar on a terminal (--no_progress or --progress false: plain lines)."}),
       shorthand("no_progress", "progress",
                 {.aliases = {"disable_tqdm"},
                  .commands = kTraining | kEval | kDataInspect,
                  .help = "Same as --progress false."},
                 [](RunOptions& o, bool on) { o.progress = !on; })});
}

}  // namespace snug
