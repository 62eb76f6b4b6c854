// bench/step/step_options.h — what one run of snug_bench_step measures
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/allocator.h"
#include "compile/options.h"
#include "models/model.h"

namespace snug::bench {

struct StepOptions {
  std::string model = "gpt2";  // gpt2 | smollm2 | tiny
  int64_t blocks = 0;          // transformer blocks; 0: the model's own
  int64_t batch = 4, length = 1024, accumulation = 1;
  Precision precision = Precision::kF32;
  RecomputePolicy recompute;
  std::optional<Bytes> memory;  // budget of the process: recompute policy optimal within it
  bool smallest = false;        // the smallest budget that works
  UpdatePlacement update_placement = UpdatePlacement::kAfter;
  double max_grad_norm = 1;               // 0: no clipping
  int64_t steps = 3;                      // timed updates, or plans with plan_only
  int64_t tries = 5;                      // most measurements of one update
  int64_t threads = 0;                    // 0: what affinity and the cgroup's quota allow
  std::string weights;                    // model directory to load from; empty: initial weights from a seed
  HugePages huge_pages = HugePages::kOn;  // of the arena, as in `snug train`
  bool plan_only = false;                 // time planning alone; no weight and no arena exists
  bool json = false;
};

// Throws UserError(kUsage) naming the option, what was found and what is expected.
StepOptions parse_step_options(int count, char** arguments);

std::string step_usage();

// GPT-2 124M, SmolLM2-135M's shape, or two small blocks; no dropout. The shapes are those of bench/pytorch/run.py.
Model bench_model(const StepOptions& options);

}  // namespace snug::bench
