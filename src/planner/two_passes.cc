#include "planner/two_passes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/errors.h"

namespace snug::planner {
namespace {

// How many levels a chain gets: fewer where one takes longer.
size_t most_levels(const Chain& chain) { return std::clamp<size_t>(600 / chain.blocks.size(), 8, 100); }

// Every excess of a run that a plan can have, rising; the first is the smallest for which the runs cover the
// chain.
std::vector<Bytes> excesses(const Chain& chain) {
  const Bytes most{std::numeric_limits<int64_t>::max()};
  std::vector<Bytes> all;
  std::vector<Bytes> cover(chain.blocks.size() + 1, most);  // the least largest excess from a position on
  cover.back() = Bytes(std::numeric_limits<int64_t>::min() / 2);
  for (size_t position = chain.blocks.size(); position-- > 0;)
    for (int32_t index : chain.lists.at(static_cast<size_t>(chain.blocks[position].list))) {
      const Mode& mode = chain.modes.at(static_cast<size_t>(index));
      const size_t end = position + mode.moments.size();
      if (end > chain.blocks.size() || cover[end] == most) continue;
      const Bytes excess = norm_excess(chain, mode, position);
      all.push_back(excess);
      cover[position] = std::min(cover[position], std::max(excess, cover[end]));
    }
  require(cover.front() != most, "chain: no list of runs covers the chain");
  std::erase_if(all, [&](Bytes excess) { return excess < cover.front(); });
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// The chain of one level: runs of more than `excess` may not begin, and the head holds `excess` at least.
Chain level_of(const Chain& chain, Bytes excess) {
  Chain level = chain;
  level.backward_twice = false;
  level.head = std::max(chain.head, excess);
  level.lists.clear();
  std::map<std::vector<int32_t>, int32_t> lists;
  for (size_t position = 0; position < chain.blocks.size(); ++position) {
    std::vector<int32_t> list;
    for (int32_t index : chain.lists[static_cast<size_t>(chain.blocks[position].list)]) {
      const Mode& mode = chain.modes[static_cast<size_t>(index)];
      if (position + mode.moments.size() <= chain.blocks.size() &&
          norm_excess(chain, mode, position) <= excess)
        list.push_back(index);
    }
    const auto [found, is_new] = lists.try_emplace(list, static_cast<int32_t>(level.lists.size()));
    if (is_new) level.lists.push_back(std::move(list));
    level.blocks[position].list = found->second;
  }
  return level;
}

bool is_within(const Chain& chain, const std::vector<int32_t>& modes, Bytes excess) {
  size_t position = 0;
  for (int32_t index : modes) {
    const Mode& mode = chain.modes.at(static_cast<size_t>(index));
    if (norm_excess(chain, mode, position) > excess) return false;
    position += mode.moments.size();
  }
  return true;
}

}  // namespace

PlanSolver::PlanSolver(Chain chain, std::span<const std::vector<int32_t>> known) : chain_(std::move(chain)) {
  if (chain_.backward_twice)
    add_levels(known);
  else
    levels_.push_back({.solver = ChainSolver(chain_, known), .below = Bytes(0)});
  // A level's smallest plan may need less than its level allows for.
  for (size_t level = 0; level < levels_.size(); ++level) {
    const ChainSolver& solver = levels_[level].solver;
    const ChainPlan plan = evaluate(chain_, solver.best(solver.smallest_budget())->modes);
    if (level == 0 || plan.needed < smallest_.needed) smallest_ = plan;
  }
  for (const ChainPlan& plan : known_)
    if (plan.needed < smallest_.needed) smallest_ = plan;
}

void PlanSolver::add_levels(std::span<const std::vector<int32_t>> known) {
  for (const std::vector<int32_t>& modes : known) known_.push_back(evaluate(chain_, modes));
  const std::vector<Bytes> all = excesses(chain_);
  const size_t count = std::min(all.size(), most_levels(chain_));
  complete_ = count == all.size();
  for (size_t level = 0; level < count; ++level) {
    // Evenly, the first and the last among them.
    const size_t at = count == 1 ? all.size() - 1 : level * (all.size() - 1) / (count - 1);
    const size_t before = level == 0 ? at : (level - 1) * (all.size() - 1) / (count - 1) + 1;
    std::vector<std::vector<int32_t>> within;
    for (const std::vector<int32_t>& modes : known)
      if (is_within(chain_, modes, all[at])) within.push_back(modes);
    const double effort = 4.0 / static_cast<double>(count);
    levels_.push_back({.solver = ChainSolver(level_of(chain_, all[at]), within, std::min(1.0, effort)),
                       .below = all[at] - all[std::min(before, at)]});
  }
}

std::optional<ChainPlan> PlanSolver::best(Bytes budget) const {
  if (budget < smallest_.needed) return std::nullopt;
  ChainPlan best = smallest_;
  for (const ChainPlan& plan : known_)
    if (plan.needed <= budget && plan.seconds < best.seconds) best = plan;
  for (const Level& level : levels_) {
    const std::optional<ChainPlan> plan = level.solver.best(budget);
    if (plan && plan->seconds < best.seconds) best = evaluate(chain_, plan->modes);
  }
  return best;
}

double PlanSolver::bound_seconds(Bytes budget) const {
  double bound = std::numeric_limits<double>::infinity();
  for (const Level& level : levels_)
    if (level.solver.smallest_budget() <= budget + level.below)
      bound = std::min(bound, level.solver.bound_seconds(budget + level.below));
  const std::optional<ChainPlan> plan = best(budget);
  require(plan.has_value(), "chain: a bound for {} bytes, where no plan fits", budget.value);
  return std::min(bound, plan->seconds);
}

std::vector<ChainSolver::Step> PlanSolver::frontier() const {
  std::vector<ChainSolver::Step> all = {{smallest_.needed, smallest_.seconds}}, steps;
  for (const ChainPlan& plan : known_) all.push_back({plan.needed, plan.seconds});
  for (const Level& level : levels_) {
    const std::vector<ChainSolver::Step> own = level.solver.frontier();
    all.insert(all.end(), own.begin(), own.end());
  }
  std::sort(all.begin(), all.end(), [](const ChainSolver::Step& a, const ChainSolver::Step& b) {
    return std::pair(a.budget, a.seconds) < std::pair(b.budget, b.seconds);
  });
  for (const ChainSolver::Step& step : all)
    if (steps.empty() || step.seconds < steps.back().seconds) steps.push_back(step);
  return steps;
}

bool PlanSolver::exact() const {
  return complete_ &&
         std::all_of(levels_.begin(), levels_.end(), [](const Level& level) { return level.solver.exact(); });
}

}  // namespace snug::planner
