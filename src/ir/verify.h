// ir/verify.h — is this graph what every pass may rely on? Runs after each pass
//
// Checked: names are proper and unique; a value is defined once, before its first use; a state may be defined
// by a load operation and nothing else that comes from outside is defined at all; attributes and types are
// the operation table's; every must-alias is there, any other is one that the table allows, of equal bytes,
// on a value that dies there (no later use, not a result, not the storage of something that outlives the
// operation); results exist; storage and category go together; parameters are states.
#pragma once

#include <string_view>

#include "ir/graph.h"

namespace snug {

// Throws InternalError "after CONTEXT: graph NAME: operation OP (KIND): what is wrong". O(size of the graph).
void verify(const Graph& graph, std::string_view context);

}  // namespace snug
