#include <cstdio>

#include "base/errors.h"
#include "cli/commands.h"
#include "cli/run_display.h"
#include "cli/standard_streams.h"
#include "train/trainer.h"

namespace snug {
namespace {

// What was done; of what is not known, nothing.
void print_result(const TrainResult& result) {
  if (result.updates == 0) {
    std::printf("\nNo update was made\n");
    return;
  }
  std::string losses = "; no update was applied, so there is no loss";
  if (result.train_loss && result.last_loss)
    losses = fmt::format("; mean loss {}, last {}", format_number(*result.train_loss, 4),
                         format_number(*result.last_loss, 4));
  const std::string rate =
      result.seconds > 0
          ? fmt::format(" ({:.0f} tokens/s)", static_cast<double>(result.tokens_seen) / result.seconds)
          : "";
  std::printf("\nTrained %lld updates (%lld skipped), %lld tokens in %.1f s%s%s\n",
              static_cast<long long>(result.updates), static_cast<long long>(result.skipped_updates),
              static_cast<long long>(result.tokens_seen), result.seconds, rate.c_str(), losses.c_str());
  if (result.eval_loss) std::printf("Evaluation loss %s\n", format_number(*result.eval_loss, 4).c_str());
}

}  // namespace

int train_command(const ProgramOptions& options) {
  if (options.run.output_dir.empty())
    throw_user(ExitCode::kUsage, "--output_dir is missing; expected a directory for the trained model");
  ignore_broken_pipes();
  Prepared run = prepare(options.run, RunKind::kTrain, data_watch(options.run.progress),
                         {.waiting = plan_watch(options.run.progress)});
  require_budget_allowed(run);
  require_plan_fits(run);

  print_banner(run, kTrain, options);
  std::printf("\n%s%s", plan_table(run.summary).c_str(), costs_line(run.costs).c_str());
  if (run.summary.slowdown > 0) std::printf("\n%s", choices_table(run.summary).c_str());
  std::fflush(stdout);

  ProgramOptions effective = options;
  effective.run = run.options;
  std::vector<RunSetting> configuration;
  for (const auto& [name, value] : effective_configuration(kTrain, effective))
    if (!value.empty()) configuration.push_back({.key = name, .value = value});

  RunDisplay display(run.options.progress);
  const TrainResult result = train(run, configuration, &display);
  display.finish();
  print_result(result);
  std::printf("Memory planned %s, measured %s (arena planned %s, used %s; %lld allocations during steps)\n",
              format_bytes(result.planned_process_peak).c_str(),
              format_bytes(result.measured_process_peak).c_str(), format_bytes(result.planned_arena).c_str(),
              format_bytes(result.used_arena).c_str(),
              static_cast<long long>(result.allocations_during_steps));
  std::printf("Saved %s\n", run.options.output_dir.c_str());
  return static_cast<int>(result.interrupted_by != 0 ? ExitCode::kInterrupted : ExitCode::kSuccess);
}

}  // namespace snug
