#include "cli/run_display.h"

#include <unistd.h>

#include <array>
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
  print_data(run, stdout);
  if (run.data.train)
    std::printf("Batch: %lld windows × %lld micro-steps = %lld an update; %lld updates an epoch, %lld in all\n",
                static_cast<long long>(run.schedule.batch), static_cast<long long>(run.schedule.accumulation),
                static_cast<long long>(run.schedule.windows_per_update()),
                static_cast<long long>(run.schedule.updates_per_epoch()), static_cast<long long>(run.updates));
  std::printf("Processor: %s (%s), %d threads\n", run.backend->target().name().c_str(),
              run.backend->target().dispatch().reason.c_str(), run.options.threads);
  std::fflush(stdout);
}

void print_data(const Prepared& run, std::FILE* file) {
  if (run.data.train)
    std::fputs(data_lines("Data", run.data.train_report, run.options.max_length).c_str(), file);
  if (run.data.validation)
    std::fputs(data_lines("Validation", run.data.validation_report, run.options.max_length).c_str(), file);
}

std::function<void(double seconds)> plan_watch(bool wants_progress) {
  if (!wants_progress || ::isatty(STDERR_FILENO) == 0) return {};
  struct Line {
    bool is_there = false;
    ~Line() {
      if (is_there) std::fputs("\r\033[K", stderr);
    }
  };
  return [line = std::make_shared<Line>()](double seconds) {
    line->is_there = true;
    std::fprintf(stderr, "\rSeeking a plan: %.0f s\033[K", seconds);
    std::fflush(stderr);
  };
}

DataWatch data_watch(bool wants_progress) {
  DataWatch watch;
  watch.note = [](std::string_view note) {
    std::fprintf(stderr, "snug: note: %.*s\n", static_cast<int>(note.size()), note.data());
  };
  if (!wants_progress) return watch;
  watch.progress = [on_terminal = ::isatty(STDERR_FILENO) != 0, last = 0.0](
                       std::string_view file, const PreparationProgress& progress) mutable {
    const bool ends = progress.bytes >= progress.all_bytes;
    if (!on_terminal && progress.seconds - last < 10 && !(ends && last > 0)) {  // a log needs no more
      return;
    }
    last = progress.seconds;
    std::array<char, 32> count, time;
    const std::string_view tokens = format_count(static_cast<double>(progress.ids), count);
    const auto left = progress.seconds_left();
    const std::string rest = left ? fmt::format(", {} left", format_time(*left, time)) : "";
    const double share = progress.all_bytes > 0
                             ? static_cast<double>(progress.bytes) / static_cast<double>(progress.all_bytes)
                             : 1;
    std::fprintf(stderr, "%sPreparing %.*s: %3.0f %%, %.*s tokens%s%s%s", on_terminal ? "\r" : "",
                 static_cast<int>(file.size()), file.data(), 100 * share, static_cast<int>(tokens.size()),
                 tokens.data(), rest.c_str(), on_terminal ? "\033[K" : "", on_terminal && !ends ? "" : "\n");
    if (ends) last = 0;
    std::fflush(stderr);
  };
  return watch;
}

RunDisplay::RunDisplay(bool wants_progress) : progress_(stdout, progress_form(stdout, wants_progress)) {}

void RunDisplay::step(const StepMetrics& step, double tokens, bool logged) { progress_.step(step, tokens, logged); }

void RunDisplay::evaluation(const EvaluationMetrics& evaluation) {
  progress_.note(fmt::format("evaluation after update {}: loss {} (perplexity {}) over {} tokens in {:.1f} s",
                             evaluation.step, format_number(evaluation.eval_loss, 4),
                             format_number(std::exp(evaluation.eval_loss), 2), evaluation.eval_tokens,
                             evaluation.eval_seconds));
}

void RunDisplay::note(std::string_view text) { progress_.note(text); }

}  // namespace snug
