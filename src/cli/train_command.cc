#include <cstdio>

#include "base/errors.h"
#include "cli/commands.h"
#include "cli/run_display.h"
#include "train/trainer.h"

namespace snug {

int train_command(const ProgramOptions& options) {
  if (options.run.output_dir.empty())
    throw_user(ExitCode::kUsage, "--output_dir is missing; expected a directory for the trained model");
  Prepared run = prepare(options.run, RunKind::kTrain, data_watch(options.run.progress));
  print_banner(run, kTrain, options);
  std::printf("\n%s%s", plan_table(run.summary).c_str(), costs_line(run.costs).c_str());
  if (run.summary.slowdown > 0) std::printf("\n%s", choices_table(run.summary).c_str());
  std::fflush(stdout);
  require_budget_allowed(run);
  require_plan_fits(run);

  ProgramOptions effective = options;
  effective.run = run.options;
  std::vector<RunSetting> configuration;
  for (const auto& [name, value] : effective_configuration(kTrain, effective))
    if (!value.empty()) configuration.push_back({.key = name, .value = value});

  RunDisplay display(run.options.progress);
  const TrainResult result = train(run, configuration, &display);
  display.finish();
  std::printf(
      "\nTrained %lld updates (%lld skipped), %lld tokens in %.1f s (%.0f tokens/s); mean loss %.4f, last "
      "%.4f\n",
      static_cast<long long>(result.updates), static_cast<long long>(result.skipped_updates),
      static_cast<long long>(result.tokens_seen), result.seconds,
      result.seconds > 0 ? static_cast<double>(result.tokens_seen) / result.seconds : 0.0, result.train_loss,
      result.last_loss);
  if (result.eval_loss) std::printf("Evaluation loss %.4f\n", *result.eval_loss);
  std::printf("Memory planned %s, measured %s (arena planned %s, used %s; %lld allocations during steps)\n",
              format_bytes(result.planned_process_peak).c_str(),
              format_bytes(result.measured_process_peak).c_str(), format_bytes(result.planned_arena).c_str(),
              format_bytes(result.used_arena).c_str(),
              static_cast<long long>(result.allocations_during_steps));
  std::printf("Saved %s\n", run.options.output_dir.c_str());
  return static_cast<int>(result.interrupted_by != 0 ? ExitCode::kInterrupted : ExitCode::kSuccess);
}

}  // namespace snug
