#include <cstdio>
#include <algorithm>
#include <map>

#include "backends/cpu/kernel_list.h"
#include "base/errors.h"
#include "cli/commands.h"
#include "compile/pipeline.h"
#include "ir/text.h"
#include "layout/picture.h"
#include "plan/text.h"
#include "train/prepare.h"

namespace snug {
namespace {

// Keeps the text of every graph after every pass: phase → (pass, text) in order.
class Texts : public PassObserver {
 public:
  void after_pass(int, const PassTiming& timing, const Graph& graph) override {
    texts_[graph.name].emplace_back(timing.pass, print(graph));
  }

  // What the phase was after `pass`; empty when that pass did not run on it.
  std::string at(const std::string& phase, std::string_view pass) const {
    for (const auto& [name, text] : texts_.at(phase))
      if (name == pass) return text;
    return {};
  }
  std::vector<std::string> passes() const {
    std::vector<std::string> names;
    for (const auto& [phase, list] : texts_)
      for (const auto& [name, text] : list)
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    return names;
  }

 private:
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> texts_;
};

void print_schedule(const Plan& plan, const std::string& only) {
  int64_t moment = 0;
  for (const PlanPhase& phase : plan.phases) {
    if (only.empty() || phase.name == only)
      std::printf("phase %s × %lld, peak %s\n", phase.name.c_str(), static_cast<long long>(phase.repeats),
                  format_bytes(phase.peak_bytes).c_str());
    for (const PlanOp& op : phase.ops) {
      if (only.empty() || phase.name == only) {
        Bytes scratch;
        if (op.scratch.valid()) scratch = plan.tensor(op.scratch).shape.bytes(plan.tensor(op.scratch).dtype);
        std::printf("%6lld  %-10s block %3d  %-22s %-44s %9.3f GFLOP %9.3f ms  scratch %s\n", static_cast<long long>(moment),
                    op.part.c_str(), op.block, op.op.c_str(), op.name.c_str(), op.flops / 1e9, op.seconds * 1e3,
                    format_bytes(scratch).c_str());
      }
      ++moment;
    }
  }
}

void print_layout(const Compiled& compiled) {
  layout::Solution solution;
  solution.peak = compiled.report.arena;
  solution.offsets.resize(compiled.layout.buffers.size());
  for (const PlanTensor& tensor : compiled.plan.tensors)
    solution.offsets.at(static_cast<size_t>(tensor.buffer)) = tensor.place.offset;
  std::printf("%zu buffers, arena %s, bound %s, gap %.3f %%, order %s, without sharing %s\n", solution.offsets.size(),
              format_bytes(compiled.report.arena).c_str(), format_bytes(compiled.report.lower_bound).c_str(),
              100 * compiled.report.gap, compiled.report.layout_order.c_str(),
              format_bytes(compiled.report.sum_of_sizes).c_str());
  std::printf("%s\n", layout::draw(compiled.layout, solution, 110, 40).c_str());
}

// Which kernel each kind of operation gets here, and why the ones before it refused.
void print_kernels(const Prepared& run) {
  const cpu::Dispatch& dispatch = run.backend->target().dispatch();
  std::map<std::string, bool> seen;
  const Plan& plan = run.compiled.plan;
  for (const PlanPhase& phase : plan.phases)
    for (const PlanOp& op : phase.ops) {
      if (op.part == "load" && op.op == "read_tensor") continue;
      if (op.op == "write_tensor") continue;
      std::vector<OperandType> inputs, outputs;
      std::string types;
      for (PlanTensorId id : op.inputs) inputs.push_back({plan.tensor(id).dtype, plan.tensor(id).shape});
      for (PlanTensorId id : op.outputs) outputs.push_back({plan.tensor(id).dtype, plan.tensor(id).shape});
      for (const OperandType& type : inputs) types += fmt::format(" {}{}", dtype_name(type.dtype), to_string(type.shape));
      const std::string line = op.op + types;
      if (!seen.emplace(line, true).second || inputs.size() > 12) continue;
      const OpQuery query{op.op, inputs, outputs, op.attributes};
      for (const cpu::KernelOption& option : cpu::kernel_options(query, dispatch)) {
        const std::string implementation(option.entry->implementation);
        if (!option.refusal) {
          std::printf("%-24s %-12s%s\n", op.op.c_str(), implementation.c_str(), types.c_str());
          break;
        }
        std::printf("%-24s %s refuses: %s\n", op.op.c_str(), implementation.c_str(), option.refusal->c_str());
      }
    }
}

}  // namespace

int inspect_command(const ProgramOptions& options) {
  Prepared run = prepare(options.run, RunKind::kTrain);
  if (!options.phase.empty() && run.compiled.plan.phase(options.phase) == nullptr) {
    std::string names;
    for (const PlanPhase& phase : run.compiled.plan.phases) names += (names.empty() ? "" : ", ") + phase.name;
    throw_user(ExitCode::kUsage, "phase is \"{}\"; this plan has {}", options.phase, names);
  }
  if (options.at == "layout") {
    print_layout(run.compiled);
    return 0;
  }
  if (options.at == "schedule") {
    print_schedule(run.compiled.plan, options.phase);
    return 0;
  }
  if (options.at == "kernels") {
    print_kernels(run);
    return 0;
  }
  if (options.at == "plan") {
    std::printf("%s", to_string(run.compiled.plan).c_str());
    return 0;
  }
  if (options.at == "final") {
    for (const Phase& phase : run.compiled.program.phases)
      if (options.phase.empty() || phase.graph.name == options.phase) std::printf("%s\n", print(phase.graph).c_str());
    return 0;
  }
  Texts texts;
  CompileOptions compiling = run.compile_options;
  compiling.observer = &texts;
  compile(run.model, compiling, run.backend->target());
  bool found = false;
  const std::string pass = options.at == "forward" ? "build" : options.at;
  for (const Phase& phase : run.compiled.program.phases) {
    if (!options.phase.empty() && phase.graph.name != options.phase) continue;
    const std::string text = texts.at(phase.graph.name, pass);
    if (text.empty()) continue;
    std::printf("%s\n", text.c_str());
    found = true;
  }
  if (!found) {
    std::string names = "forward, final, schedule, layout, kernels, plan";
    for (const std::string& name : texts.passes())
      if (name != "build") names += ", " + name;
    throw_user(ExitCode::kUsage, "at is \"{}\"; expected one of {}", options.at, names);
  }
  return 0;
}

}  // namespace snug
