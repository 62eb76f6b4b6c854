#include <cmath>
#include <cstdio>

#include "cli/commands.h"
#include "cli/run_display.h"
#include "train/trainer.h"

namespace snug {

int eval_command(const ProgramOptions& options) {
  Prepared run = prepare(options.run, RunKind::kEvaluate, data_watch(options.run.progress));
  print_data(run, stderr);
  require_budget_allowed(run);
  require_plan_fits(run);
  const EvaluationMetrics evaluation = evaluate(run);
  std::printf("loss %.6f\nperplexity %s\ntokens %lld\nseconds %.1f\n", evaluation.eval_loss,
              format_number(std::exp(evaluation.eval_loss), 4).c_str(),
              static_cast<long long>(evaluation.eval_tokens), evaluation.eval_seconds);
  return 0;
}

}  // namespace snug
