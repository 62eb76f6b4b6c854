#include <cstdio>

#include "cli/commands.h"
#include "train/prepare.h"

namespace snug {

int plan_command(const ProgramOptions& options) {
  Prepared run = prepare(options.run, RunKind::kTrain);
  const ExitCode code = run.summary.fits ? ExitCode::kSuccess : ExitCode::kDoesNotFit;
  if (options.json) {
    std::printf("%s\n", plan_json(run.summary).dump(2).c_str());
    return static_cast<int>(code);
  }
  std::printf("%s%s", plan_table(run.summary).c_str(), costs_line(run.costs).c_str());
  if (run.options.memory && *run.options.memory > run.allowance.bytes)
    std::printf("Note: %s now allows this process only %s; train would refuse this budget here.\n",
                run.allowance.source.c_str(), format_bytes(run.allowance.bytes).c_str());
  if (!run.options.memory)
    std::printf("No --memory was given: the budget is what %s allows (%s) minus a margin of %s.\n",
                run.allowance.source.c_str(), format_bytes(run.allowance.bytes).c_str(), format_bytes(run.margin).c_str());
  if (!run.summary.fits) {
    std::fflush(stdout);
    require_plan_fits(run, true);  // the words that train would refuse with
  }
  return static_cast<int>(code);
}

}  // namespace snug
