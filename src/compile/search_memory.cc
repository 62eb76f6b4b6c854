#include "compile/search_memory.h"

#include <algorithm>
#include <tuple>

#include "compile/work_target.h"

namespace snug {
namespace {

// Planners that are remembered: a few MB each for a hundred blocks.
constexpr size_t kMostPlanners = 8;

// All that a plan which keeps everything follows from. A field that is added to the options does not compile until it is named here.
auto followed_from(const CompileOptions& options) {
  const auto& [batch, length, eval_batch, accumulation, head_chunk, mlp_chunk, precision, recompute,
               choose_retentions, compress_activations, optimizer, update_placement, master_weights, train,
               evaluate, save, generate_lengths, plain, disabled_passes, staging, observer] = options;
  const auto& [beta1, beta2, eps, weight_decay, max_grad_norm, moments, bf16_gradients] = optimizer;
  return std::tie(batch, length, eval_batch, accumulation, head_chunk, mlp_chunk, precision, beta1, beta2,
                  eps, weight_decay, max_grad_norm, moments, bf16_gradients, update_placement, master_weights,
                  train, evaluate, save, generate_lengths, plain, disabled_passes, staging, observer);
}

}  // namespace

const CompileReport& SearchMemory::keep_all(const CompileOptions& options) {
  const auto known = std::find_if(kept_.begin(), kept_.end(), [&](const auto& kept) {
    return followed_from(kept.first) == followed_from(options);
  });
  if (known != kept_.end()) return known->second;
  CompileOptions keeping = options;
  keeping.recompute = {};
  keeping.choose_retentions = nullptr;
  CompileReport report = draft(model_, keeping, target_, Checks::kNone).report;
  return kept_.emplace_back(std::move(keeping), std::move(report)).second;
}

std::shared_ptr<planner::Planner> SearchMemory::planner(
    const CompileOptions& options, const std::function<std::shared_ptr<planner::Planner>()>& make) {
  const auto known = std::find_if(planners_.begin(), planners_.end(), [&](const auto& kept) {
    return followed_from(kept.first) == followed_from(options) &&
           kept.first.compress_activations == options.compress_activations;
  });
  if (known != planners_.end()) {
    std::rotate(planners_.begin(), known, std::next(known));
    return planners_.front().second;
  }
  if (planners_.size() == kMostPlanners) planners_.pop_back();
  planners_.emplace_front(options, make());
  return planners_.front().second;
}

const std::shared_ptr<SearchMemory>& SearchMemory::by_work() {
  if (!by_work_) by_work_.reset(new SearchMemory(model_, std::make_unique<WorkTarget>(target_)));
  return by_work_;
}

}  // namespace snug
