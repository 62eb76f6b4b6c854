// passes/uses.h — who makes and who reads each value of a graph
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace snug {

// Per tensor, how many operand positions read it; a result counts as one more.
std::vector<int32_t> use_counts(const Graph& graph);

// Per tensor, the index of the operation that makes it, or -1 (state, inputs, carried).
std::vector<int32_t> producers(const Graph& graph);

}  // namespace snug
