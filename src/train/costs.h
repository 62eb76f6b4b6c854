// train/costs.h — what operations take on this machine: read from the user's cache, timed where it is unknown, kept for later runs
//
// Cache:    $XDG_CACHE_HOME/snug/costs-….json, or ~/.cache/snug/…; one file for each processor, dispatch class, number of threads, oneDNN
//           and Snug version. One that cannot be read or written is no error: it is worth a note.
// Measuring: at most 3 s a run, in a process of its own, within half of the arena that the run itself will hold.
// Stable:   afterwards every operation that the compiler asked about has an answer in the cache, measured or estimated. So the same
//           options compile to the same plan, whichever command they are given to.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "backends/cpu/backend.h"
#include "compile/pipeline.h"
#include "train/run_options.h"

namespace snug {

struct CostsReport {
  CostSource source = CostSource::kRoofline;
  size_t operations = 0;          // different ones (samples) that the compiler asked about
  size_t measured = 0;            // of them, by this run or an earlier one; the others are estimated
  size_t timed = 0;               // by this run
  double seconds = 0;             // spent on that
  std::string file;               // of the cache; empty: there is none
  std::string note;               // why the cache was not read or not written; empty: it was
  std::vector<std::string> keys;  // of what the compiler asked about, in the cache; none by the roofline
};

// "Costs: measured 43 operations in 2.1 s, cached in /…\n", with the note as a line of its own.
std::string costs_line(const CostsReport& report);

// Where the cache lies; empty when neither variable names an absolute path.
std::string costs_directory();

// Compiles by `compile_for` with costs as `source` says and leaves the backend's target answering by them. With kMeasured it is called
// up to three times: for the operations it asks about, and again with their times. `budget`: of the process.
Compiled compile_by_costs(cpu::CpuBackend& backend, CostSource source, Bytes budget,
                          const std::function<Compiled(const Target&)>& compile_for, CostsReport& report);

// A run was faster than the costs of `report` say (train/cost_check.h): marks them in the cache, so that the next start that asks for them
// measures them again. False where nothing is marked: there is no cache, it cannot be read or written, or all was measured twice already.
bool doubt_costs(const CostsReport& report, const cpu::Dispatch& dispatch);

}  // namespace snug
