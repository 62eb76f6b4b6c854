// plan/text.h — a plan as text and back: every field, one line per memory, tensor, phase and operation
//
//   snug_plan 1
//   target "cpu avx2"
//   memory ram arena=4096 lower_bound=4096
//   tensor wte f32[256,2] weights state at=ram+0 moments=[0,2) buffer=0 parameter=transformer.wte.weight
//   phase micro_step repeats=4 first=0 peak=4096
//   inputs micro_step/tokens
//   results micro_step/loss
//   op embedding x forward block=-1 (micro_step/tokens, wte) -> (micro_step/x) {} flops=0 seconds=1e-06
//   op linear y forward block=0 (…) -> (…) scratch=micro_step/y.scratch {weight=io} flops=1024 seconds=1e-06
//
// Tensors are referred to by name. A name that is not made of [A-Za-z0-9_./-] is written as a JSON string.
// Sizes are bytes, moments half-open. Empty lines and lines that begin with # are skipped when reading.
// The same plan always gives the same text.
#pragma once

#include <string>
#include <string_view>

#include "plan/plan.h"

namespace snug {

// Throws InternalError for a plan that has no text form: an identifier out of range, a name used twice.
std::string to_string(const Plan& plan);

// The inverse of to_string: parse_plan(to_string(plan)) == plan. Throws UserError(kBadFile) that begins with
// "{source}:{line}:" for text that is not a plan. What the plan says is judged by plan/check.h, not here.
Plan parse_plan(std::string_view text, std::string_view source = "plan");

}  // namespace snug
