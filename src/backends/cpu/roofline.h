// backends/cpu/roofline.h — seconds of an operation from two rates of the machine, where it has not been timed
#pragma once

#include "backends/cpu/dispatch.h"
#include "plan/target.h"

namespace snug::cpu {

// What this machine reaches, measured once.
struct CpuRates {
  double product_flops_per_second = 0;  // of an f32 matrix product on all threads
  double bytes_per_second = 0;          // read + written by a copy that leaves the caches
  friend bool operator==(const CpuRates&, const CpuRates&) = default;
};

// Products and memory traffic overlap within one operation: the slower of the two decides.
double roofline_seconds(const OpQuery& query, const OpCost& cost, const Dispatch& dispatch,
                        const CpuRates& rates);

// One after the other: what every row adds and what an operation costs whatever its rows are, for comparing
// an operation with a smaller one of its kind.
double work_seconds(const OpQuery& query, const OpCost& cost, const Dispatch& dispatch,
                    const CpuRates& rates);

}  // namespace snug::cpu
