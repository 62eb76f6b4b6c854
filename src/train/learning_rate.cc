#include "train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace snug {

double LearningRate::at(int64_t applied) const {
  const double step = static_cast<double>(applied);
  const double warmup = static_cast<double>(warmup_updates);
  if (schedule == LearningRateSchedule::kConstant) return peak;
  if (applied < warmup_updates) return peak * step / std::max(1.0, warmup);
  const double after = std::max(1.0, static_cast<double>(total_updates) - warmup);
  const double progress = std::clamp((step - warmup) / after, 0.0, 1.0);
  switch (schedule) {
    case LearningRateSchedule::kConstant:
    case LearningRateSchedule::kConstantWithWarmup:
      return peak;
    case LearningRateSchedule::kLinear:
      return peak * (1 - progress);
    case LearningRateSchedule::kCosine:
    case LearningRateSchedule::kCosineWithRestarts:  // one cycle: the same curve, at 0 from the end on
      return peak * std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * progress)));
    case LearningRateSchedule::kPolynomial:  // transformers' defaults: power 1, ends at 1e-7
      return progress >= 1 ? 1e-7 : (peak - 1e-7) * (1 - progress) + 1e-7;
    case LearningRateSchedule::kInverseSqrt: {
      // Decay begins where warm-up ends; without warm-up transformers takes a time scale of 10,000 updates.
      const double timescale = warmup > 0 ? warmup : 10000;
      return peak / std::sqrt((step + timescale - warmup) / timescale);
    }
  }
  return peak;
}

int64_t updates_of_epochs(double epochs, int64_t updates_per_epoch) {
  // The product as the Trainer forms it, rounding included: 1.1 epochs of 10 updates are 12.
  return static_cast<int64_t>(std::ceil(epochs * static_cast<double>(updates_per_epoch)));
}

int64_t warmup_updates(double warmup_steps, int64_t total_updates) {
  if (warmup_steps <= 0) return 0;
  if (warmup_steps < 1)
    return static_cast<int64_t>(std::ceil(warmup_steps * static_cast<double>(total_updates)));
  return static_cast<int64_t>(warmup_steps);
}

}  // namespace snug
