#include "train/batch.h"

#include <algorithm>
#include <string>

#include "base/checked.h"
#include "base/errors.h"
#include "compile/micro_batch.h"

namespace snug {
namespace {

// "2 and 5": the divisors of `number` next to `size`.
std::string nearest_divisors(int64_t number, int64_t size) {
  const std::vector<int64_t> all = divisors(number);
  const auto above = std::lower_bound(all.begin(), all.end(), size);
  if (above == all.begin()) return fmt::format("{}", *above);
  if (above == all.end()) return fmt::format("{}", all.back());
  return fmt::format("{} and {}", *(above - 1), *above);
}

}  // namespace

void settle_batch(RunOptions& options) {
  int64_t &micro = options.per_device_train_batch_size, &steps = options.gradient_accumulation_steps;
  const int64_t global = options.global_batch_size;
  if (global == 0) {
    if (micro == RunOptions::kAuto)
      throw_user(ExitCode::kUsage,
                 "per_device_train_batch_size is auto without global_batch_size; expected the windows of one "
                 "update, of which it "
                 "is to be a part");
    steps = std::max<int64_t>(1, steps);
    return;
  }
  if (micro == RunOptions::kAuto && steps > 0) {
    if (global % steps != 0)
      throw_user(
          ExitCode::kUsage,
          "gradient_accumulation_steps {} does not divide global_batch_size {}; the nearest that do: {}",
          steps, global, nearest_divisors(global, steps));
    micro = global / steps;
  }
  if (micro == RunOptions::kAuto) return;
  if (steps > 0 && (micro > global || steps > global || checked_mul(micro, steps) != global))
    throw_user(ExitCode::kUsage,
               "global_batch_size is {}, but per_device_train_batch_size {} times "
               "gradient_accumulation_steps {} is not; expected "
               "numbers that agree, or two of the three",
               global, micro, steps);
  if (global % micro != 0)
    throw_user(ExitCode::kUsage,
               "per_device_train_batch_size {} does not divide global_batch_size {}; the nearest that do: {} "
               "(or auto, the "
               "planner's choice)",
               micro, global, nearest_divisors(global, micro));
  steps = global / micro;
}

bool plans_micro_batch(const RunOptions& options) {
  return options.per_device_train_batch_size == RunOptions::kAuto ||
         options.allow.contains(Allowance::kReassociation);
}

int64_t global_batch(const RunOptions& options) {
  if (options.global_batch_size > 0) return options.global_batch_size;
  return checked_mul(options.per_device_train_batch_size, options.gradient_accumulation_steps);
}

std::vector<int64_t> open_micro_batches(const RunOptions& options) {
  const int64_t global = global_batch(options);
  // What goes with no accumulation.
  if (options.update_placement == UpdatePlacement::kInBackward || options.gradients == DType::kBF16) return {global};
  return divisors(global);
}

RunOptions with_micro_batch(const RunOptions& options, int64_t micro_batch) {
  RunOptions changed = options;
  changed.per_device_train_batch_size = micro_batch;
  changed.gradient_accumulation_steps = global_batch(options) / micro_batch;
  return changed;
}

}  // namespace snug
