#include "updates.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/errors.h"
#include "compile/budget.h"
#include "observe/process_memory.h"
#include "observe/reserve.h"
#include "train/costs.h"
#include "train/loss_scale.h"

namespace snug::bench {
namespace {

// Random tokens, each row one document; the target of a token is the next one.
Batch random_batch(int64_t rows, int64_t length, int64_t vocabulary) {
  Batch batch = make_batch(rows, length);
  uint64_t state = 42;
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth, MMIX
    batch.tokens[i] = static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocabulary));
  }
  for (size_t i = 0; i < batch.tokens.size(); ++i)
    batch.targets[i] = batch.tokens[(i + 1) % batch.tokens.size()];
  return batch;
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

CompileOptions compile_options(const StepOptions& options) {
  CompileOptions compile;
  compile.batch = options.batch;
  compile.length = options.length;
  compile.accumulation = options.accumulation;
  compile.precision = options.precision;
  compile.recompute = options.recompute;
  compile.update_placement = options.update_placement;
  compile.optimizer.max_grad_norm = options.max_grad_norm;
  return compile;
}

Compiled compile_step(const StepOptions& options, const Model& model, cpu::CpuBackend& backend) {
  if (!options.memory && !options.smallest) return compile(model, compile_options(options), backend.target());
  CostsReport costs;
  const Compiled keep_all = compile_by_costs(
      backend, CostSource::kMeasured, options.memory.value_or(memory_allowance().bytes),
      [&](const Target& target) { return compile(model, compile_options(options), target); }, costs);
  BudgetSearch search(model, compile_options(options), backend.target());
  if (options.smallest) return search.smallest().compiled;
  const Reserve reserve =
      compute_reserve(process_memory(), keep_all.report.arena, backend.target().dispatch().threads,
                      kGrowthAllowance + backend.library_bytes(keep_all.plan));
  BudgetPlan plan =
      search.within(arena_within(*options.memory, reserve), {.kind = RecomputePolicy::Kind::kOptimal});
  if (!plan.fits)
    throw_user(ExitCode::kDoesNotFit, "--memory is {}; the smallest arena is {}, beside a reserve of {}",
               format_bytes(*options.memory), format_bytes(plan.compiled.report.arena),
               format_bytes(reserve.total()));
  return std::move(plan.compiled);
}

Updates::Updates(const StepOptions& options, const Model& model, Executor& executor)
    : executor_(executor),
      inputs_(executor, "micro_step"),
      loss_(executor.tensor("micro_step/loss")),
      updates_in_backward_(options.update_placement == UpdatePlacement::kInBackward),
      hyperparameters_(
          executor.tensor(updates_in_backward_ ? "micro_step/hyperparameters" : "update/hyperparameters")),
      batch_(random_batch(options.batch, options.length, model.vocabulary)),
      accumulation_(options.accumulation) {}

void Updates::write_loss_scale(std::string_view phase) {
  constexpr auto kScale = static_cast<float>(LossScale::kFirst);
  if (const PlanTensorId scale = phase_tensor(executor_, phase, "loss_scale"); scale.valid())
    executor_.write_input(scale, std::as_bytes(std::span(&kScale, 1)));
}

double Updates::run() {
  const float inverse_tokens = 1.0f / static_cast<float>(tokens());
  const double count = static_cast<double>(++updates_);
  const float hyperparameters[4] = {1e-4f, static_cast<float>(1 - std::pow(0.9, count)),
                                    static_cast<float>(1 - std::pow(0.999, count)), 1.0f};
  const auto write_hyperparameters = [&] {
    executor_.write_input(hyperparameters_, std::as_bytes(std::span(hyperparameters)));
  };
  double sum = 0;
  for (int64_t step = 0; step < accumulation_; ++step) {
    inputs_.write(executor_, batch_, inverse_tokens);
    write_loss_scale("micro_step");
    if (updates_in_backward_) write_hyperparameters();
    executor_.run_phase("micro_step", step);
    float loss = 0;
    executor_.read_result(loss_, std::as_writable_bytes(std::span(&loss, 1)));
    sum += loss;
  }
  require(std::isfinite(sum), "the loss of update {} is not finite", updates_);
  if (updates_in_backward_) return sum;
  write_hyperparameters();
  write_loss_scale("update");
  executor_.run_phase("update");
  return sum;
}

}  // namespace snug::bench
