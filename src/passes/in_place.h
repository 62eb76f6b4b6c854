// passes/in_place.h — an output takes the storage of an input that dies at the same operation
//
// Why:      at that moment one tensor instead of two: saves the bytes of the output, costs nothing.
// Requires: every value is made once and the order of operations is final; no rewrite changes uses
//           afterwards.
// Ensures:  an alias is recorded only where the table allows it (`may`), types are equal, the input is a
//           value of this graph (never state, an input of the host, or carried), is no result, stands once
//           among the operands, and no later operation reads it. The verifier checks that nobody reads a
//           value after its storage was taken.
// Order:    last.
// Method:   last uses first, then each operation's rules in the table's order; an input is given away once.
//           O(uses).
// See:      passes/test/in_place.ir
#pragma once

#include "ir/graph.h"

namespace snug {

// Returns whether an alias was added.
bool in_place(Graph& graph);

}  // namespace snug
