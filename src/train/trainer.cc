#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <cstring>

#include "base/allocator.h"
#include "base/errors.h"
#include "base/file.h"
#include "data/prefetch.h"
#include "observe/core_share.h"
#include "runtime/canary.h"
#include "train/cost_check.h"
#include "train/first_non_finite.h"
#include "train/host_inputs.h"
#include "train/interrupt.h"
#include "train/learning_rate.h"
#include "train/loss_scale.h"
#include "train/model_output.h"
#include "train/weights_io.h"

namespace snug {
namespace {

constexpr int64_t kMostSkippedInARow = 20;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The evaluate phase over all windows of run.data.validation.
class Evaluator {
 public:
  Evaluator(const Prepared& run, const Executor& executor)
      : inputs_(executor, "evaluate"),
        loss_(phase_tensor(executor, "evaluate", "loss")),
        precision_(run.options.precision),
        ends_at_non_finite_(run.kind == RunKind::kEvaluate),
        windows_(run.data.validation),
        schedule_{
            .windows = windows_->count(), .batch = run.options.per_device_eval_batch_size, .shuffle = false},
        batches_(windows_, schedule_, run.options.seed) {}

  EvaluationMetrics evaluate(Executor& executor) {
    const auto begin = std::chrono::steady_clock::now();
    // One epoch of them, in which an update is a batch.
    const int64_t count = schedule_.updates_per_epoch();
    Prefetcher prefetcher(batches_, 0, count);
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const Batch& batch = prefetcher.next().batch;
      inputs_.write(executor, batch, 1.0f);
      executor.run_phase("evaluate");
      float loss = 0;
      executor.read_result(loss_, std::as_writable_bytes(std::span(&loss, 1)));
      if (ends_at_non_finite_ && !std::isfinite(loss))
        throw_non_finite(executor, precision_,
                         fmt::format("the loss of window {} is not finite", i * schedule_.batch),
                         [&](const FirstNonFinite&) {
                           inputs_.write(executor, batch, 1.0f);
                           executor.run_phase("evaluate");
                         });
      sum += loss;
    }
    const double seconds = seconds_since(begin);
    return {.eval_loss = sum / static_cast<double>(windows_->targets()),
            .eval_tokens = windows_->targets(),
            .eval_seconds = seconds,
            .data_wait_share = seconds > 0 ? prefetcher.waited_seconds() / seconds : 0};
  }

 private:
  BatchInputs inputs_;
  PlanTensorId loss_;
  Precision precision_;
  bool ends_at_non_finite_;
  std::shared_ptr<Windows> windows_;
  Schedule schedule_;
  BatchMaker batches_;
};

// What one update gave.
struct UpdateOutcome {
  double loss = 0;          // mean over the update's supervised tokens
  double grad_norm = 0;     // before clipping
  int64_t supervised = 0;   // targets
  int64_t windows = 0;
  bool applied = true;
  bool half_applied = false;     // some blocks were written before a gradient was found not finite
  int64_t first_nonfinite = -1;  // index of the first trainable parameter with a non-finite gradient
};

class Trainer {
 public:
  // `output`: none where nothing is to be written.
  Trainer(Prepared& run, ParameterFiles files, OutputDirectory* output, RunObserver& observer)
      : run_(run),
        observer_(observer),
        output_(output),
        files_(std::move(files)),
        executor_(run.compiled.plan, *run.backend, [this](const PlanOp& op) { files_.read(op, executor_); }),
        inputs_(executor_, "micro_step"),
        loss_(executor_.tensor("micro_step/loss")),
        updates_in_backward_(run.compile_options.update_placement == UpdatePlacement::kInBackward),
        update_phase_(updates_in_backward_ ? "micro_step" : "update"),
        hyperparameters_(executor_.tensor(update_phase_ + "/hyperparameters")),
        control_(executor_.tensor(update_phase_ + "/control")),
        update_randomness_(phase_tensor(executor_, update_phase_, kUpdateRandomness)),
        core_share_(run.options.threads),
        rate_{.schedule = run.options.lr_scheduler_type,
              .peak = run.options.learning_rate,
              .warmup_updates = warmup_updates(run.options.warmup_steps, run.updates),
              .total_updates = run.updates} {
    if (updates_in_backward_) gate_ = executor_.tensor("micro_step/gate");
    if (run.options.precision == Precision::kF16) {
      loss_scale_.emplace();
      for (const char* phase : {"micro_step", "update"}) scale_inputs_.push_back(phase_tensor(executor_, phase, "loss_scale"));
    }
    if (run.options.check_memory) {
      canary_.emplace(run.compiled.plan, *run.backend);
      executor_.observe(&*canary_);
    }
    if (run.data.validation) evaluator_.emplace(run, executor_);
    if (run.costs.source == CostSource::kMeasured) {
      cost_check_.emplace(run.compiled.plan);
      executor_.measure(true);
    }
  }

  TrainResult train(const std::vector<RunSetting>& configuration) {
    executor_.run_phase("load");
    if (output_ != nullptr) {
      output_->begin();
      write_file(output_->path_of("plan.json"), plan_json(run_.summary).dump(2) + "\n");
      write_file(output_->path_of("config.yaml"), format_run_config(configuration));
      metrics_.emplace(output_->path_of("metrics.jsonl"), false);
    }
    if (run_.data.train) {
      batches_.emplace(run_.data.train, run_.schedule, run_.options.seed);
      prefetcher_.emplace(*batches_, 0, run_.updates);
    }
    InterruptGuard interrupt;
    while (result_.updates < run_.updates && interrupt.requested() == 0) one_update();
    result_.interrupted_by = interrupt.requested();
    if (result_.interrupted_by != 0)
      observer_.note(fmt::format("signal {}: finished update {} of {}, saving", result_.interrupted_by, result_.updates,
                                 run_.updates));
    prefetcher_.reset();
    if (run_.data.validation && run_.updates > 0 && last_evaluation_ != result_.updates) evaluate();
    finish();
    return result_;
  }

 private:
  void one_update() {
    if (cost_check_) executor_.reset_times();
    const int64_t allocations_before = allocations();
    const auto begin = std::chrono::steady_clock::now();
    const UpdateOutcome outcome = update(result_.updates);
    const double seconds = seconds_since(begin);
    result_.allocations_during_steps += allocations() - allocations_before;
    result_.seconds += seconds;
    ++result_.updates;
    supervised_seen_ += outcome.supervised;
    samples_seen_ += outcome.windows;
    result_.tokens_seen += outcome.supervised;

    if (outcome.applied) {
      skipped_in_a_row_ = 0;
      ++applied_;
      if (loss_scale_) loss_scale_->note_applied();
      const double mean = result_.train_loss.value_or(0);
      result_.train_loss = mean + (outcome.loss - mean) / static_cast<double>(applied_);
      result_.last_loss = outcome.loss;
      logged_loss_ += outcome.loss;
      ++logged_updates_;
      if (!checked_ && last_rate_ > 0) check_first_update(outcome);
      if (cost_check_) check_costs();
    } else {
      note_skipped(outcome);
    }
    log(outcome, seconds);
    look_at_cores();
    if (due(run_.options.eval_steps) && run_.data.validation) evaluate();
    if (due(run_.options.save_steps) && output_ != nullptr) save_checkpoint();
  }

  void look_at_cores() {
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now().time_since_epoch();
    if (!core_share_.due(wall.count())) return;
    if (const auto text = core_share_.look(core_times())) observer_.note(*text);
  }

  void save_checkpoint() {
    if (const auto problem =
            write_checkpoint(run_, files_, executor_, result_.updates, loss_scale_, *output_))
      throw_user(ExitCode::kNonFinite, "update {}: {}; the run ends, and this checkpoint is not saved",
                 result_.updates, *problem);
    observer_.note(fmt::format("saved {}", output_->path_of(fmt::format("checkpoint-{}", result_.updates))));
  }

  bool due(int64_t every) const { return every > 0 && result_.updates % every == 0; }

  // No allocation from here to the outcome.
  UpdateOutcome update(int64_t index) {
    UpdateOutcome outcome;
    for (int64_t step = 0; batches_->has(index, step); ++step) {
      const MicroBatch& batch = prefetcher_->next();
      if (step == 0) {
        outcome.supervised = batch.update_targets;
        inverse_tokens_ = 1.0f / static_cast<float>(outcome.supervised);
        if (updates_in_backward_) write_hyperparameters(true);  // the update looks at the loss itself
      }
      run_micro_step(batch);
      float loss = 0;
      executor_.read_result(loss_, std::as_writable_bytes(std::span(&loss, 1)));
      outcome.loss += loss;
      outcome.windows += batch.batch.windows;
    }

    if (!updates_in_backward_) {
      write_hyperparameters(std::isfinite(outcome.loss));
      write_loss_scale(1);
      executor_.run_phase("update");
    }
    float control[4];
    executor_.read_result(control_, std::as_writable_bytes(std::span(control)));
    outcome.applied = control[1] != 0;
    outcome.grad_norm = control[2];
    outcome.first_nonfinite = static_cast<int64_t>(control[3]);
    if (updates_in_backward_) {
      float gate[4];
      executor_.read_result(gate_, std::as_writable_bytes(std::span(gate)));
      outcome.applied = gate[1] != 0;
      outcome.half_applied = gate[1] == 0 && gate[2] > 0;
    }
    return outcome;
  }

  void run_micro_step(const MicroBatch& batch) {
    inputs_.write(executor_, batch.batch, inverse_tokens_);
    write_loss_scale(0);
    executor_.run_phase("micro_step", batch.step);
  }

  // `phase`: 0 the micro-step, 1 the update.
  void write_loss_scale(size_t phase) {
    if (!loss_scale_) return;
    const auto scale = static_cast<float>(loss_scale_->value());
    executor_.write_input(scale_inputs_.at(phase), std::as_bytes(std::span(&scale, 1)));
  }

  void write_hyperparameters(bool loss_is_finite) {
    const double count = static_cast<double>(applied_ + 1);
    last_rate_ = rate_.at(applied_);
    if (last_rate_ > 0 && first_with_a_rate_ == 0) first_with_a_rate_ = result_.updates + 1;
    const float hyperparameters[4] = {static_cast<float>(last_rate_),
                                      static_cast<float>(1 - std::pow(run_.options.adam_beta1, count)),
                                      static_cast<float>(1 - std::pow(run_.options.adam_beta2, count)),
                                      loss_is_finite ? 1.0f : 0.0f};
    executor_.write_input(hyperparameters_, std::as_bytes(std::span(hyperparameters)));
    if (!update_randomness_.valid()) return;
    const uint32_t randomness[4] = {static_cast<uint32_t>(run_.options.seed),
                                    static_cast<uint32_t>(run_.options.seed >> 32),
                                    static_cast<uint32_t>(result_.updates), 0};
    executor_.write_input(update_randomness_, std::as_bytes(std::span(randomness)));
  }

  void note_skipped(const UpdateOutcome& outcome) {
    ++result_.skipped_updates;
    ++skipped_in_a_row_;
    std::string what = "the loss";
    const bool loss_is_finite = std::isfinite(outcome.loss);
    if (loss_is_finite && outcome.first_nonfinite >= 0)
      what = fmt::format("the gradient of {}", trainable_name(static_cast<size_t>(outcome.first_nonfinite)));
    if (outcome.half_applied)
      throw_user(ExitCode::kNonFinite,
                 "update {}: {} is not finite, and later blocks were updated before it was known (update_placement in_backward "
                 "without clipping); the run ends, and the model saved last is as it was",
                 result_.updates, what);
    if (loss_scale_) {
      // The forward knows no scale: where it overflows before anything was learned, it will again.
      if (!loss_is_finite && applied_ == 0) end_fp16("the loss is not finite before the first update, whatever the loss scale");
      if (skipped_in_a_row_ >= kMostSkippedInARow)
        end_fp16(fmt::format("{} updates in a row were skipped because {} was not finite", skipped_in_a_row_, what));
      if (!loss_is_finite)
        loss_scale_->note_bad_loss();
      else if (!loss_scale_->note_overflow())
        end_fp16(fmt::format("{} is not finite although the loss scale is down to {}", what, loss_scale_->value()));
    }
    observer_.note(fmt::format("update {}: {} is not finite; skipped, nothing changed ({} in a row){}", result_.updates, what,
                               skipped_in_a_row_, loss_scale_ ? fmt::format("; loss scale {}", loss_scale_->value()) : ""));
    if (skipped_in_a_row_ >= kMostSkippedInARow)
      throw_user(ExitCode::kNonFinite, "{} updates in a row were skipped because {} was not finite; the run ends at update {}",
                 skipped_in_a_row_, what, result_.updates);
  }

  // Ends the run of the update that was just skipped, by the name of the first tensor that is not finite: its micro-steps run once
  // more, watched.
  [[noreturn]] void end_fp16(const std::string& why) {
    throw_non_finite(executor_, run_.options.precision,
                     fmt::format("update {}: {}; the run ends", result_.updates, why),
                     [this](const FirstNonFinite& first) {
                       prefetcher_->stop();
                       const int64_t index = result_.updates - 1;
                       MicroBatch again = batches_->make();
                       for (int64_t step = 0; batches_->has(index, step) && !first.found(); ++step) {
                         batches_->fill(index, step, again);
                         run_micro_step(again);
                       }
                     });
  }

  const std::string& trainable_name(size_t index) const {
    for (const ParameterSpec& parameter : run_.model.parameters)
      if (parameter.trainable && index-- == 0) return parameter.name;
    throw_internal("no trainable parameter has that index");
  }

  // What people otherwise miss for days: does the model move at all, and is memory as planned?
  void check_first_update(const UpdateOutcome& outcome) {
    checked_ = true;
    std::string still;
    int64_t moved_count = 0, trainable = 0;
    for (const ParameterSpec& parameter : run_.model.parameters) {
      if (!parameter.trainable) continue;
      ++trainable;
      int32_t moved = 0;
      executor_.read_result(update_phase_ + "/moved." + parameter.name, std::as_writable_bytes(std::span(&moved, 1)));
      moved_count += moved;
      if (moved == 0) still += (still.empty() ? "" : ", ") + parameter.name;
    }
    const ProcessMemory memory = process_memory();
    // A warm-up begins with a rate of 0, which moves nothing; neither does an update that is skipped.
    const bool was_skipped = result_.updates != first_with_a_rate_;
    const std::string which = result_.updates == 1
                                  ? "first update"
                                  : fmt::format("update {}, the first with a rate above 0{}", result_.updates,
                                                was_skipped ? " that was not skipped" : "");
    observer_.note(fmt::format("{}: loss {:.4f}, {} supervised tokens, {} of {} tensors moved", which, outcome.loss,
                               outcome.supervised, moved_count, trainable));
    observer_.note(fmt::format("memory so far: planned {}, measured {}", format_bytes(run_.summary.peak),
                               format_bytes(memory.peak())));
    if (!still.empty()) observer_.note(fmt::format("warning: these tensors did not move: {}", still));
  }

  // Costs that were measured on a busy machine are too large until a run shows it.
  void check_costs() {
    const auto contradiction = cost_check_->after_update(executor_.times());
    if (!contradiction) return;
    if (doubt_costs(run_.costs, run_.backend->target().dispatch()))
      observer_.note(fmt::format("updates take {:.3g} s where {:.3g} s was estimated, attention and head not counted: the costs were measured "
                                 "on a busy machine, and the next start will measure them again",
                                 contradiction->measured_seconds, contradiction->planned_seconds));
    cost_check_.reset();
    executor_.measure(false);
  }

  void log(const UpdateOutcome& outcome, double seconds) {
    const bool logged = result_.updates % run_.options.logging_steps == 0 || result_.updates == run_.updates || result_.updates == 1;
    StepMetrics row;
    row.step = result_.updates;
    row.total_steps = run_.updates;
    row.epoch = epoch();
    row.loss = outcome.loss;
    row.learning_rate = last_rate_;
    row.grad_norm = outcome.grad_norm;
    row.tokens_per_second = seconds > 0 ? static_cast<double>(outcome.supervised) / seconds : 0;
    row.tokens_seen = result_.tokens_seen;
    row.supervised_tokens = supervised_seen_;
    row.skipped_steps = result_.skipped_updates;
    row.step_seconds = seconds;
    seconds_since_row_ += seconds;
    if (logged) {
      const double waited = prefetcher_->waited_seconds();
      row.data_wait_share = seconds_since_row_ > 0 ? (waited - waited_before_row_) / seconds_since_row_ : 0;
      waited_before_row_ = waited;
      seconds_since_row_ = 0;
    }
    const ProcessMemory memory = process_memory();
    row.memory_rss_bytes = memory.resident;
    row.memory_peak_bytes = memory.peak();
    row.memory_planned_bytes = run_.summary.peak;
    if (loss_scale_) {
      row.loss_scale = loss_scale_->value();
      row.loss_scale_good_updates = loss_scale_->good_updates();
    }
    if (logged) {
      // The mean of what was applied since the last row; non-finite losses are counted, not averaged.
      if (logged_updates_ > 0) row.loss = logged_loss_ / static_cast<double>(logged_updates_);
      if (metrics_) metrics_->write(row);
      logged_loss_ = 0;
      logged_updates_ = 0;
    }
    observer_.step(row, static_cast<double>(outcome.supervised), logged);
  }

  double epoch() const {
    return static_cast<double>(result_.updates) / static_cast<double>(run_.schedule.updates_per_epoch());
  }

  void evaluate() {
    EvaluationMetrics evaluation = evaluator_->evaluate(executor_);
    evaluation.step = result_.updates;
    evaluation.epoch = epoch();
    result_.eval_loss = evaluation.eval_loss;
    last_evaluation_ = result_.updates;
    if (metrics_) metrics_->write(evaluation);
    observer_.evaluation(evaluation);
  }

  // What was learned is worth nothing: why, or nothing.
  std::optional<std::string> learned_nothing() const {
    if (result_.updates == 0) return std::nullopt;
    if (applied_ == 0)
      return fmt::format(
          "{} skipped because something was not finite",
          result_.updates == 1 ? "the only update was" : fmt::format("all {} updates were", result_.updates));
    if (skipped_in_a_row_ > applied_)
      return fmt::format(
          "{} of {} updates were applied, and the {} behind them were skipped because something was not "
          "finite",
          applied_, result_.updates, skipped_in_a_row_);
    if (result_.eval_loss && !std::isfinite(*result_.eval_loss))
      return "the loss of the last evaluation is not finite";
    return std::nullopt;
  }

  void save_model() {
    const bool interrupted = result_.interrupted_by != 0;
    const std::optional<std::string> worthless = learned_nothing();
    if (worthless && !interrupted) throw_user(ExitCode::kNonFinite, "{}; no model is saved", *worthless);
    if (worthless) observer_.note(fmt::format("warning: {}", *worthless));
    if (output_ == nullptr) return;
    const auto problem = write_model(run_, files_, executor_, loss_scale_, interrupted, *output_);
    if (problem && !interrupted) throw_user(ExitCode::kNonFinite, "{}; no model is saved", *problem);
    if (problem) observer_.note(fmt::format("warning: {}, and was saved so", *problem));
  }

  void finish() {
    if (metrics_) {
      if (run_.updates > 0)
        metrics_->write(RunMetrics{.step = result_.updates,
                                   .train_loss = result_.train_loss,
                                   .train_runtime = result_.seconds,
                                   .train_steps_per_second = static_cast<double>(result_.updates) / result_.seconds,
                                   .train_samples_per_second = static_cast<double>(samples_seen_) / result_.seconds,
                                   .tokens_seen = result_.tokens_seen,
                                   .skipped_steps = result_.skipped_updates});
      metrics_->close();
    }
    save_model();
    const ProcessMemory memory = process_memory();
    result_.planned_process_peak = run_.summary.peak;
    result_.measured_process_peak = memory.peak();
    result_.planned_arena = run_.summary.arena;
    result_.used_arena = run_.backend->arena_bytes();
    if (output_ == nullptr) return;
    const Json report = {{"planned",
                          {{"process_peak_bytes", result_.planned_process_peak.value},
                           {"arena_bytes", result_.planned_arena.value}}},
                         {"measured",
                          {{"process_peak_bytes", result_.measured_process_peak.value},
                           {"arena_bytes", result_.used_arena.value},
                           {"allocations_during_steps", result_.allocations_during_steps}}}};
    write_file(output_->path_of(kFinishedRunFile), report.dump(2) + "\n");
    output_->finish();
  }

  Prepared& run_;
  RunObserver& observer_;
  OutputDirectory* output_;
  ParameterFiles files_;
  Executor executor_;
  BatchInputs inputs_;
  PlanTensorId loss_;
  bool updates_in_backward_;
  std::string update_phase_;  // that holds the update's operations
  PlanTensorId hyperparameters_, control_, gate_;
  PlanTensorId update_randomness_;  // invalid where nothing is rounded stochastically
  std::optional<BatchMaker> batches_;  // none without data
  std::optional<Prefetcher> prefetcher_;
  float inverse_tokens_ = 0;             // of the update that runs
  std::optional<LossScale> loss_scale_;  // fp16
  std::vector<PlanTensorId> scale_inputs_;
  CoreShareWatch core_share_;
  LearningRate rate_;
  std::optional<Canary> canary_;
  std::optional<Evaluator> evaluator_;
  std::optional<CostCheck> cost_check_;  // until it has spoken
  std::optional<MetricsWriter> metrics_;

  TrainResult result_;
  int64_t applied_ = 0, skipped_in_a_row_ = 0, supervised_seen_ = 0, samples_seen_ = 0;
  int64_t last_evaluation_ = -1;
  double last_rate_ = 0, logged_loss_ = 0;
  double seconds_since_row_ = 0, waited_before_row_ = 0;  // of metrics.jsonl
  int64_t logged_updates_ = 0;
  int64_t first_with_a_rate_ = 0;  // update whose rate is above 0, skipped or not; 0: none yet
  bool checked_ = false;
};

ParameterFiles open_parameters(const Prepared& run) {
  ParameterFiles files = run.options.from_scratch ? ParameterFiles::from_scratch(run.model, run.options.seed)
                                                  : ParameterFiles::from_weights(run.model, run.directory.open_weights());
  if (run.options.save_dtype) files.save_as(file_dtype(*run.options.save_dtype));
  return files;
}

}  // namespace

TrainResult train(Prepared& run, const std::vector<RunSetting>& configuration, RunObserver* observer) {
  require(run.kind == RunKind::kTrain, "train() needs a run that was prepared for training");
  RunObserver silent;
  if (!run.data.train && run.options.max_steps != 0)
    throw_user(ExitCode::kUsage, "--train_file is missing; expected text, rows of JSON or token shards");
  ParameterFiles files = open_parameters(run);
  RunObserver& told = observer != nullptr ? *observer : silent;
  std::optional<OutputDirectory> output;
  if (!run.options.output_dir.empty()) {
    output.emplace(run.options);
    const int64_t checkpoints = run.options.save_steps > 0 ? run.updates / run.options.save_steps : 0;
    require_space_for_models(run.options.output_dir, files, 1 + checkpoints);
  }
  try {
    Trainer trainer(run, std::move(files), output ? &*output : nullptr, told);
    return trainer.train(configuration);
  } catch (...) {
    if (!output) throw;
    if (const std::string what = output->put_back(); !what.empty()) told.note(what);
    throw;
  }
}

EvaluationMetrics evaluate(Prepared& run, RunObserver* observer) {
  require(run.kind == RunKind::kEvaluate, "evaluate() needs a run that was prepared for evaluation");
  if (!run.data.validation)
    throw_user(ExitCode::kUsage, "--validation_file is missing; expected text, rows of JSON or token shards");
  const ParameterFiles files = open_parameters(run);
  Executor* loading = nullptr;
  Executor executor(run.compiled.plan, *run.backend, [&](const PlanOp& op) { files.read(op, *loading); });
  loading = &executor;
  std::optional<Canary> canary;
  if (run.options.check_memory) executor.observe(&canary.emplace(run.compiled.plan, *run.backend));
  executor.run_phase("load");
  const EvaluationMetrics evaluation = Evaluator(run, executor).evaluate(executor);
  if (observer != nullptr) observer->evaluation(evaluation);
  return evaluation;
}

}  // namespace snug
