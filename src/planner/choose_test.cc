#include "planner/choose.h"

#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <limits>
#include <random>

#include "passes/update_in_backward.h"
#include "planner/example_test.h"
#include "planner/subsets.h"

namespace snug::planner {
namespace {

const DescribedTarget kTarget;

struct Case {
  std::string name;
  Model model;
  int64_t batch, length;
  bool accumulates = false;
};

std::vector<Case> cases() {
  const auto frozen = [](Model model, std::initializer_list<const char*> parts) {
    for (ParameterSpec& parameter : model.parameters)
      for (const char* part : parts)
        if (parameter.name.find(part) != std::string::npos) parameter.trainable = false;
    return model;
  };
  return {
      {"gpt2", gpt2_example(4, 64), 4, 64},
      {"gpt2, dropout, accumulation", gpt2_example(4, 64, 0.1), 4, 64, true},
      {"gpt2, head of its own", gpt2_example(3, 64, 0, false), 4, 64},
      {"gpt2, one block", gpt2_example(1, 64), 4, 64},
      {"gpt2, frozen embeddings and first block", frozen(gpt2_example(4, 64), {"wte", "wpe", ".h.0."}), 4,
       64},
      {"gpt2, one frozen product", frozen(gpt2_example(4, 64), {"h.2.mlp.c_fc"}), 4, 64},
      {"gpt2, biases only", frozen(gpt2_example(3, 64), {"weight"}), 4, 64},
      {"llama", llama_example(5, 64), 4, 64},
      {"llama, head of its own, accumulation", llama_example(5, 64, false), 4, 64, true},
      {"llama, one block", llama_example(1, 64), 4, 64},
  };
}

// Of a planner with a thousand bytes outside its graph: the choice fits, costs what it says, and is near its bound.
void expect_sound(Planner& planner, const Choice& choice, Bytes budget, const Graph& graph,
                  bool accumulates) {
  const double bound = planner.bound_seconds(budget);
  EXPECT_LE(bound, choice.seconds);
  EXPECT_LE(choice.gap(bound), 0.02);
  // Judged by what the planner had no part in.
  const Bytes truth = true_peak(graph, choice.retentions, finish(accumulates)) + Bytes(1000);
  EXPECT_LE(truth, choice.peak);
  EXPECT_GE(truth + Bytes(4096), choice.peak);
  EXPECT_LE(choice.peak, budget);
  EXPECT_NEAR(planner.outcome(choice.retentions).seconds, choice.seconds, 1e-9);
}

TEST(Planner, FitsIsMonotoneAndNeverSlowerThanANamedPolicy) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    const Graph graph = micro_step(each.model, each.batch, each.length);
    Planner planner(graph, kTarget, finish(each.accumulates), Bytes(1000));
    const Bytes smallest = planner.smallest_budget();
    const Bytes largest = planner.frontier().back().budget;
    EXPECT_FALSE(planner.choose(smallest - Bytes(1)).has_value());

    double last = std::numeric_limits<double>::infinity();
    for (int step = 0; step <= 10; ++step) {
      const Bytes budget = smallest + Bytes((largest - smallest).value * step / 10);
      const std::optional<Choice> choice = planner.choose(budget);
      ASSERT_TRUE(choice.has_value()) << step;
      EXPECT_LE(choice->seconds, last);
      last = choice->seconds;
      expect_sound(planner, *choice, budget, graph, each.accumulates);
    }
    EXPECT_EQ(last, 0);

    for (const char* policy :
         {"none", "block", "uniform:2", "uniform:3", "selective:attention", "selective:norm",
          "selective:activation", "selective:mlp", "selective:norm,activation"}) {
      const Planner::Outcome outcome = planner.outcome(retentions(graph, parse_recompute_policy(policy)));
      if (outcome.peak < smallest) continue;
      const std::optional<Choice> choice = planner.choose(outcome.peak);
      ASSERT_TRUE(choice.has_value()) << policy;
      EXPECT_LE(choice->seconds, outcome.seconds + 1e-12) << policy;
    }
  }
}

size_t compressed_values(const Retentions& retentions) {
  return static_cast<size_t>(std::count(retentions.begin(), retentions.end(), Retention::kCompress));
}

// Permission adds modes and takes none away.
TEST(Planner, CompressesWhereThatIsFasterAndNeverToItsLoss) {
  for (const Case& each : cases()) {
    const bool taken = each.name == "gpt2, dropout, accumulation" || each.name == "gpt2, biases only" ||
                       each.name == "llama" || each.name == "llama, one block";
    if (!taken) continue;
    SCOPED_TRACE(each.name);
    const Graph graph = micro_step(each.model, each.batch, each.length);
    Planner exact(graph, kTarget, finish(each.accumulates), Bytes(1000));
    Planner planner(graph, kTarget, finish(each.accumulates), Bytes(1000), true);
    const Bytes smallest = planner.smallest_budget(), largest = planner.frontier().back().budget;
    EXPECT_LE(smallest, exact.smallest_budget());
    EXPECT_FALSE(planner.choose(smallest - Bytes(1)).has_value());
    double last = std::numeric_limits<double>::infinity();
    size_t faster = 0, compressed = 0;
    for (int step = 0; step <= 10; ++step) {
      const Bytes budget = smallest + Bytes((largest - smallest).value * step / 10);
      const std::optional<Choice> choice = planner.choose(budget);
      ASSERT_TRUE(choice.has_value()) << step;
      EXPECT_LE(choice->seconds, last);
      last = choice->seconds;
      expect_sound(planner, *choice, budget, graph, each.accumulates);
      compressed += compressed_values(choice->retentions);
      const std::optional<Choice> other = exact.choose(budget);
      if (!other) continue;
      EXPECT_EQ(compressed_values(other->retentions), 0u);
      EXPECT_LE(choice->seconds, other->seconds + 1e-12) << step;
      faster += choice->seconds < other->seconds - 1e-9 ? 1 : 0;
    }
    EXPECT_EQ(last, 0);
    EXPECT_GT(compressed, 0u);
    EXPECT_GT(faster, 0u);
    for (const char* policy : {"block", "uniform:2", "selective:norm,activation", "compress", "compress:mlp",
                               "compress:attention,norm"}) {
      const Planner::Outcome outcome = planner.outcome(retentions(graph, parse_recompute_policy(policy)));
      if (outcome.peak < smallest) continue;
      const std::optional<Choice> choice = planner.choose(outcome.peak);
      ASSERT_TRUE(choice.has_value()) << policy;
      EXPECT_LE(choice->seconds, outcome.seconds + 1e-12) << policy;
    }
  }
}

// Each block's forward and backward and the head, in plans of all sorts, against a sweep of the whole graph.
class PredictedMoments : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Compresses, PredictedMoments, testing::Bool());

TEST_P(PredictedMoments, AreRightToTheByte) {
  const Graph graph = micro_step(gpt2_example(9, 64, 0.1), 4, 64);
  const Anatomy found = anatomy(graph);
  const Finish passes = finish();
  PriceBook book(kTarget);
  OpPrices& prices = book.ops();
  const PricedChain priced =
      priced_chain(graph, found, passes, book, {.outside = {}, .compresses = GetParam()});
  const Chain& chain = priced.chain;
  const ChainSolver solver(chain);
  const std::vector<ChainSolver::Step> steps = solver.frontier();
  std::vector<ChainPlan> plans;
  for (const NamedPlan& named : priced.named) plans.push_back(evaluate(chain, named.modes));
  ASSERT_GE(plans.size(), 4u);  // none, block, uniform:2, uniform:3
  for (size_t step = 0; step < steps.size(); step += 1 + steps.size() / 12)
    plans.push_back(solver.best(steps[step].budget).value());
  for (size_t step = 0; step < plans.size(); ++step) {
    const ChainPlan& plan = plans[step];
    Graph made = graph;
    recompute(made, retentions_of(graph, found, priced, plan.modes));
    passes(made);
    const Sweep swept = sweep(made, prices);
    const std::vector<int32_t> serving = serving_blocks(made);
    std::vector<Moments> truth(chain.blocks.size());
    for (size_t op = 0; op < made.ops.size(); ++op) {
      if (serving[op] < 0) continue;
      Moments& at = truth[static_cast<size_t>(serving[op])];
      Bytes& most = made.ops[op].part == Part::kForward ? at.forward : at.backward;
      most = std::max(most, swept.held[op] + swept.always);
    }
    Bytes saved{0};
    size_t block = 0;
    for (int32_t index : plan.modes) {
      const Mode& mode = chain.modes[static_cast<size_t>(index)];
      for (const Moments& moments : mode.moments) {
        const Moments& fixed = chain.blocks[block].fixed;
        EXPECT_EQ(saved + fixed.forward + moments.forward, truth[block].forward) << step << " " << block;
        EXPECT_EQ(saved + fixed.backward + moments.backward, truth[block].backward) << step << " " << block;
        ++block;
      }
      saved += mode.saved;
    }
  }
}

// All subsets of the one block's values, each through the real passes.
TEST(Planner, EqualsExhaustiveSearchOnOneBlock) {
  const Graph graph = micro_step(gpt2_example(1, 64), 4, 64);
  Planner planner(graph, kTarget, finish(), Bytes(0));
  const Anatomy found = anatomy(graph);
  OpPrices prices(kTarget);
  const Savable savable = savable_values(slice(graph, found, 0, 1, false), found.blocks[0], prices);
  ASSERT_EQ(savable.items.size(), 10u);
  std::vector<Planner::Outcome> outcomes;
  for (bool drops_source : {false, true})
    for (uint32_t kept = 0; kept < 1u << savable.items.size(); ++kept) {
      Retentions chosen(graph.tensors.size(), Retention::kKeep);
      for (size_t value = 0; value < found.blocks[0].values.size(); ++value)
        if (!found.blocks[0].leaving[value])
          chosen[found.blocks[0].values[value].index()] = Retention::kRecompute;
      for (size_t item = 0; item < savable.items.size(); ++item)
        if ((kept >> item) & 1)
          for (size_t value : savable.items[item].values)
            chosen[found.blocks[0].values[value].index()] = Retention::kKeep;
      if (drops_source)
        for (TensorId value : found.source_values) chosen[value.index()] = Retention::kRecompute;
      outcomes.push_back(planner.outcome(chosen));
    }
  Bytes least = outcomes.front().peak;
  for (const Planner::Outcome& each : outcomes) least = std::min(least, each.peak);
  EXPECT_EQ(planner.smallest_budget(), least);
  for (size_t which = 0; which < outcomes.size(); which += 7) {
    double fewest = std::numeric_limits<double>::infinity();
    for (const Planner::Outcome& each : outcomes)
      if (each.peak <= outcomes[which].peak) fewest = std::min(fewest, each.seconds);
    EXPECT_NEAR(planner.choose(outcomes[which].peak)->seconds, fewest, 1e-9) << which;
  }
}

TEST(Planner, RandomRetentionsAreNotBetter) {
  const Graph graph = micro_step(llama_example(4, 64), 4, 64);
  Planner planner(graph, kTarget, finish(), Bytes(0));
  const Anatomy found = anatomy(graph);
  std::mt19937 random(3);
  for (int trial = 0; trial < 150; ++trial) {
    Retentions chosen(graph.tensors.size(), Retention::kKeep);
    for (const Anatomy::Block& block : found.blocks)
      for (size_t value = 0; value < block.values.size(); ++value)
        if (!block.leaving[value] && random() % 100 < 20u + static_cast<unsigned>(trial) / 2)
          chosen[block.values[value].index()] = Retention::kRecompute;
    const Planner::Outcome outcome = planner.outcome(chosen);
    const std::optional<Choice> choice = planner.choose(outcome.peak);
    ASSERT_TRUE(choice.has_value());
    EXPECT_LE(choice->seconds, outcome.seconds + 1e-9) << trial;
  }
}

// The best of each subset's compressions are those of its lower hull, so a plan of one block may miss a better one between two of
// its points; over several blocks that is a small part of the whole.
TEST(Planner, RandomCompressionsAreHardlyBetter) {
  const Graph graph = micro_step(llama_example(4, 64), 4, 64);
  Planner planner(graph, kTarget, finish(), Bytes(0), true);
  const Anatomy found = anatomy(graph);
  std::mt19937 random(3);
  for (int trial = 0; trial < 150; ++trial) {
    Retentions chosen(graph.tensors.size(), Retention::kKeep);
    const auto percent = [&](int of) { return random() % 100 < static_cast<unsigned>(of); };
    for (const Anatomy::Block& block : found.blocks) {
      size_t value = 0;
      for (size_t op : block.forward)
        for (size_t output = 0; output < graph.ops[op].outputs.size(); ++output, ++value) {
          if (block.leaving[value]) continue;
          if (compressible(graph, graph.ops[op], output) && percent(trial))
            chosen[block.values[value].index()] = Retention::kCompress;
          else if (percent(20 + trial / 2))
            chosen[block.values[value].index()] = Retention::kRecompute;
        }
    }
    const Planner::Outcome outcome = planner.outcome(chosen);
    const std::optional<Choice> choice = planner.choose(outcome.peak);
    ASSERT_TRUE(choice.has_value());
    EXPECT_LE(choice->seconds, outcome.seconds + 1e-4 * choice->step_seconds) << trial;
  }
}

TEST(Planner, WithoutBackwardThereIsOnePlan) {
  const Graph graph = build_forward(gpt2_example(2, 64), Purpose::kEvaluate, 2, 32);
  Planner planner(graph, kTarget, finish(), Bytes(0));
  EXPECT_FALSE(planner.choose(planner.smallest_budget() - Bytes(1)).has_value());
  const Choice choice = planner.choose(planner.smallest_budget()).value();
  EXPECT_EQ(choice.seconds, 0);
  EXPECT_EQ(choice.gap(planner.bound_seconds(planner.smallest_budget())), 0);
  EXPECT_EQ(choice.peak, planner.smallest_budget());
}

TEST(Orders, LargestFirstAndCheapestFirst) {
  const Graph graph = micro_step(llama_example(3, 64), 4, 64);
  Planner planner(graph, kTarget, finish(), Bytes(0));
  const std::vector<Droppable> by_size = planner.order_by_size(), by_cost = planner.order_by_cost();
  ASSERT_EQ(by_size.size(), by_cost.size());
  for (size_t index = 1; index < by_size.size(); ++index) {
    EXPECT_GE(by_size[index - 1].bytes, by_size[index].bytes);
    EXPECT_LE(by_cost[index - 1].seconds / static_cast<double>(by_cost[index - 1].bytes.value),
              by_cost[index].seconds / static_cast<double>(by_cost[index].bytes.value) * (1 + 1e-12));
  }
  EXPECT_EQ(planner.outcome(planner.retentions_of_prefix(by_size, 0)).seconds, 0);
  // All of them: what policy block drops.
  const Planner::Outcome all = planner.outcome(planner.retentions_of_prefix(by_size, by_size.size()));
  const Planner::Outcome block = planner.outcome(retentions(graph, parse_recompute_policy("block")));
  EXPECT_EQ(all.peak, block.peak);
  EXPECT_NEAR(all.seconds, block.seconds, 1e-12);
  // The optimum is never slower than either order at the bytes that its prefixes need.
  for (const std::vector<Droppable>* order : {&by_size, &by_cost})
    for (size_t count = 0; count <= order->size(); count += 3) {
      const Planner::Outcome outcome = planner.outcome(planner.retentions_of_prefix(*order, count));
      EXPECT_LE(planner.choose(outcome.peak)->seconds, outcome.seconds + 1e-9) << count;
    }
}

// With clipping the backward runs twice, and nothing that is saved dies before the second time.
TEST(Planner, UpdateInsideTheBackward) {
  const Graph graph = micro_step(gpt2_example(6, 64), 4, 64);
  for (const double max_grad_norm : {0.0, 1.0}) {
    SCOPED_TRACE(max_grad_norm);
    OptimizerOptions optimizer;
    optimizer.max_grad_norm = max_grad_norm;
    const Finish passes = [&](Graph& made) {
      fuse(made);
      const bool is_slice =
          std::any_of(made.ops.begin(), made.ops.end(), [](const Op& op) { return op.name == kEnter; });
      if (!is_slice) update_in_backward(made, optimizer, MasterWeights{});
      in_place(made);
    };
    Planner planner(graph, kTarget, passes, Bytes(0));
    const Bytes smallest = planner.smallest_budget(), largest = planner.frontier().back().budget;
    double last = std::numeric_limits<double>::infinity();
    for (int step = 0; step <= 8; ++step) {
      const Bytes budget = smallest + Bytes((largest - smallest).value * step / 8);
      const Choice choice = planner.choose(budget).value();
      EXPECT_LE(choice.seconds, last);
      last = choice.seconds;
      EXPECT_LE(choice.gap(planner.bound_seconds(budget)), 0.03);
      EXPECT_LE(choice.peak, budget);
      EXPECT_NEAR(planner.outcome(choice.retentions).seconds, choice.seconds, 1e-9);
    }
    EXPECT_EQ(last, 0);
    for (const char* policy : {"none", "block", "uniform:2", "selective:mlp,norm"}) {
      const Planner::Outcome outcome = planner.outcome(retentions(graph, parse_recompute_policy(policy)));
      if (outcome.peak < smallest) continue;
      EXPECT_LE(planner.choose(outcome.peak + Bytes(4096))->seconds,
                outcome.seconds + 0.01 * planner.choose(largest)->step_seconds)
          << policy;
    }
  }
}

void expect_same(Planner& found, Planner& expected) {
  ASSERT_EQ(found.smallest_budget(), expected.smallest_budget());
  const Bytes smallest = expected.smallest_budget(), largest = expected.frontier().back().budget;
  for (int step = 0; step <= 4; ++step) {
    const Bytes budget = smallest + Bytes((largest - smallest).value * step / 4);
    const Choice a = found.choose(budget).value(), b = expected.choose(budget).value();
    EXPECT_EQ(a.retentions, b.retentions) << step;
    EXPECT_EQ(a.seconds, b.seconds) << step;
    EXPECT_EQ(found.bound_seconds(budget), expected.bound_seconds(budget)) << step;
  }
}

// What lies outside the blocks does not change what they cost; what finishes them does, and has another word.
TEST(Planner, SharesPricesOfBlocksByABook) {
  const auto with_head = [](int64_t rows) {
    Graph graph = build_forward(gpt2_example(5, 64, 0.1), Purpose::kTrain, 4, 64, rows);
    differentiate(graph);
    return graph;
  };
  PriceBook book(kTarget);
  Planner first(with_head(256), book, "", finish(), Bytes(1000));
  const size_t priced = book.priced();
  EXPECT_GT(priced, 50u);
  Planner other_head(with_head(16), book, "", finish(), Bytes(5000));
  EXPECT_EQ(book.priced(), priced);
  Planner alone(with_head(16), kTarget, finish(), Bytes(5000));
  expect_same(other_head, alone);
  Planner accumulating(with_head(256), book, "accumulates", finish(true), Bytes(1000));
  EXPECT_GT(book.priced(), priced + 50);
  Planner accumulating_alone(with_head(256), kTarget, finish(true), Bytes(1000));
  expect_same(accumulating, accumulating_alone);
}

class LongChains : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Compresses, LongChains, testing::Bool());

TEST_P(LongChains, ComeNearTheirBound) {
  for (const int64_t blocks : {12, 30, 100}) {
    const Graph graph = micro_step(llama_example(blocks, 256), 4, 512);
    const auto start = std::chrono::steady_clock::now();
    Planner planner(graph, kTarget, finish(true), Bytes(0), GetParam());
    const double made = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const Bytes smallest = planner.smallest_budget(), largest = planner.frontier().back().budget;
    std::cout << blocks << " blocks, planned in " << made << " s:";
    for (const double share : {0.60, 0.40, 0.30, 0.20, 0.15, 0.12}) {
      const Bytes budget =
          smallest + Bytes(static_cast<int64_t>(share * static_cast<double>((largest - smallest).value)));
      const Choice choice = planner.choose(budget).value();
      EXPECT_EQ(compressed_values(choice.retentions) > 0, GetParam());
      const double gap = choice.gap(planner.bound_seconds(budget));
      EXPECT_LE(gap, blocks == 100 && share >= 0.15 ? 0.01 : 0.02);
      std::cout << "  " << share << ": +" << 100 * choice.seconds / choice.step_seconds << " %, gap "
                << 100 * gap << " %";
    }
    std::cout << "\n";
  }
}

}  // namespace
}  // namespace snug::planner
