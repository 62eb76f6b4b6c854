// compile/phases.h — the phases that follow from the list of parameters alone: load, update, save
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "ir/graph.h"

namespace snug {

// What AdamW and clipping are told at compile time; the rest is in `hyperparameters` (docs/operations.md,
// "Update").
struct OptimizerOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;   // of parameters with `decay`; the others get 0
  double max_grad_norm = 1;  // 0: no clipping
};

// One parameter as the phases see it.
struct PlannedParameter {
  std::string name;       // of the tensor that forward and backward read
  std::string parameter;  // the file's name
  Shape shape;
  DType dtype = DType::kF32;  // of that tensor
  bool trainable = false, decay = false;
  // A trainable parameter that is not stored in f32 has an f32 master weight `master.<parameter>`.
  bool has_master() const { return trainable && dtype != DType::kF32; }
};

// The parameters of a graph in the order of its tensors. `training` false: none is trainable, so none has a
// master or moments.
std::vector<PlannedParameter> planned_parameters(const Graph& graph, bool training);

// read_tensor of each parameter (of its master where it has one, then narrow_weight), and for trainable ones
// moments `m.<parameter>` and `v.<parameter>` filled with 0.
Graph load_graph(const std::vector<PlannedParameter>& parameters);

// Per trainable parameter, in order: sum_squares of the carried `d.<parameter>`; then update_control, then
// adamw of each. Input `hyperparameters`; results `control` and `moved.<parameter>`.
Graph update_graph(const std::vector<PlannedParameter>& parameters, const OptimizerOptions& options);

// write_tensor of each parameter, of its master where it has one.
Graph save_graph(const std::vector<PlannedParameter>& parameters);

}  // namespace snug
