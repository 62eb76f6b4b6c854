#include "planner/chain_dual.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace snug::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kDualSteps = 400;

}  // namespace

// The dual function at prices p_0 … p_{L-1} of the blocks' moments and p_L of the head's is the least over
// all lists of runs of  Σ seconds + Σ_b p_b (saved before b's run + backlog before it + need of b's run - budget)
//                                 + p_L (all saved + backlog + head - budget).
// With A_b = p_b + … + p_L, a run from f to e pays its seconds, (A_f - A_e)·(need - budget), for its saved bytes
// A_e, and (A_f - A_e) for each byte of the backlog q_f that it begins with. The next one is
// q_e >= q_f + sent - moved and q_e >= 0. With a price m_b >= 0 of a byte of q_b what follows costs at least
// m_e q_e >= t (q_f + sent - moved) for every 0 <= t <= m_e; so all that follows from f costs at least
// m_f q_f more than without a backlog if A_f - A_e + t >= m_f. The best such t is m_e where more is sent than moved
// and max(0, m_f - A_f + A_e) elsewhere. Both exist with  m_b = m_{b+1} + p_b - i_b, m_{L+1} = 0,  where i_b >= 0 is the
// price of a link that idles before b: then bytes on the link are as dear as saved ones until it idles.
// Runs that fit in no plan at all are left out.
double dual_bound(const ChainRuns& all, Bytes budget, double target) {
  const size_t length = all.length();
  const double unit = static_cast<double>(std::max<int64_t>(budget.value, 1));
  std::vector<Bytes> least(length + 1,
                           Bytes(std::numeric_limits<int64_t>::max()));  // saved before a position
  least[0] = Bytes(0);
  // Allowances that the rest needs at least, whatever the backlog.
  std::vector<Bytes> rest(length + 1, Bytes(std::numeric_limits<int64_t>::max()));
  rest[length] = all.head;
  for (size_t position = length; position-- > 0;)
    for (const Run& run : all.at[position]) {
      const Bytes behind = rest[position + static_cast<size_t>(run.span)];
      if (behind.value < std::numeric_limits<int64_t>::max())
        rest[position] = std::min(rest[position], std::max(run.need, run.saved + behind));
    }
  struct Priced {
    size_t end;
    double seconds, saved, excess, queues;  // bytes in units of the budget; excess: need - budget
  };
  std::vector<std::vector<Priced>> runs(length);
  for (size_t position = 0; position < length; ++position) {
    if (least[position].value == std::numeric_limits<int64_t>::max()) continue;
    for (const Run& run : all.at[position]) {
      const size_t end = position + static_cast<size_t>(run.span);
      if (rest[end].value == std::numeric_limits<int64_t>::max() || least[position] + run.need > budget ||
          least[position] + run.saved + rest[end] > budget)
        continue;
      least[end] = std::min(least[end], least[position] + run.saved);
      runs[position].push_back({end, run.seconds, static_cast<double>(run.saved.value) / unit,
                                static_cast<double>(run.need.value - budget.value) / unit,
                                static_cast<double>((run.sent - run.moved).value) / unit});
    }
  }
  const double head_excess = static_cast<double>(all.head.value - budget.value) / unit;

  std::vector<double> price(length + 1, 0.0), after(length + 2, 0.0), value(length + 1), slope(length + 1);
  std::vector<double> queue_price(length + 2, 0.0), idle_price(length + 1, 0.0), idle_slope(length + 1, 0.0);
  std::vector<const Priced*> chosen(length);
  const auto least_queue_price = [&](size_t position, size_t end) {
    return std::max(0.0, queue_price[position] - (after[position] - after[end]));
  };
  double bound = -kInfinity;
  double pace = 1;
  int stale = 0;
  for (int step = 0; step < kDualSteps; ++step) {
    for (size_t position = length + 1; position-- > 0;)
      after[position] = after[position + 1] + price[position];
    value[length] = price[length] * head_excess;
    for (size_t position = length; position-- > 0;) {
      double lowest = kInfinity;
      for (const Priced& run : runs[position]) {
        double cost = run.seconds + run.saved * after[run.end] +
                      (after[position] - after[run.end]) * run.excess + value[run.end];
        if (all.uses_link)
          cost += run.queues * (run.queues > 0 ? queue_price[run.end] : least_queue_price(position, run.end));
        if (cost < lowest) {
          lowest = cost;
          chosen[position] = &run;
        }
      }
      value[position] = lowest;
    }
    if (value[0] > bound + 1e-9 * std::abs(target)) {
      stale = 0;
    } else if (++stale == 10) {
      pace *= 0.7;
      stale = 0;
    }
    bound = std::max(bound, value[0]);
    const double distance = target - value[0];
    if (distance <= 0) break;

    std::fill(slope.begin(), slope.end(), 0.0);
    std::fill(idle_slope.begin(), idle_slope.end(), 0.0);
    double saved = 0, queued = 0;  // before the run; the latter below zero where the link idled
    for (size_t position = 0; position < length;) {
      const Priced& run = *chosen[position];
      for (size_t block = position; block < run.end; ++block) slope[block] = saved + queued + run.excess;
      if (all.uses_link && (run.queues > 0 || least_queue_price(position, run.end) > 0)) {
        queued += run.queues;
        idle_slope[run.queues > 0 ? run.end : position] -= run.queues;  // from there on, see below
      }
      saved += run.saved;
      position = run.end;
    }
    slope[length] = saved + queued + head_excess;
    for (size_t block = 1; block <= length; ++block) idle_slope[block] += idle_slope[block - 1];
    double norm = 0;
    for (size_t block = 0; block <= length; ++block) {
      // A price at zero is not pushed below it.
      if (slope[block] > 0 || price[block] > 0) norm += slope[block] * slope[block];
      if (idle_slope[block] > 0 || idle_price[block] > 0) norm += idle_slope[block] * idle_slope[block];
    }
    if (norm == 0) break;
    for (size_t block = length + 1; block-- > 0;) {
      price[block] = std::max(0.0, price[block] + pace * distance / norm * slope[block]);
      if (!all.uses_link) continue;
      const double most = queue_price[block + 1] + price[block];
      idle_price[block] =
          std::clamp(idle_price[block] + pace * distance / norm * idle_slope[block], 0.0, most);
      queue_price[block] = most - idle_price[block];
    }
  }
  return bound;
}

}  // namespace snug::planner
