#include "planner/two_passes.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/errors.h"

namespace snug::planner {
namespace {

constexpr Bytes kNever{std::numeric_limits<int64_t>::max()};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// How many excesses become levels.
constexpr size_t kMostLevels = 128;
// Solvers of levels that stay in memory.
constexpr size_t kMostSolvers = 8;
// A gap that quick bounds may leave: of the step.
constexpr double kEnoughGap = 0.002;

}  // namespace

PlanSolver::PlanSolver(Chain chain, std::span<const std::vector<int32_t>> known)
    : chain_(std::make_shared<const Chain>(std::move(chain))) {
  if (!chain_->backward_twice) {
    single_.emplace(chain_, known);
    smallest_ = single_->best(single_->smallest_budget()).value();
    return;
  }
  for (const Mode& mode : chain_->modes)
    require(mode.link == Bytes(0), "chain: a mode uses a link, and the backward runs twice");
  for (const std::vector<int32_t>& modes : known) keep_plan(known_, evaluate(*chain_, modes));
  list_runs();
  add_levels();
  // A level's smallest plan may need less than its level allows for.
  for (size_t level = 0; level < levels_.size(); ++level) {
    ChainPlan plan = smallest_of(levels_[level]);
    if (level == 0 || plan.needed < smallest_.needed) smallest_ = std::move(plan);
  }
  keep_plan(known_, smallest_);
  smallest_ = known_.front();
}

void PlanSolver::list_runs() {
  for (size_t position = 0; position < chain_->blocks.size(); ++position) {
    std::vector<LevelledRun> runs;
    for (int32_t index : chain_->lists.at(static_cast<size_t>(chain_->blocks[position].list))) {
      const Mode& mode = chain_->modes.at(static_cast<size_t>(index));
      const size_t end = position + mode.moments.size();
      if (end <= chain_->blocks.size())
        runs.push_back({.mode = index,
                        .end = end,
                        .saved = mode.saved,
                        .need = need_at(*chain_, mode, position),
                        .excess = norm_excess(*chain_, mode, position),
                        .seconds = mode.seconds});
    }
    std::sort(runs.begin(), runs.end(), [](const LevelledRun& a, const LevelledRun& b) {
      return std::tuple(a.end, a.saved, a.seconds, a.mode) < std::tuple(b.end, b.saved, b.seconds, b.mode);
    });
    runs_.push_back(std::move(runs));
  }
}

void PlanSolver::add_levels() {
  // Every excess of a run that a plan can have; the first is the smallest for which the runs cover the chain.
  std::vector<Bytes> all;
  std::vector<Bytes> cover(runs_.size() + 1, kNever);  // the least largest excess from a position on
  cover.back() = Bytes(std::numeric_limits<int64_t>::min() / 2);
  for (size_t position = runs_.size(); position-- > 0;)
    for (const LevelledRun& run : runs_[position]) {
      if (cover[run.end] == kNever) continue;
      all.push_back(run.excess);
      cover[position] = std::min(cover[position], std::max(run.excess, cover[run.end]));
    }
  require(cover.front() != kNever, "chain: no list of runs covers the chain");
  std::erase_if(all, [&](Bytes excess) { return excess < cover.front(); });
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());

  const size_t count = std::min(all.size(), kMostLevels);
  complete_ = count == all.size();
  for (size_t level = 0; level < count; ++level) {
    // Evenly, the first and the last among them.
    const size_t at = count == 1 ? all.size() - 1 : level * (all.size() - 1) / (count - 1);
    const size_t before = level == 0 ? at : (level - 1) * (all.size() - 1) / (count - 1) + 1;
    levels_.push_back(
        {.excess = all[at], .below = all[at] - all[std::min(before, at)], .smallest = {}, .solver = {}});
  }
}

// The plan of the smallest allowance, as the level counts it.
ChainPlan PlanSolver::smallest_of(Level& level) const {
  std::vector<Bytes> least(runs_.size() + 1, kNever);  // allowance from a position on
  std::vector<const LevelledRun*> first(runs_.size(), nullptr);
  least.back() = std::max(chain_->head, level.excess);
  for (size_t position = runs_.size(); position-- > 0;)
    for (const LevelledRun& run : runs_[position]) {
      if (run.excess > level.excess || least[run.end] == kNever) continue;
      const Bytes allowance = std::max(run.need, run.saved + least[run.end]);
      if (allowance >= least[position]) continue;
      least[position] = allowance;
      first[position] = &run;
    }
  level.smallest = std::max(least.front(), chain_->floor);
  std::vector<int32_t> modes;
  for (size_t position = 0; position < runs_.size(); position = first[position]->end)
    modes.push_back(first[position]->mode);
  return evaluate(*chain_, modes);
}

// No plan of the level within the budget has fewer seconds: the dual function of  (bytes saved of all) <= budget -
// head  at its best price.
double PlanSolver::quick_bound(const Level& level, Bytes budget) const {
  if (budget < level.smallest) return kInfinity;
  const double room = static_cast<double>((budget - std::max(chain_->head, level.excess)).value);
  struct Corner {
    size_t end;
    double saved, seconds;
  };
  // Only the lower hull of a position's runs is best at some price.
  std::vector<Corner> corners;
  std::vector<size_t> begin;
  for (const std::vector<LevelledRun>& runs : runs_) {
    begin.push_back(corners.size());
    size_t hull = corners.size();  // where that of the run's end begins
    for (const LevelledRun& run : runs) {
      if (run.excess > level.excess || run.need > budget) continue;
      const Corner next{run.end, static_cast<double>(run.saved.value), run.seconds};
      if (corners.size() > hull && corners.back().end != next.end) hull = corners.size();
      if (corners.size() > hull && corners.back().seconds <= next.seconds) continue;
      while (corners.size() > hull + 1) {
        const Corner &last = corners.back(), &other = corners[corners.size() - 2];
        if ((last.seconds - other.seconds) * (next.saved - last.saved) <
            (next.seconds - last.seconds) * (last.saved - other.saved))
          break;
        corners.pop_back();
      }
      corners.push_back(next);
    }
  }
  begin.push_back(corners.size());

  struct Line {
    double saved = 0, seconds = 0;
  };
  std::vector<Line> best(runs_.size() + 1);
  // The list of runs of least  second_price · seconds + byte_price · bytes.
  const auto cheapest = [&](double second_price, double byte_price) {
    for (size_t position = runs_.size(); position-- > 0;) {
      double least = kInfinity;
      best[position] = {kInfinity, kInfinity};
      for (size_t index = begin[position]; index < begin[position + 1]; ++index) {
        const Corner& run = corners[index];
        const Line line{run.saved + best[run.end].saved, run.seconds + best[run.end].seconds};
        const double cost = second_price * line.seconds + byte_price * line.saved;
        if (cost < least) {
          least = cost;
          best[position] = line;
        }
      }
    }
    return best.front();
  };
  Line fast = cheapest(1, 0);
  if (fast.saved <= room) return fast.seconds;
  Line small = cheapest(0, 1);
  if (small.saved > room) return kInfinity;
  // `fast` is too large and `small` is not; the price at which they cost the same, until nothing is cheaper there.
  for (;;) {
    const double price = (small.seconds - fast.seconds) / (fast.saved - small.saved);
    const double both = fast.seconds + price * fast.saved;
    const Line line = cheapest(1, price);
    if (line.seconds + price * line.saved >= both * (1 - 1e-12) || line.saved == fast.saved ||
        line.saved == small.saved)
      return std::min(both, line.seconds + price * line.saved) - price * room;
    (line.saved > room ? fast : small) = line;
  }
}

const ChainSolver& PlanSolver::solver(const Level& level) const {
  const auto index = static_cast<size_t>(&level - levels_.data());
  std::erase(solved_, index);
  solved_.push_back(index);
  if (solved_.size() > kMostSolvers) {
    levels_[solved_.front()].solver.reset();
    solved_.erase(solved_.begin());
  }
  if (!level.solver) level.solver.emplace(chain_, std::span<const std::vector<int32_t>>(), level.excess);
  return *level.solver;
}

std::optional<ChainPlan> PlanSolver::best(Bytes budget) const {
  if (single_) return single_->best(budget);
  if (budget < smallest_.needed) return std::nullopt;
  ChainPlan best = *fastest_within(known_, budget);
  std::vector<std::pair<double, size_t>> order;
  for (size_t level = 0; level < levels_.size(); ++level)
    if (levels_[level].smallest <= budget) order.emplace_back(quick_bound(levels_[level], budget), level);
  std::sort(order.begin(), order.end());
  for (const auto& [bound, level] : order) {
    if (bound >= best.seconds * (1 - 1e-12)) break;
    const std::optional<ChainPlan> plan = solver(levels_[level]).best(budget);
    if (!plan || plan->seconds >= best.seconds) continue;
    best = evaluate(*chain_, plan->modes);
    keep_plan(known_, best);
  }
  return best;
}

double PlanSolver::bound_seconds(Bytes budget) const {
  if (single_) return single_->bound_seconds(budget);
  const std::optional<ChainPlan> plan = best(budget);
  require(plan.has_value(), "chain: a bound for {} bytes, where no plan fits", budget.value);
  // What is certified already need not be certified more closely, at the cost of a solver.
  const double enough = plan->seconds - kEnoughGap * (chain_->step_seconds + plan->seconds);
  double bound = plan->seconds;
  for (const Level& level : levels_) {
    const Bytes above = budget + level.below;
    if (level.smallest > above) continue;
    double of_level = quick_bound(level, above);
    if (of_level < std::min(bound, enough)) of_level = std::max(of_level, solver(level).bound_seconds(above));
    bound = std::min(bound, of_level);
  }
  return bound;
}

std::vector<ChainSolver::Step> PlanSolver::frontier() const {
  if (single_) return single_->frontier();
  for (const Level& level : levels_) {
    const ChainSolver& of_level = solver(level);
    for (const ChainSolver::Step& step : of_level.frontier())
      keep_plan(known_, evaluate(*chain_, of_level.best(step.budget)->modes));
  }
  std::vector<ChainSolver::Step> steps;
  for (const ChainPlan& plan : known_) steps.push_back({plan.needed, plan.seconds});
  return steps;
}

bool PlanSolver::exact() const {
  if (single_) return single_->exact();
  return complete_ && std::all_of(levels_.begin(), levels_.end(),
                                  [this](const Level& level) { return solver(level).exact(); });
}

}  // namespace snug::planner
