// snug_bench_costs — predicted seconds of an update, from operations timed one by one on samples, against measured ones
//
//   snug_bench_costs [--costs measured|roofline] [--steps 3] [--blocks N] [--kinds] [MODEL/PRECISION …]
//
// Without names all of gpt2, smollm2 and tiny in fp32 and bf16. Measures into an empty cache. bench/README.md says how to read the numbers.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>

#include "backends/cpu/backend.h"
#include "base/errors.h"
#include "base/library_pool.h"
#include "bench_main.h"
#include "observe/process_memory.h"
#include "train/costs.h"
#include "train/weights_io.h"
#include "updates.h"

namespace snug::bench {
namespace {

struct CostsOptions {
  CostSource source = CostSource::kMeasured;
  int64_t steps = 3, blocks = 0;  // 0: the model's own
  bool kinds = false;             // a line for each kind of operation
  std::vector<StepOptions> runs;
};

StepOptions parse_run(std::string_view name) {
  const size_t slash = std::min(name.find('/'), name.size());
  StepOptions run;
  run.model = name.substr(0, slash);
  const std::string_view precision = name.substr(std::min(slash + 1, name.size()));
  const bool known = run.model == "gpt2" || run.model == "smollm2" || run.model == "tiny";
  if (!known || (precision != "fp32" && precision != "bf16"))
    throw_user(ExitCode::kUsage, "found {}; expected gpt2, smollm2 or tiny, then /fp32 or /bf16", name);
  run.precision = precision == "bf16" ? Precision::kBF16 : Precision::kF32;
  return run;
}

CostsOptions parse(int count, char** arguments) {
  CostsOptions options;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = arguments[i];
    const std::string_view value = i + 1 < count ? arguments[i + 1] : "";
    if (word == "--kinds") {
      options.kinds = true;
    } else if (word == "--costs" && (value == "measured" || value == "roofline")) {
      options.source = value == "measured" ? CostSource::kMeasured : CostSource::kRoofline;
      ++i;
    } else if ((word == "--steps" || word == "--blocks") && std::atoi(value.data()) > 0) {
      (word == "--steps" ? options.steps : options.blocks) = std::atoi(value.data());
      ++i;
    } else {
      options.runs.push_back(parse_run(word));
    }
  }
  if (options.runs.empty())
    for (const char* name :
         {"gpt2/fp32", "gpt2/bf16", "smollm2/fp32", "smollm2/bf16", "tiny/fp32", "tiny/bf16"})
      options.runs.push_back(parse_run(name));
  for (StepOptions& run : options.runs) run.blocks = options.blocks;
  return options;
}

// Predicted seconds of an update by kind of operation.
std::map<std::string, double> predicted_kinds(const Plan& plan) {
  std::map<std::string, double> seconds;
  for (const PlanPhase& phase : plan.phases)
    if (phase.repeats > 0)
      for (const PlanOp& op : phase.ops) seconds[op.op] += op.seconds * static_cast<double>(phase.repeats);
  return seconds;
}

// An empty cache while it lives.
class EmptyCache {
 public:
  EmptyCache() {
    std::string name = (std::filesystem::temp_directory_path() / "snug-bench-costs-XXXXXX").string();
    require(mkdtemp(name.data()) != nullptr, "no temporary directory {}", name);
    path_ = name;
    setenv("XDG_CACHE_HOME", name.c_str(), 1);
  }
  ~EmptyCache() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  EmptyCache(const EmptyCache&) = delete;
  EmptyCache& operator=(const EmptyCache&) = delete;

 private:
  std::filesystem::path path_;
};

void bench(const StepOptions& step, const CostsOptions& options) {
  const EmptyCache cache;
  const Model model = bench_model(step);
  cpu::CpuBackend backend(cpu::choose_dispatch(static_cast<int>(default_threads())));
  CostsReport costs;
  const Compiled compiled = compile_by_costs(
      backend, options.source, memory_allowance().bytes,
      [&](const Target& target) { return compile(model, compile_options(step), target); }, costs);

  const ParameterFiles files = ParameterFiles::from_scratch(model, 42);
  Executor* loading = nullptr;
  Executor executor(compiled.plan, backend, [&](const PlanOp& op) { files.read(op, *loading); });
  loading = &executor;
  executor.run_phase("load");
  Updates updates(step, model, executor);
  updates.run();
  executor.measure(true);
  executor.reset_times();
  std::vector<double> seconds;
  for (int64_t i = 0; i < options.steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    updates.run();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  const double predicted = compiled.report.update_seconds, measured = median(seconds);
  fmt::print(
      "{:8} {:5} {:11.4f} {:10.4f} {:7.3f} {:10.3f} {:11} {:7} {:10.2f}\n", step.model,
      step.precision == Precision::kBF16 ? "bf16" : "fp32", predicted, measured, predicted / measured,
      *std::max_element(seconds.begin(), seconds.end()) / *std::min_element(seconds.begin(), seconds.end()),
      costs.operations, costs.measured, costs.seconds);
  std::fflush(stdout);
  if (!options.kinds) return;
  const std::map<std::string, double> by_kind = predicted_kinds(compiled.plan);
  for (const Executor::OperationTime& kind : executor.times()) {
    const auto found = by_kind.find(std::string(kind.op));
    if (kind.count == 0 || found == by_kind.end()) continue;
    const double real = kind.seconds / static_cast<double>(options.steps);
    fmt::print("    {:26} {:9.5f} {:9.5f} {:7.3f}\n", kind.op, found->second, real, found->second / real);
  }
}

int run(int count, char** arguments) {
  const CostsOptions options = parse(count, arguments);
  // As train/prepare.cc does.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  fmt::print(
      "model    type  predicted s  measured s   ratio  max/min s  operations  measured  measuring s\n");
  std::fflush(stdout);
  for (const StepOptions& step : options.runs) bench(step, options);
  return 0;
}

}  // namespace
}  // namespace snug::bench

int main(int count, char** arguments) {
  return snug::bench::run_bench("snug_bench_costs", &snug::bench::run, count, arguments);
}
