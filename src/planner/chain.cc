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
// Points of all fronts times the modes that read them: what one pass may cost (about 0.1 s).
constexpr size_t kWork = size_t{1} << 25;
constexpr size_t kLeastPoints = 512, kMostPoints = 1 << 14;
constexpr int kDualSteps = 400;

// The least allowance at which the moments of a run of `mode` from `position` fit.
Bytes need_at(const Chain& chain, const Mode& mode, size_t position) {
  Bytes need{0};
  for (size_t block = 0; block < mode.moments.size(); ++block) {
    const Moments& fixed = chain.blocks[position + block].fixed;
    need = std::max(
        {need, fixed.forward + mode.moments[block].forward, fixed.backward + mode.moments[block].backward});
  }
  return need;
}

}  // namespace

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
  Bytes saved{0}, excess{0};
  for (int32_t index : modes) {
    require(position < chain.blocks.size(), "chain: a run begins at block {} of {}", position,
            chain.blocks.size());
    const std::vector<int32_t>& list = chain.lists.at(static_cast<size_t>(chain.blocks[position].list));
    require(std::find(list.begin(), list.end(), index) != list.end(),
            "chain: mode {} may not begin at block {}", index, position);
    const Mode& mode = chain.modes.at(static_cast<size_t>(index));
    require(position + mode.moments.size() <= chain.blocks.size(), "chain: mode {} at block {} is too long",
            index, position);
    plan.needed = std::max(plan.needed, saved + need_at(chain, mode, position));
    if (chain.backward_twice) excess = std::max(excess, norm_excess(chain, mode, position));
    plan.seconds += mode.seconds;
    saved += mode.saved;
    position += mode.moments.size();
  }
  require(position == chain.blocks.size(), "chain: the runs end at block {} of {}", position,
          chain.blocks.size());
  plan.needed = std::max({plan.needed, saved + std::max(chain.head, excess), chain.floor});
  return plan;
}

ChainSolver::ChainSolver(Chain chain, std::span<const std::vector<int32_t>> known, double effort)
    : chain_(std::move(chain)), known_(known.begin(), known.end()) {
  require(!chain_.blocks.empty() && !chain_.backward_twice, "chain: no blocks, or two backward passes");
  list_runs();
  const size_t length = chain_.blocks.size();
  size_t runs = 0;
  for (const std::vector<Run>& at : runs_) runs += at.size();
  const auto work = static_cast<size_t>(effort * static_cast<double>(kWork));
  const size_t limit = std::clamp(work / std::max<size_t>(runs, 1), kLeastPoints, kMostPoints);

  const Point head{.allowance = chain_.head, .seconds = 0, .mode = -1};
  fronts_.resize(length + 1);
  relaxed_.resize(length + 1);
  fronts_.back().points = relaxed_.back().points = {head};
  for (size_t position = length; position-- > 0;) {
    fronts_[position] = front_of(position, fronts_, limit, Keep::kFastest);
    // As long as nothing was thinned the two are the same.
    relaxed_[position] = exact_ ? fronts_[position] : front_of(position, relaxed_, limit, Keep::kCorner);
  }
  require(!fronts_.front().points.empty(), "chain: no list of runs covers the chain");
  relaxed_.resize(1);
  below_floor_ = raise_to_floor(fronts_.front());
  raise_to_floor(relaxed_.front());

  std::vector<Point>& points = fronts_.front().points;
  for (size_t known_idx = 0; known_idx < known_.size(); ++known_idx) {
    const ChainPlan plan = evaluate(chain_, known_[known_idx]);
    const auto above =
        std::upper_bound(points.begin(), points.end(), plan.needed,
                         [](Bytes bytes, const Point& point) { return bytes < point.allowance; });
    // The smallest budget is exact, so there is a point at or below every plan's.
    if (above == points.begin() || std::prev(above)->seconds <= plan.seconds) continue;
    auto end = above;
    while (end != points.end() && end->seconds >= plan.seconds) ++end;
    const auto begin = std::prev(above)->allowance == plan.needed ? std::prev(above) : above;
    const auto place = points.erase(begin, end);
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
    require(!mode.moments.empty() && mode.saved.value >= 0 && std::isfinite(mode.seconds),
            "chain: a mode without blocks, with negative bytes or without seconds");
  const size_t length = chain_.blocks.size();
  for (size_t position = 0; position < length; ++position) {
    std::vector<Run> runs;
    for (int32_t index : chain_.lists.at(static_cast<size_t>(chain_.blocks[position].list))) {
      const Mode& mode = chain_.modes.at(static_cast<size_t>(index));
      if (position + mode.moments.size() > length) continue;
      runs.push_back({.mode = index,
                      .span = mode.span(),
                      .saved = mode.saved,
                      .need = need_at(chain_, mode, position),
                      .seconds = mode.seconds});
    }
    runs_.push_back(std::move(runs));
  }
}

ChainSolver::Front ChainSolver::front_of(size_t position, const std::vector<Front>& later, size_t limit,
                                         Keep keep) {
  // The ends of the front, exactly: the smallest allowance, and the smallest at which nothing is faster.
  Point smallest{.allowance = Bytes(std::numeric_limits<int64_t>::max()), .seconds = kInfinity, .mode = -1};
  Point fastest = smallest;
  size_t candidates = 0;
  for (const Run& run : runs_[position]) {
    const std::vector<Point>& points = later[position + static_cast<size_t>(run.span)].points;
    if (points.empty()) continue;
    candidates += points.size();
    const auto consider = [&](const Point& next) {
      const Point point{std::max(next.allowance + run.saved, run.need), next.seconds + run.seconds, run.mode};
      if (std::pair(point.allowance, point.seconds) < std::pair(smallest.allowance, smallest.seconds))
        smallest = point;
      if (std::pair(point.seconds, point.allowance) < std::pair(fastest.seconds, fastest.allowance))
        fastest = point;
    };
    // All points that fit below the run's need come out at the need: the last of them is the fastest.
    const auto above =
        std::upper_bound(points.begin(), points.end(), run.need,
                         [&](Bytes need, const Point& point) { return need < point.allowance + run.saved; });
    consider(above == points.begin() ? points.front() : *std::prev(above));
    consider(points.back());
  }
  Front front;
  if (candidates == 0) return front;

  // Calls use(allowance, seconds, mode) for every candidate that can be on the front.
  const auto for_each = [&](auto&& use) {
    for (const Run& run : runs_[position]) {
      const std::vector<Point>& points = later[position + static_cast<size_t>(run.span)].points;
      if (points.empty()) continue;
      auto point = std::upper_bound(
          points.begin(), points.end(), run.need,
          [&](Bytes need, const Point& other) { return need < other.allowance + run.saved; });
      if (point != points.begin()) use(run.need.value, std::prev(point)->seconds + run.seconds, run.mode);
      const int64_t last = fastest.allowance.value - run.saved.value;
      for (; point != points.end() && point->allowance.value <= last; ++point)
        use(point->allowance.value + run.saved.value, point->seconds + run.seconds, run.mode);
    }
  };
  // Drops what is no faster than a smaller one.
  const auto prune = [](std::vector<Point>& points) {
    size_t kept = 0;
    for (const Point& point : points)
      if (kept == 0 || point.seconds < points[kept - 1].seconds) points[kept++] = point;
    points.resize(kept);
  };

  if (candidates <= 4 * limit) {
    for_each([&](int64_t allowance, double seconds, int32_t mode) {
      front.points.push_back({Bytes(allowance), seconds, mode});
    });
    std::sort(front.points.begin(), front.points.end(), [](const Point& a, const Point& b) {
      return std::tuple(a.allowance, a.seconds, a.mode) < std::tuple(b.allowance, b.seconds, b.mode);
    });
    prune(front.points);
    if (front.points.size() <= limit) return front;
  }

  exact_ = false;
  const int64_t low = smallest.allowance.value;
  const double scale = static_cast<double>(limit) / static_cast<double>(fastest.allowance.value - low + 1);
  struct Cell {
    double seconds = kInfinity;
    int64_t allowance = std::numeric_limits<int64_t>::max();
    int32_t mode = -1;
  };
  std::vector<Cell> cells(limit);
  for_each([&](int64_t allowance, double seconds, int32_t mode) {
    if (allowance > fastest.allowance.value) return;
    Cell& cell =
        cells[std::min(limit - 1, static_cast<size_t>(static_cast<double>(allowance - low) * scale))];
    if (keep == Keep::kCorner) {
      cell.seconds = std::min(cell.seconds, seconds);
      cell.allowance = std::min(cell.allowance, allowance);
    } else if (seconds < cell.seconds || (seconds == cell.seconds && allowance < cell.allowance)) {
      cell = {seconds, allowance, mode};
    }
  });
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
  return front;
}

std::optional<ChainPlan> ChainSolver::best(Bytes budget) const {
  if (budget < smallest_budget()) return std::nullopt;
  std::vector<int32_t> modes;
  Bytes allowance = budget;
  for (size_t position = 0; position < chain_.blocks.size();) {
    const std::vector<Point>& points = fronts_[position].points;
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
    position += mode.moments.size();
  }
  ChainPlan plan = evaluate(chain_, modes);
  require(plan.needed <= budget, "chain: the plan needs {} bytes of {}", plan.needed.value, budget.value);
  return plan;
}

std::vector<ChainSolver::Step> ChainSolver::frontier() const {
  std::vector<Step> steps;
  for (const Point& point : fronts_.front().points) steps.push_back({point.allowance, point.seconds});
  return steps;
}

double ChainSolver::bound_seconds(Bytes budget) const {
  const std::optional<ChainPlan> plan = best(budget);
  require(plan.has_value(), "chain: a bound for {} bytes, where no plan fits", budget.value);
  if (exact_) return plan->seconds;
  const std::vector<Point>& points = relaxed_.front().points;
  const auto above =
      std::upper_bound(points.begin(), points.end(), budget,
                       [](Bytes bytes, const Point& point) { return bytes < point.allowance; });
  require(above != points.begin(), "chain: the relaxed front begins above the smallest budget");
  const double relaxed = std::prev(above)->seconds;
  // Sums of the same numbers in another order: a bound is never above the plan by rounding.
  return std::min(plan->seconds, std::max(relaxed, lagrangian(budget, plan->seconds)));
}

// The dual function at prices p_0 … p_{L-1} of the blocks' moments and p_L of the head's is the least over
// all lists of runs of  Σ seconds + Σ_b p_b (saved before b's run + need of b's run - budget)
//                                 + p_L (all saved + head - budget).
// A run from f to e pays its seconds, (p_f + … + p_{e-1})·(need - budget), and for its saved bytes
// p_e + … + p_L. Runs that fit in no plan at all are left out.
double ChainSolver::lagrangian(Bytes budget, double target) const {
  const size_t length = chain_.blocks.size();
  const double unit = static_cast<double>(std::max<int64_t>(budget.value, 1));
  std::vector<Bytes> least(length + 1,
                           Bytes(std::numeric_limits<int64_t>::max()));  // saved before a position
  least[0] = Bytes(0);
  struct Priced {
    size_t end;
    double seconds, saved, excess;  // bytes in units of the budget; excess: need - budget
  };
  std::vector<std::vector<Priced>> runs(length);
  for (size_t position = 0; position < length; ++position) {
    if (least[position].value == std::numeric_limits<int64_t>::max()) continue;
    for (const Run& run : runs_[position]) {
      const size_t end = position + static_cast<size_t>(run.span);
      if (fronts_[end].points.empty() || least[position] + run.need > budget ||
          least[position] + run.saved + fronts_[end].points.front().allowance > budget)
        continue;
      least[end] = std::min(least[end], least[position] + run.saved);
      runs[position].push_back({end, run.seconds, static_cast<double>(run.saved.value) / unit,
                                static_cast<double>(run.need.value - budget.value) / unit});
    }
  }
  const double head_excess = static_cast<double>(chain_.head.value - budget.value) / unit;

  std::vector<double> price(length + 1, 0.0), after(length + 2, 0.0), value(length + 1), slope(length + 1);
  std::vector<const Priced*> chosen(length);
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
        const double cost = run.seconds + run.saved * after[run.end] +
                            (after[position] - after[run.end]) * run.excess + value[run.end];
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
    double saved = 0;
    for (size_t position = 0; position < length;) {
      const Priced& run = *chosen[position];
      for (size_t block = position; block < run.end; ++block) slope[block] = saved + run.excess;
      saved += run.saved;
      position = run.end;
    }
    slope[length] = saved + head_excess;
    double norm = 0;
    for (size_t block = 0; block <= length; ++block)
      // A price at zero is not pushed below it.
      if (slope[block] > 0 || price[block] > 0) norm += slope[block] * slope[block];
    if (norm == 0) break;
    for (size_t block = 0; block <= length; ++block)
      price[block] = std::max(0.0, price[block] + pace * distance / norm * slope[block]);
  }
  return bound;
}

}  // namespace snug::planner
