// tests/training_run.h — a training run at library level: compile, execute on the CPU backend, see every number
//
// What train/trainer.h does for users, without files, schedules and reports: the tests give the batches and look at
// each loss, gradient, weight and byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/backend.h"
#include "compile/pipeline.h"
#include "data/batch.h"
#include "models/model.h"
#include "runtime/canary.h"
#include "runtime/executor.h"
#include "train/weights_io.h"

namespace snug {

// What update_control found and did (docs/operations.md, "Update").
struct Control {
  float clip = 0, applied = 0, norm = 0, first_non_finite = 0;
};

struct UpdateResult {
  double loss = 0;  // over the supervised tokens of all micro-steps
  Control control;
  float gates_passed =
      0;  // update in the backward: of the chain of gates (docs/operations.md, "update_gate")
};

class TrainingRun {
 public:
  struct Setup {
    CompileOptions compile;
    int threads = 2;
    std::function<void(Plan&)> rewrite = {};  // applied to the plan before it runs: another layout
    bool check_memory = false;                // with the canary attached (runtime/canary.h)
    float loss_scale = 4096;                  // of fp16, always the same
  };

  // Compiles, binds and runs phase "load". `model` must outlive the run.
  TrainingRun(const Model& model, const ParameterFiles& weights, Setup setup);

  const Plan& plan() const { return compiled_.plan; }
  Executor& executor() { return *executor_; }
  const OptimizerOptions& optimizer() const { return setup_.compile.optimizer; }

  // The phases of one update, in turn. Each micro-batch has the plan's shape.
  UpdateResult update(std::span<const Batch> micro_batches, float learning_rate);
  // One repetition of the micro-step; returns its share of the loss.
  float micro_step(const Batch& batch, float inverse_tokens, int64_t repetition);
  // The phase "update" as the trainer calls it: Adam's step counts applied updates only.
  Control apply(float learning_rate, bool loss_is_finite);

  // The phase "evaluate": the loss of a batch without dropout.
  float evaluate(const Batch& batch);
  // Logits (V) of row `position` of one sample, by the phase generate_<length>.
  std::vector<float> next_logits(std::span<const int32_t> tokens, int32_t position, int64_t length);

  // Whether each block is updated inside the backward: then `micro_step` needs write_hyperparameters before it, and
  // `update` does both.
  bool updates_in_backward() const { return plan().phase("update") == nullptr; }
  void write_hyperparameters(float learning_rate, bool loss_is_finite);

  // A whole tensor of the plan as f32 (from f32, bf16 or f16).
  std::vector<float> values(std::string_view tensor);
  std::vector<std::byte> bytes(std::string_view tensor);
  // A parameter as it is trained and saved: its master weight where it has one.
  std::vector<float> weight(const std::string& parameter);
  // The gradient of a parameter; after the last micro-step of an update.
  std::vector<float> gradient(const std::string& parameter) { return values("d." + parameter); }
  // Every state tensor, weights, masters and moments, by name.
  std::map<std::string, std::vector<std::byte>> state();

 private:
  void write_batch(const std::string& phase, const Batch& batch);
  template <typename T>
  void write_if_used(const std::string& name, const std::vector<T>& source);

  Setup setup_;
  cpu::CpuBackend backend_;
  Compiled compiled_;
  std::unique_ptr<Executor> executor_;
  std::optional<Canary> canary_;
  std::map<std::string, PlanTensorId> weights_;  // parameter → its master, else itself
  int64_t applied_updates_ = 0;
};

// Deterministic windows for tests: tokens, targets of which about a third are ignored, two documents in every second
// sample. `update` and `first_sample` go into the randomness, so that the same global sample gets the same masks in
// whatever micro-batch it is.
Batch random_batch(int64_t batch, int64_t length, int64_t vocabulary, uint64_t seed, int64_t update = 0,
                   int64_t first_sample = 0);

// "f32", "bf16", "f16": for names of tests.
inline std::string precision_name(Precision precision) {
  return precision == Precision::kF32 ? "f32" : precision == Precision::kBF16 ? "bf16" : "f16";
}

// Layouts that use the same plan differently. Each keeps the rules of plan/check.h.
//   spread    no two buffers share a byte
//   shuffled  buffers placed first-fit in an order drawn from `seed`
void spread_layout(Plan& plan);
void shuffled_layout(Plan& plan, uint64_t seed);

}  // namespace snug
