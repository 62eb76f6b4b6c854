// passes/cast.h — weights and activations are stored in another floating type
//
// Why:      bf16 and f16 halve the bytes of weights and saved activations (2 instead of 4 an element). Statistics,
//           log-sum-exp, losses and gradients of parameters stay f32, as the operation table says. f64
//           exists for gradient checks.
// Requires: a graph in f32, before `in_place`.
// Ensures:  bf16, f16: every parameter is of that type and every other value has the type that the table infers from
//           that. Master weights are no tensors of this graph: they appear in the phases load, update and
//           save (compile/phases.h).
//           f64: every f32 tensor is f64.
// Order:    first, so that later passes see the final types.
// Method:   change the parameters (f64: also inputs and carried tensors), then infer the outputs in
//           execution order. O(operands).
// See:      passes/test/cast.ir
#pragma once

#include "base/dtype.h"
#include "ir/graph.h"

namespace snug {

// `type` is kF32 (nothing to do), kBF16, kF16 or kF64. Returns whether a type changed.
bool cast(Graph& graph, DType type);

}  // namespace snug
