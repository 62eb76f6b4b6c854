#include "updates.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/errors.h"

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
  return compile;
}

Updates::Updates(const StepOptions& options, const Model& model, Executor& executor)
    : executor_(executor),
      inputs_(executor, "micro_step"),
      loss_(executor.tensor("micro_step/loss")),
      hyperparameters_(executor.tensor("update/hyperparameters")),
      batch_(random_batch(options.batch, options.length, model.vocabulary)),
      accumulation_(options.accumulation) {}

double Updates::run() {
  const float inverse_tokens = 1.0f / static_cast<float>(tokens());
  double sum = 0;
  for (int64_t step = 0; step < accumulation_; ++step) {
    inputs_.write(executor_, batch_, inverse_tokens);
    executor_.run_phase("micro_step", step);
    float loss = 0;
    executor_.read_result(loss_, std::as_writable_bytes(std::span(&loss, 1)));
    sum += loss;
  }
  require(std::isfinite(sum), "the loss of update {} is not finite", updates_);
  const double count = static_cast<double>(++updates_);
  const float hyperparameters[4] = {1e-4f, static_cast<float>(1 - std::pow(0.9, count)),
                                    static_cast<float>(1 - std::pow(0.999, count)), 1.0f};
  executor_.write_input(hyperparameters_, std::as_bytes(std::span(hyperparameters)));
  executor_.run_phase("update");
  return sum;
}

}  // namespace snug::bench
