#include "compile/lower.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analysis/cost.h"
#include "base/errors.h"
#include "ir/operations.h"

namespace snug {
namespace {

std::string type_text(const OperandType& type) {
  return fmt::format("{}{}", dtype_name(type.dtype), to_string(type.shape));
}

class Lowering {
 public:
  Lowering(const Program& program, const Timeline& timeline, const layout::Solution& solution,
           const Target& target)
      : program_(program), timeline_(timeline), solution_(solution), target_(target) {}

  Plan run(const std::vector<PhasePeak>& peaks) {
    plan_.target = target_.name();
    plan_.memories.push_back({.name = "ram", .arena_bytes = solution_.peak, .lower_bound_bytes = {}});
    for (const PhasePeak& peak : peaks)
      plan_.memories[0].lower_bound_bytes = std::max(plan_.memories[0].lower_bound_bytes, peak.bytes);
    for (const Phase& phase : program_.phases)
      for (const Tensor& tensor : phase.graph.tensors)
        if (tensor.storage == Storage::kState || tensor.storage == Storage::kCarried)
          shared_names_.insert(tensor.name);
    for (size_t phase_idx = 0; phase_idx < program_.phases.size(); ++phase_idx) add_tensors(phase_idx);
    for (size_t phase_idx = 0; phase_idx < program_.phases.size(); ++phase_idx)
      add_phase(phase_idx, peaks.at(phase_idx).bytes);
    return std::move(plan_);
  }

 private:
  Place place(int32_t buffer) const {
    return {MemoryId(0), solution_.offsets.at(static_cast<size_t>(buffer))};
  }

  void add_tensors(size_t phase_idx) {
    const Graph& graph = program_.phases[phase_idx].graph;
    std::vector<bool> is_result(graph.tensors.size(), false);
    for (TensorId result : graph.results) is_result[result.index()] = true;

    std::vector<PlanTensorId> ids;
    ids.reserve(graph.tensors.size());
    for (size_t tensor_idx = 0; tensor_idx < graph.tensors.size(); ++tensor_idx) {
      const Tensor& tensor = graph.tensors[tensor_idx];
      const bool is_own =
          tensor.storage == Storage::kInput || (tensor.storage == Storage::kValue && !is_result[tensor_idx]);
      const bool shared = !is_own && shared_names_.contains(tensor.name);
      const Lifetime life = timeline_.lifetimes[phase_idx][tensor_idx];
      if (shared) {
        const auto found = shared_.find(tensor.name);
        if (found != shared_.end()) {
          merge(plan_.tensors[found->second.index()], tensor, life);
          ids.push_back(found->second);
          continue;
        }
      }
      const int32_t buffer = timeline_.buffer_of[phase_idx][tensor_idx];
      ids.push_back(PlanTensorId(plan_.tensors.size()));
      plan_.tensors.push_back({.name = shared ? tensor.name : fmt::format("{}/{}", graph.name, tensor.name),
                               .dtype = tensor.dtype,
                               .shape = tensor.shape,
                               .category = std::string(category_name(tensor.category)),
                               .storage = std::string(storage_name(tensor.storage)),
                               .parameter = tensor.parameter,
                               .first = life.first,
                               .last = life.last,
                               .place = place(buffer),
                               .buffer = buffer});
      if (shared) shared_.emplace(tensor.name, ids.back());
    }
    tensor_ids_.push_back(std::move(ids));
  }

  // One more phase's view of a shared tensor: a value that a later phase carries is "carried", loaded state
  // is "state".
  static void merge(PlanTensor& known, const Tensor& tensor, Lifetime life) {
    known.first = std::min(known.first, life.first);
    known.last = std::max(known.last, life.last);
    if (tensor.storage != Storage::kValue) known.storage = storage_name(tensor.storage);
    if (known.parameter.empty()) known.parameter = tensor.parameter;
  }

  void add_phase(size_t phase_idx, Bytes peak) {
    const Phase& phase = program_.phases[phase_idx];
    const auto map = [&](const std::vector<TensorId>& tensors) {
      std::vector<PlanTensorId> mapped;
      mapped.reserve(tensors.size());
      for (TensorId tensor : tensors) mapped.push_back(tensor_ids_[phase_idx][tensor.index()]);
      return mapped;
    };
    PlanPhase lowered;
    lowered.name = phase.graph.name;
    lowered.repeats = phase.repeats;
    lowered.first_moment = timeline_.first_moment[phase_idx];
    lowered.peak_bytes = peak;
    for (size_t tensor_idx = 0; tensor_idx < phase.graph.tensors.size(); ++tensor_idx)
      if (phase.graph.tensors[tensor_idx].storage == Storage::kInput)
        lowered.inputs.push_back(tensor_ids_[phase_idx][tensor_idx]);
    lowered.results = map(phase.graph.results);
    lowered.ops.reserve(phase.graph.ops.size());
    for (size_t op_idx = 0; op_idx < phase.graph.ops.size(); ++op_idx) {
      const Op& op = phase.graph.ops[op_idx];
      const Cost needed = cost(phase.graph, op, target_);
      lowered.ops.push_back({.op = op.kind,
                             .name = op.name,
                             .part = std::string(part_name(op.part)),
                             .block = op.block,
                             .inputs = map(op.inputs),
                             .outputs = map(op.outputs),
                             .scratch = add_scratch(phase_idx, op_idx),
                             .attributes = op.attributes,
                             .flops = needed.flops,
                             .seconds = needed.seconds});
    }
    plan_.phases.push_back(std::move(lowered));
  }

  PlanTensorId add_scratch(size_t phase_idx, size_t op_idx) {
    const int32_t number = timeline_.scratch_of[phase_idx][op_idx];
    if (number < 0) return {};
    const TimelineBuffer& buffer = timeline_.buffers[static_cast<size_t>(number)];
    const Graph& graph = program_.phases[phase_idx].graph;
    plan_.tensors.push_back({.name = fmt::format("{}/{}.scratch", graph.name, graph.ops[op_idx].name),
                             .dtype = DType::kU8,
                             .shape = {buffer.bytes.value},
                             .category = std::string(category_name(Category::kScratch)),
                             .storage = "scratch",
                             .parameter = {},
                             .first = buffer.first,
                             .last = buffer.last,
                             .place = place(number),
                             .buffer = number});
    return PlanTensorId(plan_.tensors.size() - 1);
  }

  const Program& program_;
  const Timeline& timeline_;
  const layout::Solution& solution_;
  const Target& target_;
  std::unordered_set<std::string_view> shared_names_;          // of state and carried tensors
  std::unordered_map<std::string_view, PlanTensorId> shared_;  // those already in the plan
  std::vector<std::vector<PlanTensorId>> tensor_ids_;          // [phase][tensor]
  Plan plan_;
};

}  // namespace

layout::Problem packing_problem(const Timeline& timeline, Bytes alignment) {
  layout::Problem problem;
  problem.alignment = alignment;
  problem.buffers.reserve(timeline.buffers.size());
  for (const TimelineBuffer& buffer : timeline.buffers)
    problem.buffers.push_back(
        {.first = buffer.first, .last = buffer.last, .size = buffer.bytes, .persistent = buffer.persistent});
  return problem;
}

void check_supported(const Program& program, const Target& target) {
  for (const Phase& phase : program.phases)
    for (const Op& op : phase.graph.ops) {
      if (operation(op.kind).by_host) continue;
      const std::vector<OperandType> inputs = operand_types(phase.graph, op.inputs);
      const std::vector<OperandType> outputs = operand_types(phase.graph, op.outputs);
      const std::optional<std::string> refusal = target.refusal({op.kind, inputs, outputs, op.attributes});
      if (!refusal) continue;
      std::string operands;
      for (const OperandType& type : inputs) operands += (operands.empty() ? "" : ", ") + type_text(type);
      throw_user(ExitCode::kUsage, "phase {}, operation {}: {}({}) {}: not supported by {}: {}",
                 phase.graph.name, op.name, op.kind, operands, to_string(op.attributes), target.name(),
                 *refusal);
    }
}

Plan lower(const Program& program, const Timeline& timeline, const layout::Solution& solution,
           const std::vector<PhasePeak>& peaks, const Target& target) {
  return Lowering(program, timeline, solution, target).run(peaks);
}

}  // namespace snug
