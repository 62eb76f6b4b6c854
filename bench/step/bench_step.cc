// snug_bench_step — whole updates of a model with random weights on random tokens: speed as a share of the product's rate, seconds by
// kind of operation, planned and measured memory, and what comes before the first update
//
// bench/README.md says how to read the numbers.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "backends/cpu/backend.h"
#include "base/errors.h"
#include "base/json.h"
#include "base/library_pool.h"
#include "bench_main.h"
#include "compile/pipeline.h"
#include "formats/model_directory.h"
#include "gemm_rate.h"
#include "observe/process_memory.h"
#include "observe/reserve.h"
#include "runtime/executor.h"
#include "step_options.h"
#include "train/weights_io.h"
#include "updates.h"

namespace snug::bench {
namespace {

// The machine counts as steady when the product's rates right before and after an update differ by no more than this.
constexpr double kMostDrift = 0.02;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One timed update and the product's rate beside it.
struct Timed {
  double seconds = 0, loss = 0;
  double rate_before = 0, rate_after = 0;  // FLOP/s
  int64_t tries = 0;
  std::vector<Executor::OperationTime> times;

  double rate() const { return (rate_before + rate_after) / 2; }
  double drift() const { return std::abs(rate_before - rate_after) / rate(); }
  bool steady() const { return drift() <= kMostDrift; }
};

// Repeats an update until the machine was steady around it; otherwise the try with the least drift.
Timed timed_update(Updates& updates, Executor& executor, GemmRate& product, int64_t most_tries) {
  Timed best;
  for (int64_t attempt = 1; attempt <= most_tries; ++attempt) {
    Timed timed;
    timed.tries = attempt;
    timed.rate_before = product.measure();
    executor.reset_times();
    const auto begin = Clock::now();
    timed.loss = updates.run();
    timed.seconds = seconds_since(begin);
    timed.rate_after = product.measure();
    timed.times.assign(executor.times().begin(), executor.times().end());
    if (attempt == 1 || timed.drift() < best.drift()) best = std::move(timed);
    best.tries = attempt;
    if (best.steady()) break;
  }
  return best;
}

// What came before the first update.
struct Start {
  double libraries = 0;  // threads, libraries' buffers, warm-up products
  double plan = 0;
  double arena = 0;  // reserving and touching every byte, binding every operation
  double load = 0;   // the weights, from the seed or from files
  double total() const { return libraries + plan + arena + load; }
};

struct Kind {
  std::string op;
  double count = 0, seconds = 0, flops = 0;  // of one update
};

// The mean of the timed updates, slowest kind first; without kinds that do not run in an update.
std::vector<Kind> mean_kinds(const std::vector<Timed>& updates) {
  std::vector<Kind> kinds;
  const auto n = static_cast<double>(updates.size());
  for (size_t k = 0; k < updates.front().times.size(); ++k) {
    Kind kind{.op = std::string(updates.front().times[k].op)};
    for (const Timed& update : updates) {
      kind.count += static_cast<double>(update.times[k].count) / n;
      kind.seconds += update.times[k].seconds / n;
      kind.flops += update.times[k].flops / n;
    }
    if (kind.count > 0) kinds.push_back(kind);
  }
  std::sort(kinds.begin(), kinds.end(), [](const Kind& a, const Kind& b) { return a.seconds > b.seconds; });
  return kinds;
}

Json describe(const StepOptions& options, const Model& model, const cpu::CpuBackend& backend) {
  const cpu::Dispatch& dispatch = backend.target().dispatch();
  return Json{
      {"model", options.model},
      {"blocks", model.blocks},
      {"parameters", parameter_count(model)},
      {"batch", options.batch},
      {"length", options.length},
      {"accumulation", options.accumulation},
      {"precision", std::string(precision_word(options.precision))},
      {"recompute", options.smallest ? "optimal, smallest"
                    : options.memory ? fmt::format("optimal in {}", format_bytes(*options.memory))
                                     : to_string(options.recompute)},
      {"update_placement", options.update_placement == UpdatePlacement::kAfter ? "after" : "in_backward"},
      {"dispatch", cpu::cpu_class_name(dispatch.cpu_class)},
      {"dispatch_reason", dispatch.reason},
      {"threads", dispatch.threads},
      {"onednn", cpu::onednn_version()}};
}

std::string headline(const Json& run) {
  return fmt::format(
      "{} ({} blocks, {} parameters), batch {} × {}, accumulation {}, {}, recompute {}\n{}, {} threads, "
      "oneDNN {}\n",
      run["model"].get<std::string>(), run["blocks"].get<int64_t>(), run["parameters"].get<int64_t>(),
      run["batch"].get<int64_t>(), run["length"].get<int64_t>(), run["accumulation"].get<int64_t>(),
      run["precision"].get<std::string>(), run["recompute"].get<std::string>(),
      run["dispatch_reason"].get<std::string>(), run["threads"].get<int64_t>(),
      run["onednn"].get<std::string>());
}

int bench_plan(const StepOptions& options, const Model& model, cpu::CpuBackend& backend) {
  std::vector<double> seconds, layout_seconds;
  Compiled compiled;
  for (int64_t i = 0; i < options.steps; ++i) {
    compiled = compile_step(options, model, backend);
    seconds.push_back(compiled.report.seconds);
    layout_seconds.push_back(compiled.report.layout_seconds);
  }
  Json result = describe(options, model, backend);
  result["plans"] = options.steps;
  result["plan_seconds"] = median(seconds);
  result["slowest_plan_seconds"] = *std::max_element(seconds.begin(), seconds.end());
  result["layout_seconds"] = median(layout_seconds);
  result["arena_bytes"] = compiled.report.arena.value;
  result["lower_bound_bytes"] = compiled.report.lower_bound.value;
  if (options.json) {
    fmt::print("{}\n", result.dump());
    return 0;
  }
  const double slowest = result["slowest_plan_seconds"].get<double>();
  fmt::print(
      "{}planning: {:.3f} s (median of {}, slowest {:.3f}), {:.3f} s of it packing; arena {}, {:.3f} % above "
      "the bound\n",
      headline(result), median(seconds), options.steps, slowest, median(layout_seconds),
      format_bytes(compiled.report.arena), 100 * compiled.report.gap);
  return 0;
}

void print_report(const Json& result, const std::vector<Timed>& updates, const std::vector<Kind>& kinds) {
  const auto number = [&](const char* key) { return result[key].get<double>(); };
  const auto bytes = [&](const char* key) { return format_bytes(Bytes(result[key].get<int64_t>())); };
  fmt::print("{}\n", headline(result));
  fmt::print("update   seconds  tokens/s   product before/after GF/s   share of peak     loss   tries\n");
  for (size_t i = 0; i < updates.size(); ++i) {
    const Timed& update = updates[i];
    fmt::print("{:6} {:9.3f} {:9.1f} {:14.1f} {:10.1f} {:15.3f} {:8.4f} {:7}{}\n", i + 1, update.seconds,
               number("tokens_per_update") / update.seconds, update.rate_before / 1e9,
               update.rate_after / 1e9, number("update_flops") / update.rate() / update.seconds, update.loss,
               update.tries,
               update.steady() ? "" : fmt::format("  not steady: {:.1f} %", 100 * update.drift()));
  }
  fmt::print(
      "\nmedian: {:.1f} tokens/s, share of the {} product's rate {:.3f} ({:.4f} GFLOP needed a token)\n",
      number("tokens_per_second"), result["gemm_precision"].get<std::string>(), number("share_of_gemm_peak"),
      number("update_flops") / number("tokens_per_update") / 1e9);
  if (number("recompute_flops") > 0)
    fmt::print("recomputation adds {:.1f} % of the needed FLOPs; the share counts needed ones alone\n",
               100 * number("recompute_flops") / number("update_flops"));

  fmt::print("\noperation                    count   seconds   of update     GF/s   of product\n");
  const double update_seconds = number("mean_update_seconds"), rate = number("gemm_flops_per_second");
  for (const Kind& kind : kinds) {
    fmt::print("{:26} {:7.0f} {:9.3f} {:9.2f} %", kind.op, kind.count, kind.seconds,
               100 * kind.seconds / update_seconds);
    if (kind.flops > 0)
      fmt::print(" {:9.1f} {:10.3f}", kind.flops / kind.seconds / 1e9, kind.flops / kind.seconds / rate);
    fmt::print("\n");
  }
  const double host = number("host_seconds");
  fmt::print("{:26} {:7} {:9.3f} {:9.2f} %\n", "(between operations)", "", host, 100 * host / update_seconds);

  const Json& start = result["start"];
  fmt::print(
      "\nstart {:.2f} s: libraries {:.2f}, planning {:.3f}, arena {:.2f}, weights {:.2f}; first "
      "update {:.2f} s\n",
      number("start_seconds"), start["libraries"].get<double>(), start["plan"].get<double>(),
      start["arena"].get<double>(), start["load"].get<double>(), number("first_update_seconds"));
  fmt::print("memory: planned {}, measured {}; arena {}, bound {}\n", bytes("planned_peak_bytes"),
             bytes("peak_bytes"), bytes("arena_bytes"), bytes("lower_bound_bytes"));
}

int bench_step(const StepOptions& options, const Model& model, cpu::CpuBackend& backend, Start start) {
  const cpu::Dispatch& dispatch = backend.target().dispatch();
  const Compiled compiled = compile_step(options, model, backend);
  start.plan = compiled.report.seconds;
  malloc_trim(0);
  const Reserve reserve = compute_reserve(process_memory(), compiled.report.arena, dispatch.threads,
                                          kGrowthAllowance + backend.library_bytes(compiled.plan));

  auto begin = Clock::now();
  const ParameterFiles files =
      options.weights.empty()
          ? ParameterFiles::from_scratch(model, 42)
          : ParameterFiles::from_weights(model, ModelDirectory::open(options.weights).open_weights());
  Executor* loading = nullptr;
  Executor executor(compiled.plan, backend, [&](const PlanOp& op) { files.read(op, *loading); });
  loading = &executor;
  start.arena = seconds_since(begin);
  begin = Clock::now();
  executor.run_phase("load");
  start.load = seconds_since(begin);

  Updates updates(options, model, executor);
  begin = Clock::now();
  updates.run();
  const double first_update_seconds = seconds_since(begin);
  // Before the yardstick's matrices exist.
  const ProcessMemory memory = process_memory();

  GemmRate product(dispatch, options.precision);
  executor.measure(true);
  std::vector<Timed> timed;
  for (int64_t step = 0; step < options.steps; ++step)
    timed.push_back(timed_update(updates, executor, product, options.tries));

  const CompileReport& report = compiled.report;
  const std::vector<Kind> kinds = mean_kinds(timed);
  std::vector<double> seconds, shares, rates;
  Json rows = Json::array(), operations = Json::array();
  for (const Timed& update : timed) {
    seconds.push_back(update.seconds);
    shares.push_back(report.update_flops / update.rate() / update.seconds);
    rates.push_back(update.rate());
    rows.push_back(Json{{"seconds", update.seconds},
                        {"gemm_flops_per_second_before", update.rate_before},
                        {"gemm_flops_per_second_after", update.rate_after},
                        {"share_of_gemm_peak", shares.back()},
                        {"loss", update.loss},
                        {"tries", update.tries},
                        {"steady", update.steady()}});
  }
  double host = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
  Json result = describe(options, model, backend);
  result["tokens_per_update"] = updates.tokens();
  result["update_flops"] = report.update_flops;
  result["recompute_flops"] = report.recompute_flops;
  result["tokens_per_second"] = static_cast<double>(updates.tokens()) / median(seconds);
  result["share_of_gemm_peak"] = median(shares);
  result["steady"] =
      std::all_of(timed.begin(), timed.end(), [](const Timed& update) { return update.steady(); });
  result["gemm_precision"] = product.dtype() == DType::kBF16 ? "bf16" : "fp32";
  result["gemm_flops_per_second"] =
      std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size());
  result["update_seconds"] = median(seconds);
  result["mean_update_seconds"] = host;
  for (const Kind& kind : kinds) {
    operations.push_back(
        Json{{"op", kind.op}, {"count", kind.count}, {"seconds", kind.seconds}, {"flops", kind.flops}});
    host -= kind.seconds;
  }
  result["host_seconds"] = host;
  result["plan_seconds"] = start.plan;
  result["layout_seconds"] = report.layout_seconds;
  result["start_seconds"] = start.total();
  result["start"] = Json{
      {"libraries", start.libraries}, {"plan", start.plan}, {"arena", start.arena}, {"load", start.load}};
  result["first_update_seconds"] = first_update_seconds;
  result["peak_bytes"] = memory.peak().value;
  result["planned_peak_bytes"] = planned_process_peak(report.arena, reserve).value;
  result["arena_bytes"] = report.arena.value;
  result["lower_bound_bytes"] = report.lower_bound.value;
  result["operations"] = std::move(operations);
  result["updates"] = std::move(rows);
  if (options.json)
    fmt::print("{}\n", result.dump());
  else
    print_report(result, timed, kinds);
  return 0;
}

int run(int count, char** arguments) {
  const StepOptions options = parse_step_options(count, arguments);
  // As train/prepare.cc does, so that memory outside the arena is what a run of the program has.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  const Model model = bench_model(options);
  const int64_t threads = options.threads > 0 ? options.threads : default_threads();
  const auto begin = Clock::now();
  cpu::CpuBackend backend(cpu::choose_dispatch(static_cast<int>(threads)));
  backend.set_huge_pages(options.huge_pages);
  const Start start{.libraries = seconds_since(begin)};
  return options.plan_only ? bench_plan(options, model, backend) : bench_step(options, model, backend, start);
}

}  // namespace
}  // namespace snug::bench

int main(int count, char** arguments) {
  return snug::bench::run_bench("snug_bench_step", &snug::bench::run, count, arguments);
}
