#include "runtime/executor.h"

#include "base/errors.h"

namespace snug {
namespace {

constexpr LaneId kComputeLane{int32_t{0}};

}  // namespace

bool is_host_operation(const PlanOp& op) { return op.op == "read_tensor" || op.op == "write_tensor"; }

Executor::Executor(const Plan& plan, Backend& backend, HostOperation host_operation)
    : plan_(plan),
      backend_(backend),
      host_operation_(std::move(host_operation)),
      is_input_(plan.tensors.size()),
      is_result_(plan.tensors.size()) {
  for (size_t i = 0; i < plan.tensors.size(); ++i)
    require(tensors_.emplace(plan.tensors[i].name, PlanTensorId(i)).second,
            "executor: two tensors are named {}", plan.tensors[i].name);
  for (size_t m = 0; m < plan.memories.size(); ++m) backend.reserve(plan, MemoryId(m));

  std::unordered_map<std::string_view, size_t> kinds;
  for (const PlanPhase& phase : plan.phases) {
    for (PlanTensorId id : phase.inputs) is_input_.at(id.index()) = true;
    for (PlanTensorId id : phase.results) is_result_.at(id.index()) = true;
    std::vector<BoundOp>& bound = bound_.emplace_back();
    for (const PlanOp& op : phase.ops) {
      const auto [kind, is_new] = kinds.emplace(op.op, times_.size());
      if (is_new) times_.push_back({.op = op.op});
      bound.push_back({is_host_operation(op) ? KernelId() : backend.bind(plan, op), kind->second});
    }
  }
}

void Executor::run_phase(std::string_view name, int64_t repetition) {
  const PlanPhase* phase = plan_.phase(name);
  require(phase != nullptr, "executor: the plan has no phase {}", name);
  const std::vector<BoundOp>& bound = bound_[static_cast<size_t>(phase - plan_.phases.data())];
  if (observer_ != nullptr) observer_->before_phase(*phase, repetition);
  for (size_t i = 0; i < bound.size(); ++i) {
    if (observer_ == nullptr && !measure_) {
      run_operation(*phase, phase->ops[i], bound[i], repetition);
      continue;
    }
    const int64_t moment = phase->first_moment + static_cast<int64_t>(i);
    if (observer_ != nullptr) observer_->before_operation(*phase, phase->ops[i], moment, repetition);
    const auto begin = std::chrono::steady_clock::now();
    run_operation(*phase, phase->ops[i], bound[i], repetition);
    backend_.wait(last_);
    if (measure_) {
      OperationTime& time = times_[bound[i].kind];
      time.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      time.flops += phase->ops[i].flops;
      ++time.count;
    }
    if (observer_ != nullptr) observer_->after_operation(*phase, phase->ops[i], moment, repetition);
  }
  backend_.wait(last_);
  if (observer_ != nullptr) observer_->after_phase(*phase, repetition);
}

void Executor::run_operation(const PlanPhase& phase, const PlanOp& op, const BoundOp& bound,
                             int64_t repetition) {
  if (bound.kernel.valid()) {
    last_ = backend_.enqueue(bound.kernel, kComputeLane, {}, repetition);
    return;
  }
  require(host_operation_ != nullptr, "executor: nobody carries out {} {} of phase {}", op.op, op.name,
          phase.name);
  backend_.wait(last_);
  host_operation_(op);
}

PlanTensorId Executor::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  require(found != tensors_.end(), "executor: the plan has no tensor {}", name);
  return found->second;
}

void Executor::write_input(PlanTensorId input, std::span<const std::byte> source) {
  const PlanTensor& t = plan_.tensor(input);
  require(is_input_[input.index()], "executor: {} is an input of no phase", t.name);
  require(static_cast<int64_t>(source.size()) == t.shape.bytes(t.dtype).value,
          "executor: {} bytes for input {} of {}", source.size(), t.name, t.shape.bytes(t.dtype).value);
  write(input, 0, source);
}

void Executor::read_result(PlanTensorId result, std::span<std::byte> destination) {
  const PlanTensor& t = plan_.tensor(result);
  require(is_result_[result.index()], "executor: {} is a result of no phase", t.name);
  require(static_cast<int64_t>(destination.size()) == t.shape.bytes(t.dtype).value,
          "executor: {} bytes for result {} of {}", destination.size(), t.name, t.shape.bytes(t.dtype).value);
  read(result, 0, destination);
}

void Executor::write(PlanTensorId id, int64_t begin, std::span<const std::byte> source) {
  backend_.write(plan_.tensor(id), begin, source);
  if (observer_ != nullptr) observer_->after_write(id);
}

void Executor::read(PlanTensorId id, int64_t begin, std::span<std::byte> destination) {
  backend_.read(plan_.tensor(id), begin, destination);
}

void Executor::reset_times() {
  for (OperationTime& time : times_) time.count = 0, time.seconds = time.flops = 0;
}

}  // namespace snug
