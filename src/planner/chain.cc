#include "planner/chain.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "planner/chain_dual.h"
#include "planner/chain_grid.h"
#include "planner/chain_runs.h"

namespace snug::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Every step is kept while the steps of a position are made of at most so many.
constexpr size_t kMostCandidates = size_t{1} << 13;
// Points of all rows times the runs that read them: what one table may cost (some thousandths of a second).
constexpr size_t kWork = size_t{1} << 22;
constexpr size_t kLeastPoints = 1024, kMostPoints = 4096;
// A gap that the dual may leave, of the step: what is certified already need not be certified more closely.
constexpr double kEnoughGap = 0.0005;
// Budgets for which plans are walked, and how many of them, the last ones that fit, answer for one that is asked.
constexpr size_t kWalks = 1024, kWalksNear = 48;

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
    Bytes moved{0};
    for (size_t block = position; block < end; ++block) moved += chain.blocks[block].link;
    backlog = backlog_after(backlog, mode.link, moved);
    position = end;
  }
  require(position == chain.blocks.size(), "chain: the runs end at block {} of {}", position,
          chain.blocks.size());
  plan.needed = std::max({plan.needed, saved + backlog + std::max(chain.head, excess), chain.floor});
  return plan;
}

void keep_plan(std::vector<ChainPlan>& plans, ChainPlan plan) {
  const auto above =
      std::upper_bound(plans.begin(), plans.end(), plan.needed,
                       [](Bytes bytes, const ChainPlan& other) { return bytes < other.needed; });
  if (above != plans.begin() && std::prev(above)->seconds <= plan.seconds) return;
  auto first = above, last = above;
  if (first != plans.begin() && std::prev(first)->needed == plan.needed) --first;
  while (last != plans.end() && last->seconds >= plan.seconds) ++last;
  plans.insert(plans.erase(first, last), std::move(plan));
}

const ChainPlan* fastest_within(std::span<const ChainPlan> plans, Bytes budget) {
  const auto above = std::upper_bound(plans.begin(), plans.end(), budget,
                                      [](Bytes bytes, const ChainPlan& plan) { return bytes < plan.needed; });
  return above == plans.begin() ? nullptr : &*std::prev(above);
}

ChainSolver::ChainSolver(std::shared_ptr<const Chain> chain, std::span<const std::vector<int32_t>> known,
                         std::optional<Bytes> excess_limit)
    : chain_(std::move(chain)) {
  require(!chain_->blocks.empty() && chain_->backward_twice == excess_limit.has_value(),
          "chain: no blocks, or two backward passes");
  runs_ = std::make_unique<const ChainRuns>(runs_of(*chain_, excess_limit));
  for (const std::vector<int32_t>& modes : known) keep_plan(plans_, evaluated(modes));
  if (!find_every_plan()) tabulate();
}

ChainSolver::~ChainSolver() = default;
ChainSolver::ChainSolver(ChainSolver&&) noexcept = default;
ChainSolver& ChainSolver::operator=(ChainSolver&&) noexcept = default;

// Bytes and seconds of a list of runs; a level counts what its head needs at least.
ChainPlan ChainSolver::evaluated(std::span<const int32_t> modes) const {
  ChainPlan plan = evaluate(*chain_, modes);
  if (!chain_->backward_twice) return plan;
  Bytes saved{0};
  for (int32_t mode : modes) saved += chain_->modes[static_cast<size_t>(mode)].saved;
  plan.needed = std::max(plan.needed, saved + runs_->head);
  return plan;
}

size_t ChainSolver::points() const {
  return std::clamp(kWork / std::max<size_t>(runs_->reads(), 1), kLeastPoints, kMostPoints);
}

// The exact step functions of all positions, and the plan of each step of the first; false where there are too many.
bool ChainSolver::find_every_plan() {
  if (runs_->rounds_backlogs) return false;
  struct Point {
    Bytes allowance;  // the least that this many seconds need
    double seconds = 0;
    const Run* run = nullptr;
  };
  using Front = std::vector<Point>;  // allowance rising, seconds falling
  std::vector<std::vector<Front>> fronts(runs_->length() +
                                         1);  // per position, one more for the head, and backlog
  for (const Bytes backlog : runs_->backlogs.back())
    fronts.back().push_back({{.allowance = runs_->head + backlog, .seconds = 0, .run = nullptr}});
  const auto behind = [&](size_t position, Bytes queued, const Run& run) -> const Front& {
    const size_t end = position + static_cast<size_t>(run.span);
    const Bytes after = backlog_after(queued, run.sent, run.moved);
    return fronts[end][runs_->backlog_index(end, after, BacklogRounding::kUp).value()];
  };
  for (size_t position = runs_->length(); position-- > 0;)
    for (const Bytes queued : runs_->backlogs[position]) {
      size_t candidates = 0;
      for (const Run& run : runs_->at[position]) candidates += behind(position, queued, run).size();
      if (candidates > kMostCandidates) return false;
      Front all;
      all.reserve(candidates);
      for (const Run& run : runs_->at[position])
        for (const Point& next : behind(position, queued, run))
          all.push_back(
              {std::max(next.allowance + run.saved, run.need + queued), next.seconds + run.seconds, &run});
      std::stable_sort(all.begin(), all.end(), [](const Point& a, const Point& b) {
        return std::pair(a.allowance, a.seconds) < std::pair(b.allowance, b.seconds);
      });
      Front& front = fronts[position].emplace_back();
      for (const Point& point : all)
        if (front.empty() || point.seconds < front.back().seconds) front.push_back(point);
    }

  for (const Point& whole : fronts.front().front()) {
    std::vector<int32_t> modes;
    Bytes allowance = whole.allowance, queued{0};
    for (size_t position = 0; position < runs_->length();) {
      const Front& front =
          fronts[position][runs_->backlog_index(position, queued, BacklogRounding::kUp).value()];
      const auto above =
          std::upper_bound(front.begin(), front.end(), allowance,
                           [](Bytes bytes, const Point& point) { return bytes < point.allowance; });
      require(above != front.begin(), "chain: no way on from block {}", position);
      const Run& run = *std::prev(above)->run;
      modes.push_back(run.mode);
      allowance -= run.saved;
      queued = backlog_after(queued, run.sent, run.moved);
      position += static_cast<size_t>(run.span);
    }
    ChainPlan plan = evaluated(modes);
    require(plan.needed <= std::max(whole.allowance, chain_->floor), "chain: the plan needs {} bytes of {}",
            plan.needed.value, whole.allowance.value);
    keep_plan(plans_, std::move(plan));
  }
  smallest_ = plans_.front().needed;
  fastest_ = plans_.back().needed;
  exact_ = true;
  return true;
}

// The list of runs that the table promises the fewest seconds of, with every byte counted; none where the rest of no run fits.
std::optional<std::vector<int32_t>> ChainSolver::walk(Bytes budget) const {
  std::vector<int32_t> modes;
  Bytes allowance = budget, queued{0};
  size_t next = 0;
  for (size_t position = 0; position < runs_->length();) {
    const Run* fastest = nullptr;
    double fewest = kInfinity;
    size_t backlog_behind = 0;
    for (const Run& run : runs_->at[position]) {
      if (run.need + queued > allowance || run.seconds >= fewest) continue;
      const size_t end = position + static_cast<size_t>(run.span);
      if (runs_->uses_link) {
        const std::optional<size_t> found =
            runs_->backlog_index(end, backlog_after(queued, run.sent, run.moved), BacklogRounding::kUp);
        if (!found) continue;
        next = *found;
      }
      const Bytes left = allowance - run.saved;
      if (left < grid_->least(end, next)) continue;
      const double seconds = run.seconds + grid_->seconds(end, next, left);
      if (seconds >= fewest) continue;
      fewest = seconds;
      fastest = &run;
      backlog_behind = next;
    }
    if (fastest == nullptr) return std::nullopt;
    modes.push_back(fastest->mode);
    allowance -= fastest->saved;
    position += static_cast<size_t>(fastest->span);
    queued = runs_->backlogs[position][backlog_behind];
  }
  return modes;
}

// The budgets for which plans are walked: closer together at the smallest, where a byte saves the most seconds.
Bytes ChainSolver::walked_budget(size_t walk) const {
  const double share = static_cast<double>(walk) / static_cast<double>(kWalks - 1);
  return walk + 1 == kWalks
             ? fastest_
             : smallest_ + Bytes(static_cast<int64_t>(share * share *
                                                      static_cast<double>((fastest_ - smallest_).value)));
}

void ChainSolver::tabulate() {
  grid_ = std::make_unique<const ChainGrid>(*runs_, ChainGrid::Values::kBetween, points());
  smallest_ = std::max(grid_->least(0, 0), chain_->floor);
  fastest_ = std::max(smallest_, grid_->most(0, 0));
  walked_.assign(kWalks, false);
  walk_and_keep(smallest_);
}

void ChainSolver::walk_and_keep(Bytes budget) const {
  const std::optional<std::vector<int32_t>> modes = walk(budget);
  require(modes.has_value(), "chain: no way on within {} bytes", budget.value);
  ChainPlan plan = evaluated(*modes);
  require(plan.needed <= budget, "chain: the plan needs {} bytes of {}", plan.needed.value, budget.value);
  keep_plan(plans_, std::move(plan));
}

// Plans of the walks that are the last ones within `budget`, and of one with all of it.
void ChainSolver::walk_near(Bytes budget) const {
  if (exact_ || budget < smallest_) return;
  budget = std::min(budget, fastest_);
  size_t end = 0;
  while (end < kWalks && walked_budget(end) <= budget) ++end;
  for (size_t at = end - std::min(end, kWalksNear); at < end; ++at)
    if (!walked_[at]) {
      walked_[at] = true;
      walk_and_keep(walked_budget(at));
    }
  if (end == 0 || walked_budget(end - 1) < budget) walk_and_keep(budget);
}

std::optional<ChainPlan> ChainSolver::best(Bytes budget) const {
  walk_near(budget);
  const ChainPlan* plan = fastest_within(plans_, budget);
  return plan == nullptr ? std::nullopt : std::optional(*plan);
}

std::vector<ChainSolver::Step> ChainSolver::frontier() const {
  for (size_t at = 0; at < walked_.size(); at += kWalksNear) walk_near(walked_budget(at));
  walk_near(fastest_);
  std::vector<Step> steps;
  for (const ChainPlan& plan : plans_) steps.push_back({plan.needed, plan.seconds});
  return steps;
}

double ChainSolver::bound_seconds(Bytes budget) const {
  const std::optional<ChainPlan> plan = best(budget);
  require(plan.has_value(), "chain: a bound for {} bytes, where no plan fits", budget.value);
  if (exact_) return plan->seconds;
  // Sums of the same numbers in another order: a bound is never above the plan by rounding.
  const double bound = std::min(plan->seconds, dual_bound(*runs_, budget, plan->seconds));
  if (plan->seconds - bound <= kEnoughGap * chain_->step_seconds) return bound;
  if (!bounds_) bounds_ = std::make_unique<const ChainGrid>(*runs_, ChainGrid::Values::kBelow, points());
  return std::min(plan->seconds, std::max(bound, bounds_->seconds(0, 0, budget)));
}

}  // namespace snug::planner
