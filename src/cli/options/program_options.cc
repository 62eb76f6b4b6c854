// Options: what only the program knows, beside the run itself.

#include "cli/options/option_kinds.h"

namespace snug {

std::vector<OptionInfo> program_options() {
  return option_group(
      "Program",
      {boolean("json", &ProgramOptions::json,
               {.commands = kPlan | kVersion | kDataInspect, .help = "Print one JSON object."}),
       boolean("sweep", &ProgramOptions::sweep,
               {.commands = kPlan,
                .help = "Show memory against speed from the smallest budget that works to keeping "
                        "everything, with the named policies, as a table and a plot."}),
       path("sweep_svg", &ProgramOptions::sweep_svg,
            {.value = "FILE", .commands = kPlan, .help = "Draw the sweep into FILE, a standalone SVG."}),
       integer("samples", &ProgramOptions::samples, 0,
               {.commands = kDataInspect, .help = "Samples to show, drawn by the seed."}, 10000),
       text("at", &ProgramOptions::at,
            {.value = "POINT",
             .commands = kInspect,
             .help = "What to print: forward, a pass (cast, chunk_mlp, differentiate, scale_loss, recompute, "
                     "fuse, accumulate, narrow_gradients, update_in_backward, in_place), final, schedule, "
                     "layout, kernels or plan."}),
       text("phase", &ProgramOptions::phase,
            {.value = "NAME",
             .commands = kInspect,
             .help = "Which phase: micro_step, update, evaluate, load, save. Default: all."})},
      false);
}

}  // namespace snug
