// train/learning_rate.h — how long a run and its warm-up are and the learning rate of each update, as transformers' Trainer has them
#pragma once

#include <cstdint>

#include "train/run_options.h"

namespace snug {

struct LearningRate {
  LearningRateSchedule schedule = LearningRateSchedule::kLinear;
  double peak = 5e-5;
  int64_t warmup_updates = 0, total_updates = 1;

  // Rate of the update after `applied` applied updates. As in transformers the first update of a warm-up has rate 0
  // (optimization.py, get_*_schedule_with_warmup: step / max(1, warmup)).
  double at(int64_t applied) const;
};

// Updates of a run of `epochs`, which need not be whole: rounded up. At most 2⁵⁰ of them, which the caller has checked.
int64_t updates_of_epochs(double epochs, int64_t updates_per_epoch);

// Warm-up in updates: options.warmup_steps, where a value below 1 is a share of `total_updates`, rounded up.
int64_t warmup_updates(double warmup_steps, int64_t total_updates);

}  // namespace snug
