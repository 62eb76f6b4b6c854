// passes/update.h — AdamW of a parameter as operations: what the phase `update` and the pass
// `update_in_backward` are built of
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace snug {

// How the two moments of a parameter are stored between updates. Arithmetic is in f32 always; what the storage changes is
// said in docs/lossy.md. Tensors of fewer than kSmallestCompressed elements (biases, norms) keep f32.
enum class Moments : uint8_t {
  kF32,       // 8 bytes an element
  kBF16,      // 4, rounded stochastically
  kEightBit,  // 2, and 8 bytes a block of 256: codes of the dynamic map times the block's scale
};
constexpr int64_t kSmallestCompressed = 4096;

// What AdamW and clipping are told at compile time; the rest is in `hyperparameters` (docs/operations.md,
// "Update").
struct OptimizerOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;   // of parameters with `decay`; the others get 0
  double max_grad_norm = 1;  // 0: no clipping
  Moments moments = Moments::kF32;
  // The gradients of large matrices wait for the update in bf16 (passes/narrow_gradients.h).
  bool bf16_gradients = false;
};

// How the f32 master of a weight that is stored in bf16 is held. kFull and kSplit have the same numbers. An f16 weight is not the upper half of
// its master, so its master is whole always.
enum class MasterWeights : uint8_t {
  kFull,   // `master.<parameter>` f32 beside the weight: 6 bytes an element together
  kSplit,  // `low.<parameter>` u8(…,2), the 16 bits that the weight lacks: 4 bytes together
  kNone,   // 2 bytes: each update is computed in f32 and rounded stochastically to bf16 (docs/lossy.md)
};

// One parameter as load, update and save see it.
struct PlannedParameter {
  std::string name;       // of the tensor that forward and backward read
  std::string parameter;  // the file's name
  Shape shape;
  DType dtype = DType::kF32;  // of that tensor
  bool trainable = false, decay = false;
  MasterWeights master = MasterWeights::kSplit;
  Moments moments = Moments::kF32;  // of this parameter: small ones keep f32
  bool bf16_gradients = false;
  // A trainable parameter that is not stored in f32 has a master, whole or split, or none at all.
  bool has_full_master() const {
    return trainable && (dtype == DType::kF16 || (dtype == DType::kBF16 && master == MasterWeights::kFull));
  }
  bool has_split_master() const {
    return trainable && dtype == DType::kBF16 && master == MasterWeights::kSplit;
  }
  bool has_narrow_gradient() const {
    return bf16_gradients && trainable && shape.rank() >= 2 && shape.elements() >= kSmallestCompressed;
  }
  bool has_no_master() const { return trainable && dtype == DType::kBF16 && master == MasterWeights::kNone; }
};

// The parameters of a graph in the order of its tensors. `training` false: none is trainable, so none has a
// master or moments.
std::vector<PlannedParameter> planned_parameters(const Graph& graph, bool training, MasterWeights master,
                                                 const OptimizerOptions& optimizer);

// The state tensors of a parameter, added to `graph`: the weight itself, its master (of a split one the low bits), a
// moment ("m", "v"), and the scales of a moment in 8 bits.
TensorId add_weight(Graph& graph, const PlannedParameter& parameter);
TensorId add_master(Graph& graph, const PlannedParameter& parameter);
TensorId add_moment(Graph& graph, const PlannedParameter& parameter, std::string_view which);
TensorId add_moment_scales(Graph& graph, const PlannedParameter& parameter, std::string_view which);

// The input `hyperparameters` f32(4).
TensorId add_hyperparameters(Graph& graph);
// The name of the input u32(4) {seed low, seed high, update, 0} of what is rounded stochastically: append_adamw adds it to a
// graph that needs it.
constexpr std::string_view kUpdateRandomness = "update_randomness";

// Appends sum_squares of the gradient of `parameter` (part kUpdate); returns the sum.
TensorId append_sum_squares(Graph& graph, const PlannedParameter& parameter, TensorId gradient,
                            int32_t block = -1);

// Appends the adamw of a trainable parameter, whose weight is `weight` in the graph, with the master and
// moments that it adds; returns `moved.<parameter>`.
TensorId append_adamw(Graph& graph, const PlannedParameter& parameter, const OptimizerOptions& optimizer,
                      TensorId weight, TensorId gradient, TensorId hyperparameters, TensorId control,
                      int32_t block = -1);

}  // namespace snug
