// compile/options.h — what a plan is compiled for: plain data with defaults
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "compile/phases.h"
#include "compile/runner.h"
#include "models/model.h"
#include "passes/recompute.h"

namespace snug {

// What weights and activations are stored in. bf16 and f16 keep f32 master weights for training (docs/operations.md); f16 has a loss
// scale beside them (passes/scale_loss.h).
enum class Precision : uint8_t { kF32, kBF16, kF16 };

// "fp32", "bf16", "fp16": as users write it.
constexpr std::string_view precision_word(Precision precision) {
  return precision == Precision::kBF16 ? "bf16" : precision == Precision::kF16 ? "fp16" : "fp32";
}

// When parameters are updated. The numbers are the same.
enum class UpdatePlacement : uint8_t {
  kAfter,       // in a phase of its own: all gradients live at once
  kInBackward,  // each block as soon as its gradients are complete (passes/update_in_backward.h): gradients of
                // one block live at once; with clipping the backward runs twice. No accumulation.
};

struct CompileOptions {
  int64_t batch = 1;         // samples of a micro-step
  int64_t length = 0;        // positions of a sample; also of evaluation
  int64_t eval_batch = 1;    // samples of an evaluation
  int64_t accumulation = 1;  // micro-steps an update
  // Rows of logits that the head makes at a time. Other numbers of rows are other sums: not exact.
  int64_t head_chunk = kHeadChunkRows;
  // Rows that an MLP works on at a time (passes/chunk_mlp.h); 0: all. Other numbers of rows are other sums as well.
  int64_t mlp_chunk = 0;
  Precision precision = Precision::kF32;
  RecomputePolicy recompute;
  // Instead of `recompute`, if there is one: what becomes of each forward value of the micro-step, asked once
  // that `differentiate` has run.
  std::function<Retentions(const Graph& micro_step)> choose_retentions;
  // A planner may choose Retention::kCompress, which changes gradients.
  bool compress_activations = false;
  OptimizerOptions optimizer;
  UpdatePlacement update_placement = UpdatePlacement::kAfter;
  MasterWeights master_weights = MasterWeights::kSplit;  // of weights that are stored in bf16

  // Which phases the plan has besides load. Without `train` there are no masters, moments or gradients.
  bool train = true;
  bool evaluate = false;
  bool save = true;
  std::vector<int64_t> generate_lengths;  // one phase generate_<length> each, of one sample

  // Every fused operation as its plain decomposition: for tests and comparisons.
  bool plain = false;
  // Optional passes that shall not run: optional_passes() names them.
  std::vector<std::string> disabled_passes;
  Bytes staging = kMiB;              // scratch through which the host streams a tensor in load and save
  PassObserver* observer = nullptr;  // sees every graph after every pass; outlives the call
};

}  // namespace snug
