// compile/phases.h — the phases that follow from the list of parameters alone: load, update, save
#pragma once

#include <vector>

#include "ir/graph.h"
#include "passes/update.h"

namespace snug {

// read_tensor of each parameter (of its master where it has a full one, then narrow_weight; of both halves where the
// master is split), and for trainable ones
// moments `m.<parameter>` and `v.<parameter>` filled with 0, and the scales of moments in 8 bits.
Graph load_graph(const std::vector<PlannedParameter>& parameters);

// Per trainable parameter, in order: sum_squares of the carried `d.<parameter>`, f32 or bf16; then update_control, then
// adamw of each. Inputs `hyperparameters`, `loss_scale` where parameters are f16, and `update_randomness` where something is rounded
// stochastically; results `control` and `moved.<parameter>`.
Graph update_graph(const std::vector<PlannedParameter>& parameters, const OptimizerOptions& options);

// write_tensor of each parameter, of its master where it has one, which may be in two halves.
Graph save_graph(const std::vector<PlannedParameter>& parameters);

}  // namespace snug
