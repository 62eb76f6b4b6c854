#include "cli/run_display.h"

#include <cmath>

#include "models/model.h"
#include "train/batch.h"

namespace snug {

void print_banner(const Prepared& run, Command command, const ProgramOptions& options) {
  ProgramOptions defaults, asked = options;
  settle_batch(defaults.run);
  asked.run = run.asked;
  std::printf("Configuration (only what differs from the defaults; config.yaml has all):\n");
  ProgramOptions effective = options;
  effective.run = run.options;
  const auto all = effective_configuration(command, effective);
  const auto usual = effective_configuration(command, defaults), given = effective_configuration(command, asked);
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].second != usual[i].second)
      std::printf("  %-28s %s%s\n", all[i].first.c_str(), all[i].second.c_str(),
                  all[i].second != given[i].second ? " (planned)" : "");

  int64_t parameters = 0, trainable = 0;
  for (const ParameterSpec& parameter : run.model.parameters) {
    parameters += parameter.shape.elements();
    if (parameter.trainable) trainable += parameter.shape.elements();
  }
  std::printf("Model: %s, %lld blocks, %lld parameters, %lld trainable (%.1f %%)\n", run.model.family.c_str(),
              static_cast<long long>(run.model.blocks), static_cast<long long>(parameters), static_cast<long long>(trainable),
              100.0 * static_cast<double>(trainable) / static_cast<double>(parameters));
  if (run.train)
    std::printf("Data: %lld tokens in %lld windows of %lld\n", static_cast<long long>(run.train->tokens()),
                static_cast<long long>(run.train->count()), static_cast<long long>(run.options.max_length));
  if (run.validation)
    std::printf("Validation: %lld tokens in %lld windows\n", static_cast<long long>(run.validation->tokens()),
                static_cast<long long>(run.validation->count()));
  if (run.train)
    std::printf("Batch: %lld windows × %lld micro-steps = %lld an update; %lld updates an epoch, %lld in all\n",
                static_cast<long long>(run.schedule.batch), static_cast<long long>(run.schedule.accumulation),
                static_cast<long long>(run.schedule.windows_per_update()),
                static_cast<long long>(run.schedule.updates_per_epoch()), static_cast<long long>(run.updates));
  std::printf("Processor: %s (%s), %d threads\n", run.backend->target().name().c_str(),
              run.backend->target().dispatch().reason.c_str(), run.options.threads);
  std::fflush(stdout);
}

RunDisplay::RunDisplay(bool wants_progress) : progress_(stdout, progress_form(stdout, wants_progress)) {}

void RunDisplay::step(const StepMetrics& step, double tokens, bool logged) { progress_.step(step, tokens, logged); }

void RunDisplay::evaluation(const EvaluationMetrics& evaluation) {
  progress_.note(fmt::format("evaluation after update {}: loss {:.4f} (perplexity {:.2f}) over {} tokens in {:.1f} s",
                             evaluation.step, evaluation.eval_loss, std::exp(evaluation.eval_loss), evaluation.eval_tokens,
                             evaluation.eval_seconds));
}

void RunDisplay::note(std::string_view text) { progress_.note(text); }

}  // namespace snug
