#include "planner/choose.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"

namespace snug::planner {
namespace {

constexpr int kTries = 4;

// Per block and value: whether an operation of the backward reads it.
std::vector<std::vector<bool>> read_values(const Graph& graph, const Anatomy& anatomy) {
  std::vector<bool> read(graph.tensors.size(), false);
  for (const Op& op : graph.ops)
    if (op.part != Part::kForward)
      for (TensorId input : op.inputs) read[input.index()] = true;
  std::vector<std::vector<bool>> of_blocks;
  for (const Anatomy::Block& block : anatomy.blocks) {
    of_blocks.emplace_back();
    for (TensorId value : block.values) of_blocks.back().push_back(read[value.index()]);
  }
  return of_blocks;
}

}  // namespace

Planner::Planner(Graph graph, const Target& target, Finish finish, Bytes outside, bool compresses)
    : Planner(std::move(graph), std::make_unique<PriceBook>(target), std::move(finish), outside, compresses) {
}

Planner::Planner(Graph graph, std::unique_ptr<PriceBook> own, Finish finish, Bytes outside, bool compresses)
    : Planner(std::move(graph), *own, "", std::move(finish), outside, compresses) {
  own_book_ = std::move(own);
}

Planner::Planner(Graph graph, PriceBook& book, const std::string& passes, Finish finish, Bytes outside,
                 bool compresses)
    : graph_(std::move(graph)),
      finish_(std::move(finish)),
      outside_(outside),
      prices_(&book.ops()),
      anatomy_(anatomy(graph_)),
      read_(read_values(graph_, anatomy_)) {
  const bool differentiated = std::any_of(graph_.ops.begin(), graph_.ops.end(),
                                          [](const Op& op) { return op.part == Part::kBackward; });
  if (!differentiated || anatomy_.blocks.empty()) {
    smallest_ = {.peak = {}, .retentions = {Retentions(graph_.tensors.size(), Retention::kKeep)}};
    const Outcome kept = outcome(smallest_->retentions.front());
    keep_seconds_ = kept.seconds;
    smallest_->peak = kept.peak;
    return;
  }
  ChainOptions options;
  options.outside = outside;
  options.passes = passes;
  options.compresses = compresses;
  priced_ = priced_chain(graph_, anatomy_, finish_, book, options);
  keep_seconds_ = priced_->chain.step_seconds;
  std::vector<std::vector<int32_t>> known;
  for (const NamedPlan& plan : priced_->named) known.push_back(plan.modes);
  solver_ = book.solver(priced_->chain, known);
}

const Planner::Smallest& Planner::smallest() {
  if (smallest_) return *smallest_;
  Smallest found;
  // The chain's smallest plan may hold a little more than the chain says.
  found.peak = solver_->solver->smallest_budget() + solver_->shift;
  for (;;) {
    if (std::optional<Choice> choice = fitting(found.peak)) {
      found.retentions.push_back(std::move(choice->retentions));
      break;
    }
    const ChainPlan plan = best(found.peak).value();
    found.peak =
        std::max(found.peak + Bytes(1), outcome(retentions_of(graph_, anatomy_, *priced_, plan.modes)).peak);
  }
  const bool compresses = std::any_of(priced_->treatments.begin(), priced_->treatments.end(),
                                      [](const Treatment& treatment) { return treatment.compresses(); });
  if (compresses) found.retentions.push_back(smallest_without_compression());
  return smallest_.emplace(std::move(found));
}

Retentions Planner::smallest_without_compression() {
  Chain exact = priced_->chain;
  for (std::vector<int32_t>& list : exact.lists)
    std::erase_if(list,
                  [&](int32_t mode) { return priced_->treatments[static_cast<size_t>(mode)].compresses(); });
  const PlanSolver solver(std::move(exact));
  return retentions_of(graph_, anatomy_, *priced_, solver.best(solver.smallest_budget())->modes);
}

std::optional<ChainPlan> Planner::best(Bytes budget) const {
  std::optional<ChainPlan> plan = solver_->solver->best(budget - solver_->shift);
  if (plan) plan->needed += solver_->shift;
  return plan;
}

ChainPlan Planner::estimate(Bytes budget) const {
  if (!solver_) return {.modes = {}, .seconds = 0, .needed = smallest_->peak};
  return best(std::max(budget, solver_->solver->smallest_budget() + solver_->shift)).value();
}

Planner::Outcome Planner::outcome(const Retentions& retentions) {
  Graph graph = graph_;
  recompute(graph, retentions);
  finish_(graph);
  const Sweep swept = sweep(graph, *prices_);
  Bytes most{0};
  for (Bytes held : swept.held) most = std::max(most, held);
  return {most + swept.always + outside_, swept.all_seconds - keep_seconds_};
}

Choice Planner::keep_all() {
  Choice choice;
  choice.retentions.assign(graph_.tensors.size(), Retention::kKeep);
  choice.peak = outcome(choice.retentions).peak;
  choice.step_seconds = keep_seconds_;
  return choice;
}

std::optional<Choice> Planner::choose(Bytes budget) {
  if (budget < smallest_budget()) return std::nullopt;
  if (!solver_) return keep_all();
  if (std::optional<Choice> choice = fitting(budget)) return choice;
  return fitting(smallest_budget());
}

double Planner::bound_seconds(Bytes budget) {
  if (!solver_) return 0;
  if (!bound_ || bound_->budget != budget)
    bound_ = {budget, solver_->solver->bound_seconds(budget - solver_->shift)};
  return bound_->seconds;
}

std::optional<Choice> Planner::fitting(Bytes budget) {
  Bytes allowed = budget;
  for (int tries = 0; tries < kTries; ++tries) {
    const std::optional<ChainPlan> plan = best(allowed);
    if (!plan) return std::nullopt;
    Choice choice;
    choice.retentions = retentions_of(graph_, anatomy_, *priced_, plan->modes);
    choice.peak = outcome(choice.retentions).peak;
    if (choice.peak > budget) {
      allowed = std::min(allowed, plan->needed) - (choice.peak - budget);
      continue;
    }
    choice.seconds = plan->seconds;
    choice.step_seconds = keep_seconds_;
    return choice;
  }
  return std::nullopt;
}

std::vector<ChainSolver::Step> Planner::frontier() {
  if (!solver_) return {{smallest_budget(), 0}};
  std::vector<ChainSolver::Step> steps = solver_->solver->frontier();
  for (ChainSolver::Step& step : steps)
    step.budget = std::max(step.budget + solver_->shift, smallest_budget());
  return steps;
}

std::vector<Droppable> Planner::droppable() const {
  std::vector<Droppable> all;
  for (size_t block = 0; block < anatomy_.blocks.size(); ++block) {
    const Anatomy::Block& of = anatomy_.blocks[block];
    std::vector<bool> held(graph_.tensors.size(), true);  // as far as this block's own values are concerned
    for (size_t value = 0; value < of.values.size(); ++value)
      held[of.values[value].index()] = of.leaving[value] || read_[block][value];
    const auto again_seconds = [&](size_t op) {
      double seconds = 0;
      std::vector<size_t> open = {op}, met;
      while (!open.empty()) {
        const size_t next = open.back();
        open.pop_back();
        if (std::find(met.begin(), met.end(), next) != met.end()) continue;
        met.push_back(next);
        seconds += (*prices_)(graph_, graph_.ops[next]).seconds;
        for (TensorId input : graph_.ops[next].inputs)
          if (!held[input.index()]) open.push_back(static_cast<size_t>(anatomy_.producer[input.index()]));
      }
      return seconds;
    };
    size_t value = 0;
    for (size_t op : of.forward) {
      Droppable first, others;
      for (size_t output = 0; output < graph_.ops[op].outputs.size(); ++output, ++value) {
        if (of.leaving[value] || !read_[block][value]) continue;
        const TensorId id = of.values[value];
        Droppable& to = output == 0 ? first : others;
        to.values.push_back(id);
        to.bytes += prices_->round(graph_.tensor(id).shape.bytes(graph_.tensor(id).dtype));
      }
      for (Droppable* each : {&first, &others}) {
        if (each->values.empty()) continue;
        each->seconds = again_seconds(op);
        all.push_back(std::move(*each));
      }
    }
  }
  return all;
}

std::vector<Droppable> Planner::order_by_size() const {
  std::vector<Droppable> order = droppable();
  std::stable_sort(order.begin(), order.end(),
                   [](const Droppable& a, const Droppable& b) { return a.bytes > b.bytes; });
  return order;
}

std::vector<Droppable> Planner::order_by_cost() const {
  std::vector<Droppable> order = droppable();
  std::stable_sort(order.begin(), order.end(), [](const Droppable& a, const Droppable& b) {
    return a.seconds * static_cast<double>(b.bytes.value) < b.seconds * static_cast<double>(a.bytes.value);
  });
  return order;
}

Retentions Planner::retentions_of_prefix(const std::vector<Droppable>& order, size_t count) const {
  require(count <= order.size(), "planner: {} of {} droppable values", count, order.size());
  Retentions retentions(graph_.tensors.size(), Retention::kKeep);
  // Nobody reads these in the backward, so nothing holds them unless a chain begins at them.
  if (count > 0)
    for (size_t block = 0; block < anatomy_.blocks.size(); ++block)
      for (size_t value = 0; value < anatomy_.blocks[block].values.size(); ++value)
        if (!anatomy_.blocks[block].leaving[value] && !read_[block][value])
          retentions[anatomy_.blocks[block].values[value].index()] = Retention::kRecompute;
  for (size_t index = 0; index < count; ++index)
    for (TensorId value : order[index].values) retentions[value.index()] = Retention::kRecompute;
  return retentions;
}

}  // namespace snug::planner
