// backends/cpu/cost_timer.h — times samples of operations with their real kernels, threads and cold operands
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backends/cpu/cost_sample.h"
#include "backends/cpu/dispatch.h"
#include "base/bytes.h"

namespace snug::cpu {

struct TimingLimits {
  double seconds = 3;
  Bytes memory;  // of operands and scratch of one sample
};

// Operands and scratch of one execution.
Bytes sample_bytes(const CostSample& sample, const Dispatch& dispatch);

// Monotonic seconds.
using CostClock = std::function<double()>;
// Sample number `index` took `seconds`. A second word about a sample replaces the first.
using CostSink = std::function<void(size_t index, double seconds)>;

// Times the samples in their order, each the lower quartile of some executions, the operands of short ones not used since longer than caches
// remember. What something disturbed is timed once more behind the last, and the lesser time counts. Passes over a sample that does not fit
// the memory, that would not end in time by its roofline, or that it cannot set up. Ends when the time is over. Operands come from the
// system and go back to it.
void time_samples(std::span<const CostSample> samples, const Dispatch& dispatch, const CpuRates& rates,
                  const TimingLimits& limits, const CostClock& clock, const CostSink& sink);

// The same in a process of its own, which ends before this returns: its memory never was this process's, neither are its libraries'
// buffers. None for what was not timed; nothing is timed where the system gives no process. Ends a child that outstays its time.
std::vector<std::optional<double>> time_samples_in_child(std::span<const CostSample> samples,
                                                         const Dispatch& dispatch, const CpuRates& rates,
                                                         const TimingLimits& limits);

}  // namespace snug::cpu
