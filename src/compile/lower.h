// compile/lower.h — Program + Timeline + layout become a Plan
//
// Why:      the run side knows plans only. State and carried tensors of all phases become one tensor each
//           under their own name; a phase's own values and inputs are named phase/name, scratch
//           phase/operation.scratch.
// Ensures:  check_plan (plan/check.h) finds no violation.
#pragma once

#include "analysis/liveness.h"
#include "analysis/peak.h"
#include "layout/layout.h"
#include "plan/plan.h"
#include "plan/target.h"

namespace snug {

// The packing problem of a timeline: buffer i of the problem is buffer i of the timeline.
layout::Problem packing_problem(const Timeline& timeline, Bytes alignment);

// Throws UserError(kUsage) with the operation, its operands and the target's reason where the target refuses
// one.
void check_supported(const Program& program, const Target& target);

// `solution` is a checked packing of packing_problem(timeline); `peaks` are phase_peaks of the same timeline.
Plan lower(const Program& program, const Timeline& timeline, const layout::Solution& solution,
           const std::vector<PhasePeak>& peaks, const Target& target);

}  // namespace snug
