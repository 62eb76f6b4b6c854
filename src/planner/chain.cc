#include "planner/chain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "base/errors.h"

namespace snug::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Points of all fronts times the runs that read them: what one pass may cost (some hundredths of a second).
constexpr size_t kWork = size_t{1} << 24;
constexpr size_t kLeastPoints = 512, kMostPoints = 1 << 14;
// Backlogs of a position times the runs of all positions; and how many blocks' worth of link bytes a backlog is
// thinned to.
constexpr size_t kBacklogWork = size_t{1} << 15;
constexpr size_t kLeastBacklogs = 12, kMostBacklogs = 1 << 10;
constexpr int64_t kLargestBacklog = 2;
constexpr int kDualSteps = 400;

// What the link moves while the blocks [first, end) run forward.
Bytes moved_between(const Chain& chain, size_t first, size_t end) {
  Bytes moved{0};
  for (size_t block = first; block < end; ++block) moved += chain.blocks[block].link;
  return moved;
}

Bytes backlog_after(Bytes backlog, Bytes sent, Bytes moved) {
  return std::max(Bytes(0), backlog + sent - moved);
}

}  // namespace

Bytes need_at(const Chain& chain, const Mode& mode, size_t position) {
  Bytes need{0};
  for (size_t block = 0; block < mode.moments.size(); ++block) {
    const Moments& fixed = chain.blocks[position + block].fixed;
    need = std::max(
        {need, fixed.forward + mode.moments[block].forward, fixed.backward + mode.moments[block].backward});
  }
  return need;
}

Bytes norm_excess(const Chain& chain, const Mode& mode, size_t position) {
  Bytes excess{std::numeric_limits<int64_t>::min() / 2};
  for (size_t block = 0; block < mode.moments.size(); ++block)
    excess =
        std::max(excess, chain.blocks[position + block].fixed.norm + mode.moments[block].norm - mode.saved);
  return excess;
}

ChainPlan evaluate(const Chain& chain, std::span<const int32_t> modes) {
  ChainPlan plan{.modes = {modes.begin(), modes.end()}, .seconds = 0, .needed = Bytes(0)};
  size_t position = 0;
  Bytes saved{0}, excess{0}, backlog{0};
  for (int32_t index : modes) {
    require(position < chain.blocks.size(), "chain: a run begins at block {} of {}", position,
            chain.blocks.size());
    const std::vector<int32_t>& list = chain.lists.at(static_cast<size_t>(chain.blocks[position].list));
    require(std::find(list.begin(), list.end(), index) != list.end(),
            "chain: mode {} may not begin at block {}", index, position);
    const Mode& mode = chain.modes.at(static_cast<size_t>(index));
    require(position + mode.moments.size() <= chain.blocks.size(), "chain: mode {} at block {} is too long",
            index, position);
    plan.needed = std::max(plan.needed, saved + backlog + need_at(chain, mode, position));
    if (chain.backward_twice) excess = std::max(excess, norm_excess(chain, mode, position));
    plan.seconds += mode.seconds;
    saved += mode.saved;
    const size_t end = position + mode.moments.size();
    backlog = backlog_after(backlog, mode.link, moved_between(chain, position, end));
    position = end;
  }
  require(position == chain.blocks.size(), "chain: the runs end at block {} of {}", position,
          chain.blocks.size());
  plan.needed = std::max({plan.needed, saved + backlog + std::max(chain.head, excess), chain.floor});
  return plan;
}

ChainSolver::ChainSolver(Chain chain, std::span<const std::vector<int32_t>> known, double effort)
    : chain_(std::move(chain)), known_(known.begin(), known.end()) {
  require(!chain_.blocks.empty() && !chain_.backward_twice, "chain: no blocks, or two backward passes");
  list_runs();
  drop_dominated_runs();
  const size_t length = chain_.blocks.size();
  size_t runs = 0;
  for (const std::vector<Run>& at : runs_) runs += at.size();
  runs = std::max<size_t>(runs, 1);
  list_backlogs(std::clamp(kBacklogWork / runs, kLeastBacklogs, kMostBacklogs));
  size_t reads = 0;  // of fronts
  for (size_t position = 0; position < length; ++position)
    reads += runs_[position].size() * backlogs_[position].size();
  const auto work = static_cast<size_t>(effort * static_cast<double>(kWork));
  const size_t limit = std::clamp(work / std::max<size_t>(reads, 1), kLeastPoints, kMostPoints);

  Fronts relaxed(length + 1);
  fronts_.resize(length + 1);
  for (const Bytes backlog : backlogs_.back())
    fronts_.back().push_back({{{.allowance = chain_.head + backlog, .seconds = 0, .mode = -1}}});
  relaxed.back() = fronts_.back();
  for (size_t position = length; position-- > 0;) {
    const bool was_exact = exact_;
    for (size_t backlog = 0; backlog < backlogs_[position].size(); ++backlog)
      fronts_[position].push_back(front_of(position, backlog, fronts_, limit, Keep::kFastest));
    if (was_exact && exact_) {  // as long as nothing was thinned the two are the same
      relaxed[position] = fronts_[position];
      continue;
    }
    for (size_t backlog = 0; backlog < backlogs_[position].size(); ++backlog)
      relaxed[position].push_back(front_of(position, backlog, relaxed, limit, Keep::kCorner));
  }
  Front& whole = fronts_.front().front();
  require(!whole.points.empty(), "chain: no list of runs covers the chain");
  relaxed_ = std::move(relaxed.front().front());
  below_floor_ = raise_to_floor(whole);
  raise_to_floor(relaxed_);

  std::vector<Point>& points = whole.points;
  for (size_t known_idx = 0; known_idx < known_.size(); ++known_idx) {
    const ChainPlan plan = evaluate(chain_, known_[known_idx]);
    const auto above =
        std::upper_bound(points.begin(), points.end(), plan.needed,
                         [](Bytes bytes, const Point& point) { return bytes < point.allowance; });
    // Without a link the smallest budget is exact, so there is a point at or below every plan's.
    if (above != points.begin() && std::prev(above)->seconds <= plan.seconds) continue;
    auto end = above;
    while (end != points.end() && end->seconds >= plan.seconds) ++end;
    const bool replaces = above != points.begin() && std::prev(above)->allowance == plan.needed;
    const auto place = points.erase(replaces ? std::prev(above) : above, end);
    points.insert(place, {plan.needed, plan.seconds, -2 - static_cast<int32_t>(known_idx)});
  }
}

// Of the points below the floor only the fastest is left, at the floor. Returns where the first one was.
Bytes ChainSolver::raise_to_floor(Front& front) const {
  const auto above = std::find_if(front.points.begin(), front.points.end(),
                                  [&](const Point& point) { return point.allowance > chain_.floor; });
  if (above == front.points.begin()) return above->allowance;
  const auto fastest = front.points.erase(front.points.begin(), std::prev(above));
  return std::exchange(fastest->allowance, chain_.floor);
}

void ChainSolver::list_runs() {
  for (const Mode& mode : chain_.modes)
    require(
        !mode.moments.empty() && mode.saved.value >= 0 && mode.link.value >= 0 && std::isfinite(mode.seconds),
        "chain: a mode without blocks, with negative bytes or without seconds");
  const size_t length = chain_.blocks.size();
  for (size_t position = 0; position < length; ++position) {
    require(chain_.blocks[position].link.value >= 0, "chain: block {} moves {} bytes over the link", position,
            chain_.blocks[position].link.value);
    std::vector<Run> runs;
    for (int32_t index : chain_.lists.at(static_cast<size_t>(chain_.blocks[position].list))) {
      const Mode& mode = chain_.modes.at(static_cast<size_t>(index));
      const size_t end = position + mode.moments.size();
      if (end > length) continue;
      uses_link_ = uses_link_ || mode.link.value > 0;
      runs.push_back({.mode = index,
                      .span = mode.span(),
                      .saved = mode.saved,
                      .need = need_at(chain_, mode, position),
                      .sent = mode.link,
                      .moved = moved_between(chain_, position, end),
                      .seconds = mode.seconds});
    }
    runs_.push_back(std::move(runs));
  }
}

// Leaves out runs that never make a better plan than another one of the same position and span.
void ChainSolver::drop_dominated_runs() {
  const Bytes most{std::numeric_limits<int64_t>::max()};
  std::vector<Bytes> least(runs_.size() + 1, most);  // no plan of the rest needs a smaller allowance
  least.back() = chain_.head;
  for (size_t position = runs_.size(); position-- > 0;) {
    const auto rest = [&](const Run& run) { return least[position + static_cast<size_t>(run.span)]; };
    std::vector<Run>& runs = runs_[position];
    std::erase_if(runs, [&](const Run& run) { return rest(run) == most; });
    for (const Run& run : runs) {
      least[position] = std::min(least[position], std::max(run.need, run.saved + rest(run)));
    }
    // What the rest needs in any case. With a backlog, which the rest may have less of, the need counts alone.
    const auto need = [&](const Run& run) {
      return uses_link_ ? run.need : std::max(run.need, run.saved + rest(run));
    };
    std::stable_sort(runs.begin(), runs.end(), [&](const Run& a, const Run& b) {
      return std::tuple(a.span, a.saved, a.seconds, need(a), a.sent) <
             std::tuple(b.span, b.saved, b.seconds, need(b), b.sent);
    });
    std::vector<Run> best;
    for (const Run& run : runs)
      if (std::none_of(best.begin(), best.end(), [&](const Run& other) {
            return other.span == run.span && other.seconds <= run.seconds && need(other) <= need(run) &&
                   other.sent <= run.sent;
          }))
        best.push_back(run);
    runs = std::move(best);
  }
}

// What can be left over on the link before each position; of more than `most` as many, evenly, up to what some
// blocks send: to queue more than that is to keep it.
void ChainSolver::list_backlogs(size_t most) {
  backlogs_.assign(runs_.size() + 1, {});
  backlogs_.front() = {Bytes(0)};
  Bytes largest{0};
  for (const std::vector<Run>& runs : runs_)
    for (const Run& run : runs) largest = std::max(largest, run.sent);
  largest = kLargestBacklog * largest;
  for (size_t position = 0; position <= runs_.size(); ++position) {
    std::vector<Bytes>& here = backlogs_[position];
    std::sort(here.begin(), here.end());
    here.erase(std::unique(here.begin(), here.end()), here.end());
    if (here.size() > most) {
      exact_ = false;
      std::vector<Bytes> some;
      for (size_t step = 0; step < most; ++step) {
        const Bytes at = Bytes(largest.value / static_cast<int64_t>(most - 1)) * static_cast<int64_t>(step);
        const auto next = std::lower_bound(here.begin(), here.end(), at);
        if (next != here.end() && (some.empty() || some.back() < *next)) some.push_back(*next);
      }
      here = std::move(some);
    }
    if (position == runs_.size()) break;
    for (const Run& run : runs_[position]) {
      std::vector<Bytes>& there = backlogs_[position + static_cast<size_t>(run.span)];
      for (const Bytes backlog : here) {
        const Bytes after = backlog_after(backlog, run.sent, run.moved);
        if (there.empty() || there.back() != after) there.push_back(after);
      }
    }
  }
}

std::optional<size_t> ChainSolver::backlog_index(size_t position, Bytes backlog, Keep keep) const {
  const std::vector<Bytes>& all = backlogs_[position];
  const auto above = std::lower_bound(all.begin(), all.end(), backlog);
  const auto index = static_cast<size_t>(above - all.begin());
  if (above != all.end() && (*above == backlog || keep == Keep::kFastest)) return index;
  if (keep == Keep::kFastest || index == 0) return std::nullopt;
  return index - 1;
}

ChainSolver::Front ChainSolver::front_of(size_t position, size_t backlog, const Fronts& later, size_t limit,
                                         Keep keep) {
  const Bytes queued = backlogs_[position][backlog];
  std::vector<Way> ways;
  for (const Run& run : runs_[position]) {
    const size_t end = position + static_cast<size_t>(run.span);
    const std::optional<size_t> next = backlog_index(end, backlog_after(queued, run.sent, run.moved), keep);
    if (next && !later[end][*next].points.empty())
      ways.push_back({&run, &later[end][*next].points, run.need + queued});
  }
  return front_of(ways, limit, keep);
}

ChainSolver::Front ChainSolver::front_of(const std::vector<Way>& ways, size_t limit, Keep keep) {
  // The ends of the front, exactly: the smallest allowance, and the smallest at which nothing is faster.
  Point smallest{.allowance = Bytes(std::numeric_limits<int64_t>::max()), .seconds = kInfinity, .mode = -1};
  Point fastest = smallest;
  size_t candidates = 0;
  // The first point behind a way that does not fit below the way's need. All that do come out at the need: the
  // last of them is the fastest.
  const auto first_above = [](const Way& way) {
    return std::upper_bound(
        way.rest->begin(), way.rest->end(), way.need.value - way.run->saved.value,
        [](int64_t allowance, const Point& point) { return allowance < point.allowance.value; });
  };
  for (const Way& way : ways) {
    candidates += way.rest->size();
    const auto consider = [&](const Point& next) {
      const Point point{std::max(next.allowance + way.run->saved, way.need), next.seconds + way.run->seconds,
                        way.run->mode};
      if (std::pair(point.allowance, point.seconds) < std::pair(smallest.allowance, smallest.seconds))
        smallest = point;
      if (std::pair(point.seconds, point.allowance) < std::pair(fastest.seconds, fastest.allowance))
        fastest = point;
    };
    const auto above = first_above(way);
    consider(above == way.rest->begin() ? way.rest->front() : *std::prev(above));
    consider(way.rest->back());
  }
  Front front;
  if (candidates == 0) return front;

  // Calls use(allowance, seconds, mode) for every candidate that can be on the front.
  const auto for_each = [&](auto&& use) {
    for (const Way& way : ways) {
      const int64_t saved = way.run->saved.value;
      const double seconds = way.run->seconds;
      auto point = first_above(way);
      if (point != way.rest->begin() && way.need <= fastest.allowance)
        use(way.need.value, std::prev(point)->seconds + seconds, way.run->mode);
      const int64_t last = fastest.allowance.value - saved;
      for (; point != way.rest->end() && point->allowance.value <= last; ++point)
        use(point->allowance.value + saved, point->seconds + seconds, way.run->mode);
    }
  };
  // Drops what is no faster than a smaller one.
  const auto prune = [](std::vector<Point>& points) {
    size_t kept = 0;
    for (const Point& point : points)
      if (kept == 0 || point.seconds < points[kept - 1].seconds) points[kept++] = point;
    points.resize(kept);
  };

  // Most candidates are slower than one of a smaller interval, and need not be sorted for that to be seen.
  const int64_t low = smallest.allowance.value;
  const double scale = static_cast<double>(limit) / static_cast<double>(fastest.allowance.value - low + 1);
  const auto interval = [&](int64_t allowance) {
    return std::min(limit - 1, static_cast<size_t>(static_cast<double>(allowance - low) * scale));
  };
  std::vector<double> least(limit, kInfinity);  // seconds of the interval, then of all smaller ones
  for_each([&](int64_t allowance, double seconds, int32_t) {
    double& of = least[interval(allowance)];
    of = std::min(of, seconds);
  });
  double before = kInfinity;
  for (double& of : least) of = std::exchange(before, std::min(before, of));
  for_each([&](int64_t allowance, double seconds, int32_t mode) {
    if (seconds < least[interval(allowance)]) front.points.push_back({Bytes(allowance), seconds, mode});
  });
  if (front.points.size() <= 4 * limit) {
    std::sort(front.points.begin(), front.points.end(), [](const Point& a, const Point& b) {
      return std::tuple(a.allowance, a.seconds, a.mode) < std::tuple(b.allowance, b.seconds, b.mode);
    });
    prune(front.points);
    if (front.points.size() <= limit) {
      front.points.shrink_to_fit();
      return front;
    }
  }

  exact_ = false;
  struct Cell {
    double seconds = kInfinity;
    int64_t allowance = std::numeric_limits<int64_t>::max();
    int32_t mode = -1;
  };
  std::vector<Cell> cells(limit);
  for (const Point& point : front.points) {
    Cell& cell = cells[interval(point.allowance.value)];
    if (keep == Keep::kCorner) {
      cell.seconds = std::min(cell.seconds, point.seconds);
      cell.allowance = std::min(cell.allowance, point.allowance.value);
    } else if (point.seconds < cell.seconds ||
               (point.seconds == cell.seconds && point.allowance.value < cell.allowance)) {
      cell = {point.seconds, point.allowance.value, point.mode};
    }
  }
  front.points.clear();
  front.points.reserve(limit + 1);
  front.points.push_back(smallest);
  for (const Cell& cell : cells)
    if (cell.seconds < kInfinity) front.points.push_back({Bytes(cell.allowance), cell.seconds, cell.mode});
  // The corner of the first cell lies at the smallest allowance as well; the faster of the two holds.
  if (front.points.size() > 1 && front.points[1].allowance == smallest.allowance &&
      front.points[1].seconds < smallest.seconds)
    front.points.erase(front.points.begin());
  prune(front.points);
  front.points.shrink_to_fit();
  return front;
}

std::optional<ChainPlan> ChainSolver::best(Bytes budget) const {
  if (budget < smallest_budget()) return std::nullopt;
  std::vector<int32_t> modes;
  Bytes allowance = budget, queued{0};
  for (size_t position = 0; position < chain_.blocks.size();) {
    const std::optional<size_t> backlog = backlog_index(position, queued, Keep::kFastest);
    require(backlog.has_value(), "chain: no backlog of {} bytes before block {}", queued.value, position);
    queued = backlogs_[position][*backlog];
    const std::vector<Point>& points = fronts_[position][*backlog].points;
    const auto above =
        std::upper_bound(points.begin(), points.end(), allowance,
                         [](Bytes bytes, const Point& point) { return bytes < point.allowance; });
    require(above != points.begin(), "chain: no way on from block {}", position);
    const Point& point = *std::prev(above);
    if (point.mode <= -2) return evaluate(chain_, known_[static_cast<size_t>(-2 - point.mode)]);
    const Mode& mode = chain_.modes[static_cast<size_t>(point.mode)];
    modes.push_back(point.mode);
    // The point's own allowance, not what is left of the budget: exactly the points that it was made from,
    // so that a larger budget never gets a slower plan.
    const bool raised = position == 0 && &point == &points.front();
    allowance = (raised ? below_floor_ : point.allowance) - mode.saved;
    const size_t end = position + mode.moments.size();
    queued = backlog_after(queued, mode.link, moved_between(chain_, position, end));
    position = end;
  }
  ChainPlan plan = evaluate(chain_, modes);
  require(plan.needed <= budget, "chain: the plan needs {} bytes of {}", plan.needed.value, budget.value);
  return plan;
}

std::vector<ChainSolver::Step> ChainSolver::frontier() const {
  std::vector<Step> steps;
  for (const Point& point : fronts_.front().front().points) steps.push_back({point.allowance, point.seconds});
  return steps;
}

double ChainSolver::bound_seconds(Bytes budget) const {
  const std::optional<ChainPlan> plan = best(budget);
  require(plan.has_value(), "chain: a bound for {} bytes, where no plan fits", budget.value);
  if (exact_) return plan->seconds;
  const std::vector<Point>& points = relaxed_.points;
  const auto above =
      std::upper_bound(points.begin(), points.end(), budget,
                       [](Bytes bytes, const Point& point) { return bytes < point.allowance; });
  require(above != points.begin(), "chain: the relaxed front begins above the smallest budget");
  const double relaxed = std::prev(above)->seconds;
  // Sums of the same numbers in another order: a bound is never above the plan by rounding.
  return std::min(plan->seconds, std::max(relaxed, lagrangian(budget, plan->seconds)));
}

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
double ChainSolver::lagrangian(Bytes budget, double target) const {
  const size_t length = chain_.blocks.size();
  const double unit = static_cast<double>(std::max<int64_t>(budget.value, 1));
  std::vector<Bytes> least(length + 1,
                           Bytes(std::numeric_limits<int64_t>::max()));  // saved before a position
  least[0] = Bytes(0);
  // Allowances that the rest needs at least, whatever the backlog.
  std::vector<Bytes> rest(length + 1, Bytes(std::numeric_limits<int64_t>::max()));
  rest[length] = chain_.head;
  for (size_t position = length; position-- > 0;)
    for (const Run& run : runs_[position]) {
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
    for (const Run& run : runs_[position]) {
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
  const double head_excess = static_cast<double>(chain_.head.value - budget.value) / unit;

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
        if (uses_link_)
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
      if (uses_link_ && (run.queues > 0 || least_queue_price(position, run.end) > 0)) {
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
      if (!uses_link_) continue;
      const double most = queue_price[block + 1] + price[block];
      idle_price[block] =
          std::clamp(idle_price[block] + pace * distance / norm * idle_slope[block], 0.0, most);
      queue_price[block] = most - idle_price[block];
    }
  }
  return bound;
}

}  // namespace snug::planner
