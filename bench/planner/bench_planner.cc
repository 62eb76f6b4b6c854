// snug_bench_planner — what the planner makes of shares of the keep-all activations: slowdown, certified gap, seconds of planning
//
//   snug_bench_planner [NAME …]      without names all of kSubjects
//
// No weights, no arena: plans alone. bench/planner/README.md says how to read the table.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/backend.h"
#include "backends/null/null_target.h"
#include "base/errors.h"
#include "bench_main.h"
#include "compile/budget.h"
#include "formats/llama_config.h"
#include "models/llama.h"
#include "step_options.h"
#include "train/prepare.h"

namespace snug::bench {
namespace {

// NVIDIA H200 SXM data sheet: 989 TFLOP/s of dense bf16 products, 4.8 TB/s.
NullProfile h200() {
  return {.flops_per_second = 989e12,
          .bytes_per_second = 4.8e12,
          .alignment = Bytes(256),
          .staging = Bytes(4 << 20),
          .scratch = Bytes(0)};
}

Model shape_of_bench_step(const char* model, int64_t blocks) {
  StepOptions options;
  options.model = model;
  options.blocks = blocks;
  return bench_model(options);
}

// Meta's Llama 3 8B and 70B: config.json of the published models.
Model llama_3(int64_t hidden, int64_t intermediate, int64_t layers, int64_t heads) {
  LlamaConfig config;
  config.vocab_size = 128256;
  config.positions = 8192;
  config.hidden = hidden;
  config.intermediate = intermediate;
  config.layers = layers;
  config.heads = heads;
  config.kv_heads = 8;
  config.head_dim = hidden / heads;
  config.rope.theta = 500000;
  return llama_model(config);
}

struct Subject {
  std::string_view name;
  // On a described H200 with the update in the backward and no clipping, so that activations decide; or on this machine, by its roofline.
  bool on_h200;
  int64_t batch, length;
  Precision precision;
  std::function<Model()> model;
};

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> kSubjects = {
      {"gpt2", false, 4, 1024, Precision::kF32, [] { return shape_of_bench_step("gpt2", 0); }},
      {"gpt2_bf16", false, 4, 1024, Precision::kBF16, [] { return shape_of_bench_step("gpt2", 0); }},
      {"smollm2", false, 4, 1024, Precision::kF32, [] { return shape_of_bench_step("smollm2", 0); }},
      {"gpt2_100_blocks", false, 4, 1024, Precision::kF32, [] { return shape_of_bench_step("gpt2", 100); }},
      {"llama_8b", true, 1, 8192, Precision::kBF16, [] { return llama_3(4096, 14336, 32, 32); }},
      {"llama_70b", true, 1, 8192, Precision::kBF16, [] { return llama_3(8192, 28672, 80, 64); }},
  };
  return kSubjects;
}

double gib(Bytes bytes) { return static_cast<double>(bytes.value) / static_cast<double>(kGiB.value); }

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void bench(const Subject& subject, const Target& this_machine) {
  const Model model = subject.model();
  const NullTarget described(h200());
  const Target& target = subject.on_h200 ? static_cast<const Target&>(described) : this_machine;
  CompileOptions options;
  options.batch = subject.batch;
  options.length = subject.length;
  options.precision = subject.precision;
  if (subject.on_h200) {
    options.update_placement = UpdatePlacement::kInBackward;
    options.optimizer.max_grad_norm = 0;
  }

  const Stopwatch whole;
  BudgetSearch search(model, options, target);
  const CompileReport& all = search.keep_all();
  const double keep_all_seconds = whole.seconds();
  const Stopwatch pricing;
  const Bytes smallest = search.smallest().compiled.report.arena;
  const BudgetSearch::Outcome block = search.outcome({.kind = RecomputePolicy::Kind::kBlock});
  const double pricing_seconds = pricing.seconds();
  const Bytes activations = all.peak.categories[static_cast<size_t>(Category::kActivations)];
  fmt::print(
      "\n{} ({} blocks, {:.3g} parameters, {} × {}, {}, {})\n"
      "keep-all {:.2f} GiB of which activations {:.2f}; smallest {:.2f}; policy block {:.2f} at +{:.2f} %\n"
      "keep-all plan {:.3f} s; pricing the blocks, the smallest plan and its layout {:.3f} s\n"
      "activations   budget GiB   slowdown     gap    arena/budget   seconds\n",
      subject.name, model.blocks, static_cast<double>(all.parameters), subject.batch, subject.length,
      subject.precision == Precision::kBF16 ? "bf16" : "fp32",
      subject.on_h200 ? "described H200" : "this machine", gib(all.arena), gib(activations), gib(smallest),
      gib(block.arena), 100 * (block.update_seconds / all.update_seconds - 1), keep_all_seconds,
      pricing_seconds);
  for (const int64_t percent : {60, 40, 30, 20, 15, 12}) {
    const Bytes budget = all.arena - activations + Bytes(activations.value / 100 * percent);
    if (budget < smallest) {
      fmt::print("{:9} %   {:10.2f}   does not fit\n", percent, gib(budget));
      continue;
    }
    const Stopwatch one;
    const BudgetPlan plan = search.within(budget, {.kind = RecomputePolicy::Kind::kOptimal});
    require(plan.fits, "{} at {} %: no plan", subject.name, percent);
    fmt::print("{:9} %   {:10.2f}   {:6.2f} %   {:5.2f} %   {:12.3f}   {:7.3f}\n", percent, gib(budget),
               100 * plan.slowdown, 100 * plan.gap.value_or(0),
               static_cast<double>(plan.compiled.report.arena.value) / static_cast<double>(budget.value),
               one.seconds());
    std::fflush(stdout);
  }
}

int run(int count, char** arguments) {
  std::vector<const Subject*> chosen;
  for (int i = 1; i < count; ++i) {
    const auto found = std::find_if(subjects().begin(), subjects().end(),
                                    [&](const Subject& each) { return each.name == arguments[i]; });
    if (found == subjects().end()) {
      std::string names;
      for (const Subject& each : subjects()) names += fmt::format(" {}", each.name);
      throw_user(ExitCode::kUsage, "found {}; expected some of{}", arguments[i], names);
    }
    chosen.push_back(&*found);
  }
  if (count == 1)
    for (const Subject& each : subjects()) chosen.push_back(&each);
  const cpu::Dispatch dispatch = cpu::choose_dispatch(static_cast<int>(default_threads()));
  const cpu::CpuTarget this_machine(dispatch, cpu::warm_up(dispatch));
  for (const Subject* each : chosen) bench(*each, this_machine);
  return 0;
}

}  // namespace
}  // namespace snug::bench

int main(int count, char** arguments) {
  return snug::bench::run_bench("snug_bench_planner", &snug::bench::run, count, arguments);
}
