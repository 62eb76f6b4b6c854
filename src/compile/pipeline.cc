#include "compile/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "analysis/cost.h"
#include "analysis/liveness.h"
#include "base/errors.h"
#include "compile/lower.h"
#include "layout/check.h"
#include "layout/pack.h"
#include "passes/accumulate.h"
#include "passes/cast.h"
#include "passes/chunk_mlp.h"
#include "passes/decompose.h"
#include "passes/differentiate.h"
#include "passes/fuse.h"
#include "passes/in_place.h"
#include "passes/narrow_gradients.h"
#include "passes/scale_loss.h"
#include "passes/update_in_backward.h"
#include "plan/check.h"

namespace snug {
namespace {

constexpr std::array<std::string_view, 2> kOptionalPasses = {"fuse", "in_place"};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void check_options(const CompileOptions& options) {
  const auto at_least_one = [](std::string_view name, int64_t value) {
    if (value < 1) throw_user(ExitCode::kUsage, "{}: found {}, expected at least 1", name, value);
  };
  if (options.train) {
    at_least_one("batch", options.batch);
    at_least_one("accumulation", options.accumulation);
  }
  if (options.train && options.update_placement == UpdatePlacement::kInBackward && options.accumulation > 1)
    throw_user(ExitCode::kUsage,
               "update_placement in_backward: found {} micro-steps an update, expected 1: the gradients of "
               "several must be kept until the last",
               options.accumulation);
  if (options.train && options.optimizer.bf16_gradients && options.accumulation > 1)
    throw_user(
        ExitCode::kUsage,
        "gradients bf16: found {} micro-steps an update, expected 1: sums over several are kept in fp32",
        options.accumulation);
  if (options.train && options.master_weights == MasterWeights::kNone && options.precision != Precision::kBF16)
    throw_user(ExitCode::kUsage,
               "master_weights none: found precision {}, expected bf16: only a bf16 weight is trained without one",
               precision_word(options.precision));
  if (options.train && options.update_placement == UpdatePlacement::kInBackward &&
      options.precision == Precision::kF16)
    throw_user(ExitCode::kUsage,
               "update_placement in_backward: found precision fp16, expected bf16 or fp32: a gradient that "
               "overflows makes the whole update be skipped, which is known only behind the last");
  if (options.evaluate) at_least_one("eval_batch", options.eval_batch);
  if (options.train || options.evaluate) at_least_one("length", options.length);
  for (int64_t length : options.generate_lengths) at_least_one("generate_lengths", length);
  at_least_one("head_chunk", options.head_chunk);
  if (options.mlp_chunk < 0)
    throw_user(ExitCode::kUsage, "mlp_chunk: found {}, expected 0 or more", options.mlp_chunk);
  at_least_one("staging", options.staging.value);
  if (!options.train && !options.evaluate && options.generate_lengths.empty())
    throw_user(ExitCode::kUsage,
               "nothing to plan for: expected at least one of train, evaluate and generate_lengths");
  if (needs_budget(options.recompute) && !options.choose_retentions)
    throw_user(
        ExitCode::kUsage,
        "recompute: policy {} chooses by a memory budget, which this plan has not; expected none, block, "
        "uniform:K or selective:LIST",
        to_string(options.recompute));
  for (const std::string& pass : options.disabled_passes)
    if (std::find(kOptionalPasses.begin(), kOptionalPasses.end(), pass) == kOptionalPasses.end())
      throw_user(ExitCode::kUsage, "disabled_passes: '{}' is no optional pass; expected one of {}", pass,
                 fmt::join(kOptionalPasses, ", "));
}

// What follows `recompute`, and why each stands where it does.
struct LaterPass {
  std::string_view name;
  std::function<bool(Graph&)> rewrite;
};
std::vector<LaterPass> later_passes(const CompileOptions& options, bool trains) {
  std::vector<LaterPass> passes;
  // Uses are final from here on, so pairs can be judged by them. One of these two is of no effect.
  if (!options.plain) passes.push_back({"fuse", fuse});
  if (options.plain) passes.push_back({"decompose", decompose});
  // After decompose: whichever operations make the gradients now get the accumulators.
  if (trains && options.accumulation > 1) passes.push_back({"accumulate", accumulate});
  // After whatever makes the gradients, before what reads them.
  if (trains && options.optimizer.bf16_gradients) passes.push_back({"narrow_gradients", narrow_gradients});
  // After all that adds uses of weights: each is written right after its last.
  if (trains && options.update_placement == UpdatePlacement::kInBackward)
    passes.push_back({"update_in_backward", [&options](Graph& g) {
                        return update_in_backward(g, options.optimizer, options.master_weights);
                      }});
  // Last: an alias is only right as long as nobody adds a use.
  passes.push_back({"in_place", in_place});
  return passes;
}

DType stored_type(const CompileOptions& options) {
  return options.precision == Precision::kBF16  ? DType::kBF16
         : options.precision == Precision::kF16 ? DType::kF16
                                                : DType::kF32;
}

// The passes over one graph of the model, and why each stands where it does.
Graph model_phase(Runner& runner, const Model& model, Purpose purpose, int64_t batch, int64_t length,
                  const CompileOptions& options) {
  const bool trains = purpose == Purpose::kTrain;
  Graph graph = runner.build([&] { return build_forward(model, purpose, batch, length, options.head_chunk); });

  // Types first: everything that later passes append takes its type from what is there.
  runner.run("cast", graph, [&](Graph& g) { return cast(g, stored_type(options)); });
  // Before the backward: what lies inside an MLP is then nothing that a gradient rule names.
  if (options.mlp_chunk > 0)
    runner.run("chunk_mlp", graph, [&](Graph& g) { return chunk_mlp(g, options.mlp_chunk); });
  // Now the backward exists, and with it the knowledge of what is needed until when.
  if (trains) runner.run("differentiate", graph, differentiate);
  // Behind the gradients that it multiplies; before their operations are copied or decomposed.
  if (trains && options.precision == Precision::kF16) runner.run("scale_loss", graph, scale_loss);
  // Before anything is fused or shares storage: it clones forward operations, which must still be free of
  // both.
  if (trains)
    runner.run("recompute", graph, [&](Graph& g) {
      return recompute(
          g, options.choose_retentions ? options.choose_retentions(g) : retentions(g, options.recompute));
    });
  for (const LaterPass& pass : later_passes(options, trains)) runner.run(pass.name, graph, pass.rewrite);
  return graph;
}

Program build_program(Runner& runner, const Model& model, const CompileOptions& options) {
  // Forward and backward, evaluation and generation come from the model; load, update and save from its
  // parameters alone.
  std::vector<Phase> model_phases;
  if (options.train)
    model_phases.push_back(
        {.graph = model_phase(runner, model, Purpose::kTrain, options.batch, options.length, options),
         .repeats = options.accumulation});
  if (options.evaluate)
    model_phases.push_back(
        {.graph = model_phase(runner, model, Purpose::kEvaluate, options.eval_batch, options.length, options),
         .repeats = 0});
  for (int64_t length : options.generate_lengths)
    model_phases.push_back(
        {.graph = model_phase(runner, model, Purpose::kGenerate, 1, length, options), .repeats = 0});
  const std::vector<PlannedParameter> parameters = planned_parameters(
      model_phases.front().graph, options.train, options.master_weights, options.optimizer);

  // In the order in which they first run, so that the moments of what one phase leaves to another do not
  // wrap around.
  Program program;
  program.phases.push_back({.graph = runner.build([&] { return load_graph(parameters); }), .repeats = 0});
  for (Phase& phase : model_phases) {
    program.phases.push_back(std::move(phase));
    if (program.phases.back().graph.name == "micro_step" &&
        options.update_placement == UpdatePlacement::kAfter)
      program.phases.push_back(
          {.graph = runner.build([&] { return update_graph(parameters, options.optimizer); }), .repeats = 1});
  }
  if (options.save)
    program.phases.push_back({.graph = runner.build([&] { return save_graph(parameters); }), .repeats = 0});
  return program;
}

}  // namespace

std::span<const std::string_view> optional_passes() { return kOptionalPasses; }

Graph differentiated_micro_step(const Model& model, const CompileOptions& options) {
  Graph graph = build_forward(model, Purpose::kTrain, options.batch, options.length, options.head_chunk);
  cast(graph, stored_type(options));
  if (options.mlp_chunk > 0) chunk_mlp(graph, options.mlp_chunk);
  differentiate(graph);
  if (options.precision == Precision::kF16) scale_loss(graph);
  return graph;
}

void finish_micro_step(Graph& graph, const CompileOptions& options,
                       std::span<const std::string_view> without) {
  for (const LaterPass& pass : later_passes(options, true)) {
    const auto named = [&](std::string_view name) { return name == pass.name; };
    if (std::none_of(without.begin(), without.end(), named) &&
        std::none_of(options.disabled_passes.begin(), options.disabled_passes.end(), named))
      pass.rewrite(graph);
  }
}

Draft draft(const Model& model, const CompileOptions& options, const Target& target, Checks checks) {
  const Clock::time_point start = Clock::now();
  check_options(options);
  Draft draft;
  CompileReport& report = draft.report;

  // 1. What is computed, in which order: a graph a phase.
  Runner runner(options.disabled_passes, options.observer, checks);
  draft.program = build_program(runner, model, options);
  check_supported(draft.program, target);

  // 2. How long every byte is held, and the most that any moment holds.
  draft.timeline = liveness(draft.program, target, options.staging);
  report.phases = phase_peaks(draft.program, draft.timeline, target.alignment());
  report.peak = largest_peak(report.phases);
  report.category_peaks = category_peaks(draft.timeline, target.alignment());
  draft.layout = packing_problem(draft.timeline, target.alignment());

  report.passes = runner.timings();
  report.arena = report.lower_bound = report.peak.bytes;
  report.sum_of_sizes = layout::sum_of_sizes(draft.layout);
  report.parameters = parameter_count(model);
  const UpdateFlops flops = update_flops(draft.program);
  report.update_flops = flops.needed;
  report.recompute_flops = flops.repeated;
  for (const Phase& phase : draft.program.phases)
    if (phase.repeats > 0)
      for (const Op& op : phase.graph.ops)
        report.update_seconds += cost(phase.graph, op, target).seconds * static_cast<double>(phase.repeats);
  report.seconds = seconds_since(start);
  return draft;
}

layout::Solution lay_out(Draft& draft, Bytes enough) {
  // 3. Where every byte lies. The packer is not its own judge.
  const Clock::time_point packing = Clock::now();
  CompileReport& report = draft.report;
  layout::Solution solution = layout::pack(draft.layout, {.enough = enough});
  const layout::Check verdict = layout::check(draft.layout, solution);
  require(static_cast<bool>(verdict), "layout of order {}: {}", solution.order, verdict.message);
  require(solution.peak >= report.peak.bytes, "layout: {} bytes are below the {} that are live at one moment",
          solution.peak.value, report.peak.bytes.value);
  report.layout_order = solution.order;
  report.arena = solution.peak;
  report.gap = static_cast<double>(report.arena.value) / static_cast<double>(report.lower_bound.value) - 1;
  report.layout_seconds = seconds_since(packing);
  report.seconds += report.layout_seconds;
  return solution;
}

Compiled finish(Draft draft, const layout::Solution& solution, const Target& target) {
  // 4. The plan, judged by code that shares nothing with what made it.
  const Clock::time_point start = Clock::now();
  Compiled compiled;
  compiled.plan = lower(draft.program, draft.timeline, solution, draft.report.phases, target);
  const std::vector<std::string> violations = check_plan(compiled.plan, target.alignment());
  require(violations.empty(), "plan: {}", fmt::join(violations, "; "));
  compiled.report = std::move(draft.report);
  compiled.program = std::move(draft.program);
  compiled.layout = std::move(draft.layout);
  compiled.report.seconds += seconds_since(start);
  return compiled;
}

Compiled compile(const Model& model, const CompileOptions& options, const Target& target) {
  return compile_within(model, options, Bytes(0), target);
}

Compiled compile_within(const Model& model, const CompileOptions& options, Bytes enough, const Target& target) {
  Draft drafted = draft(model, options, target);
  const layout::Solution solution = lay_out(drafted, enough);
  return finish(std::move(drafted), solution, target);
}

}  // namespace snug
