// train/trainer.h — the training loop over a prepared run: load, update after update, evaluate, save
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/run_config.h"
#include "observe/metrics.h"
#include "train/fit.h"
#include "train/prepare.h"

namespace snug {

// What a run tells while it goes on. Every method may be left as it is. Called between steps only, where allocation is allowed.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // After every update. `tokens`: without padding. `logged`: the step's numbers are complete and in metrics.jsonl.
  virtual void step(const StepMetrics& /*step*/, double /*tokens*/, bool /*logged*/) {}
  virtual void evaluation(const EvaluationMetrics& /*evaluation*/) {}
  // A sentence for the user: warnings, saved checkpoints, the check after the first update.
  virtual void note(std::string_view /*text*/) {}
};

struct TrainResult {
  int64_t updates = 0;          // carried out, skipped ones included
  int64_t skipped_updates = 0;  // because something was not finite
  int64_t tokens_seen = 0;
  // Of the updates that were applied: the mean, and the last; none without one.
  std::optional<double> train_loss, last_loss;
  double seconds = 0;  // of all steps
  std::optional<double> eval_loss;  // of the last evaluation; may be not finite where the run was interrupted
  Bytes planned_process_peak, measured_process_peak;  // measured: VmHWM + VmPTE
  Bytes planned_arena, used_arena;
  int64_t allocations_during_steps = 0;  // of Snug's own: operator new (where the program counts it) and reservations
  int interrupted_by = 0;                // the signal, or 0
};

// Trains `run` (of kind kTrain, which must fit) and writes options.output_dir: the model directory, plan.json, config.yaml from
// `configuration`, metrics.jsonl, and memory.json last, which marks a finished run. With an empty output_dir nothing is written.
// What an earlier run left in output_dir stays as it was until the model is saved (train/output_directory.h).
//
// Throws UserError: kUsage for missing data or an output directory with a finished run, kIo, kBadFile for weights, also those that are not
// finite; kNonFinite after 20 skipped updates in a row; with fp16 also where the loss scale cannot be halved any more, and where the
// first loss is not finite. A run that was not interrupted also ends by kNonFinite, and saves no model, where no update was applied, where
// behind the last applied update more were skipped than were ever applied, where the last evaluation is not finite and where a weight is not.
TrainResult train(Prepared& run, const std::vector<RunSetting>& configuration = {}, RunObserver* observer = nullptr);

// Loss over every target of `run.data.validation`, each once (kind kEvaluate). Throws UserError: kBadFile for weights, kNonFinite where a loss
// is not finite, with the name of the tensor that is not.
EvaluationMetrics evaluate(Prepared& run, RunObserver* observer = nullptr);

}  // namespace snug
