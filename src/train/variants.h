// train/variants.h — the runs among which the planner chooses besides recomputation: one row a form that --allow names
#pragma once

#include <span>
#include <vector>

#include "compile/outer_search.h"
#include "models/model.h"
#include "train/run_options.h"

namespace snug {

struct RunVariant {
  RunOptions options;           // every choice made
  Allowed forms;                // what of options.allow they make use of
  bool may_be_smallest = true;  // see compile/outer_search.h
};

// The variants of a run whose batch is settled (train/batch.h): what the user left open (update_placement) and what --allow names, in every
// combination, the more exact ones first. The first is the run without any of it.
std::vector<RunVariant> variants_of(const RunOptions& options);

// The same for the compiler.
std::vector<Variant> compile_variants(std::span<const RunVariant> variants, const Model& model,
                                      bool evaluates);

}  // namespace snug
