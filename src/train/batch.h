// train/batch.h — global batch, micro-batch and accumulation as a user gives them become numbers that agree
//
// The global batch, the windows of one update, is what the user's learning rate belongs to: nothing here or in the planner
// changes it. What does not divide is refused.
#pragma once

#include <cstdint>
#include <vector>

#include "train/run_options.h"

namespace snug {

// Fills in gradient_accumulation_steps, and per_device_train_batch_size where accumulation and global batch give it; leaves it kAuto
// where the planner is to choose. Throws UserError(kUsage) for auto without a global batch, and for numbers that do not agree, with both and
// the nearest sizes that divide.
void settle_batch(RunOptions& options);

// Whether the planner chooses the micro-batch of settled options: it is auto, or other orders of sums are allowed.
bool plans_micro_batch(const RunOptions& options);

// Windows of one update; settled options. Throws UserError beyond 64 bits.
int64_t global_batch(const RunOptions& options);

// The micro-batches among which the planner chooses, rising: divisors of the global batch; all of it alone where the update is to stand in
// the backward or gradients are to be bf16, which no accumulation goes with.
std::vector<int64_t> open_micro_batches(const RunOptions& options);

// `options` with that micro-batch, a divisor of the global batch, and the accumulation that belongs to it.
RunOptions with_micro_batch(const RunOptions& options, int64_t micro_batch);

}  // namespace snug
