// compile/search_memory.h — what searches for plans of one model on one target work out once
//
// Why:    the variants of a run (outer_search.h), its other micro-batches and every change that is offered are searched one after another, and
//         ask for much the same: blocks priced (planner/price_book.h), and runs compiled with everything kept.
// Method: compiled runs go by all options that a plan which keeps everything follows from; planners by the same and by whether values may be
//         compressed. Of planners, which hold a priced chain and tables, the ones that were used last stay.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "compile/pipeline.h"
#include "planner/choose.h"
#include "planner/price_book.h"

namespace snug {

class SearchMemory {
 public:
  // `model` and `target` must outlive it.
  SearchMemory(const Model& model, const Target& target) : model_(model), target_(target), prices_(target) {}

  const Model& model() const { return model_; }
  const Target& target() const { return target_; }
  planner::PriceBook& prices() { return prices_; }

  // The run with everything kept, without a layout: its arena is the lower bound. What `options` say of retentions and of compression is not
  // looked at. The report stays where it is. Throws as compile() does.
  const CompileReport& keep_all(const CompileOptions& options);

  // The planner of that run; `make` makes it where none is remembered.
  std::shared_ptr<planner::Planner> planner(const CompileOptions& options,
                                            const std::function<std::shared_ptr<planner::Planner>()>& make);

  // Of the same runs where work stands in place of seconds (work_target.h).
  const std::shared_ptr<SearchMemory>& by_work();

  // Runs that were compiled, not looked up: for tests.
  size_t compiled() const { return kept_.size(); }

 private:
  const Model& model_;
  std::unique_ptr<const Target> own_target_;  // by work
  const Target& target_;
  planner::PriceBook prices_;
  std::deque<std::pair<CompileOptions, CompileReport>> kept_;
  std::deque<std::pair<CompileOptions, std::shared_ptr<planner::Planner>>> planners_;  // used last first
  std::shared_ptr<SearchMemory> by_work_;

  SearchMemory(const Model& model, std::unique_ptr<const Target> own_target)
      : model_(model), own_target_(std::move(own_target)), target_(*own_target_), prices_(target_) {}
};

}  // namespace snug
