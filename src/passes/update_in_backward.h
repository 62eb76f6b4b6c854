// passes/update_in_backward.h — each block's parameters are updated as soon as its gradients are complete
//
// Why:      gradients die block by block: 4 bytes a parameter of one block instead of all blocks. A tied
//           embedding's gradient still lives from the head to the end of the backward.
// Requires: `differentiate` has run and whatever else gives the micro-step its final operations; the gradients
//           are results; no accumulation (gradients of several micro-steps must live until the last).
// Ensures:  the same sums, the same adamw, hence the same bits as the phase `update`. No gradient is a result.
//           The micro-step has the input `hyperparameters`, of which loss_is_finite must be 1: operations look
//           at the loss themselves; `update_randomness` (passes/update.h) beside it where something needs it. New results: `control` as in the phase `update` (norm and first non-finite
//           gradient over all parameters), `moved.<parameter>`, and `gate` (update_gate, docs/operations.md):
//           gate[1] says whether the last block was written, gate[2] how many gates were open, so that
//           gate[1] = 0 with gate[2] > 0 is an update that stopped half-way.
//           Without clipping: a gate before each block (of parameters outside blocks: before each operation
//           that completes gradients); it closes for good at the first gradient that is not finite, so that
//           neither this block nor a later one is written.
//           With clipping (max_grad_norm > 0): the backward stands there twice, first (`<name>.norm`, part
//           recompute) for the norm alone. Every update is then complete or skipped, as in the phase `update`.
// Order:    after `fuse` and `decompose`; before `in_place`.
// Method:   a parameter may be written after its gradient's last part and the last use of its weight; a block
//           when that holds for all of its parameters. O(operands).
// Source:   Lv et al., Full Parameter Fine-tuning for Large Language Models with Limited Resources (2023),
//           section 3.1; two passes for the norm: section 3.3.1.
// See:      passes/test/update_in_backward.ir
#pragma once

#include "ir/graph.h"
#include "passes/update.h"

namespace snug {

// Returns whether there was a gradient.
bool update_in_backward(Graph& graph, const OptimizerOptions& optimizer, MasterWeights master);

}  // namespace snug
