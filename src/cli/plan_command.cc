#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/errors.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/run_display.h"
#include "train/changes.h"
#include "train/fit.h"

namespace snug {
namespace {

int terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

void sweep(const Prepared& run, const ProgramOptions& options) {
  const Frontier frontier = frontier_of(run);
  std::printf("%s\n%s", frontier_plot(frontier, terminal_columns()).c_str(),
              frontier_table(frontier).c_str());
  if (options.sweep_svg.empty()) return;
  write_file(options.sweep_svg, frontier_svg(frontier));
  std::printf("Drawn in %s\n", options.sweep_svg.c_str());
}

}  // namespace

int plan_command(const ProgramOptions& options) {
  if (options.json && (options.sweep || !options.sweep_svg.empty()))
    throw_user(ExitCode::kUsage,
               "json with sweep: found both, expected one; a sweep is a table, a plot or an SVG file");
  const bool sweeps = options.sweep || !options.sweep_svg.empty();
  Prepared run = prepare(options.run, RunKind::kTrain, data_watch(options.run.progress),
                         {.is_stated = true, .with_alternatives = !sweeps, .waiting = plan_watch(options.run.progress)});
  if (sweeps) {
    sweep(run, options);
    return static_cast<int>(ExitCode::kSuccess);
  }
  const ExitCode code = run.summary.fits ? ExitCode::kSuccess : ExitCode::kDoesNotFit;
  if (options.json) {
    std::printf("%s\n", plan_json(run.summary).dump(2).c_str());
    return static_cast<int>(code);
  }
  // The words that train would refuse with stand first, the details behind them.
  if (!run.summary.fits) std::fprintf(stderr, "snug: %s\n\n", refusal(run, false).c_str());
  const size_t columns = std::min(kReportColumns, static_cast<size_t>(terminal_columns()));
  std::printf("%s\n%s", plan_table(run.summary, columns).c_str(), choices_table(run.summary, columns).c_str());
  if (run.summary.alternatives && !run.summary.alternatives->empty())
    std::printf("\n%s", alternatives_table(run.summary, columns).c_str());
  std::printf("\n%s", costs_line(run.costs).c_str());
  if (run.options.memory && *run.options.memory > run.allowance.bytes)
    std::printf("Note: %s now allows this process only %s; train would refuse this budget here.\n",
                run.allowance.source.c_str(), format_bytes(run.allowance.bytes).c_str());
  if (run.summary.fits) std::printf("%s", budget_line(run).c_str());
  return static_cast<int>(code);
}

}  // namespace snug
