// plan/check.h — the independent judge of a plan: shares no code with what made it
//
// Rules, each violation one sentence that names the operation, tensors and bytes:
//   references  every identifier is in range; names are unique; a storage is one of the five words
//   places      offset >= 0 and a multiple of the alignment, offset + bytes <= arena
//   arena       = the largest end, rounded up to the alignment; bytes live at any moment <= the stated bound
//               <= arena, and those of a phase <= its stated peak <= arena
//   moments     phases number their operations through from 0; 0 <= first < last <= all moments; state lives
//               at every moment, an input from its phase's first moment on, a result to its phase's end, a
//               scratch for one moment; a carried tensor that a repeated phase reads lives through that phase
//   space       two tensors of different buffers that share a moment share no byte; tensors of one buffer
//               begin at one place
//   use         at an operation's moment all its operands live, its outputs lie in different buffers, and
//               each input is what its buffer holds: written earlier by the host or by its producer and not
//               replaced since by another tensor of the buffer; so with results at the end of a phase
//
// State is written by phase "load" where there is one, otherwise by the host. At a phase's start the state or
// carried tensor of a buffer takes over the value that was left in the buffer. Accumulators of an operation
// with overwrite_first=1 may hold anything on the first repetition. A repeated phase is judged for two
// repetitions. Time: pairs of tensors that share a byte, plus phases x tensors, plus operands.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace snug {

// Empty when the plan keeps every rule. At most 100 violations are listed, then one line that counts the
// rest. When a reference is broken only the broken references are listed. `alignment` is Target::alignment()
// of the plan's target.
std::vector<std::string> check_plan(const Plan& plan, Bytes alignment = Bytes(64));

}  // namespace snug
