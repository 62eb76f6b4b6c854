// cli/run_display.h — a run on the terminal: banner, plan, progress, evaluation, the closing lines
#pragma once

#include <cstdio>
#include <functional>
#include <optional>

#include "cli/options/options.h"
#include "observe/progress.h"
#include "train/trainer.h"

namespace snug {

// Effective configuration, model, data and batch arithmetic, before anything runs.
void print_banner(const Prepared& run, Command command, const ProgramOptions& options);

// What the run's data are.
void print_data(const Prepared& run, std::FILE* file);
// Tells on standard error how far the preparing of data is: on a terminal in place, otherwise a line each ten seconds.
DataWatch data_watch(bool wants_progress);
// Tells on standard error, where that is a terminal, that a plan is sought and for how long; what it told is gone with it.
std::function<void(double seconds)> plan_watch(bool wants_progress);

class RunDisplay : public RunObserver {
 public:
  explicit RunDisplay(bool wants_progress);
  void step(const StepMetrics& step, double tokens, bool logged) override;
  void evaluation(const EvaluationMetrics& evaluation) override;
  void note(std::string_view text) override;
  void finish() { progress_.finish(); }

 private:
  Progress progress_;
};

}  // namespace snug
