#include "backends/cpu/backend.h"

#include <omp.h>

#include <algorithm>
#include <cstring>

#include "backends/cpu/onednn.h"
#include "base/errors.h"
#include "base/mlp_operands.h"

namespace snug::cpu {
namespace {

// Columns of the widest f32 product inside an operation. Weights that are widened in panels make narrower ones: this is a bound.
int64_t product_columns(const Plan& plan, const PlanOp& op) {
  const auto shape = [&](PlanTensorId id) -> const Shape& { return plan.tensor(id).shape; };
  if (op.op.starts_with("linear")) return shape(op.outputs.at(0)).last();
  if (op.op.starts_with("head_loss"))
    return std::max(shape(op.inputs.at(1)).dim(0), shape(op.inputs.at(1)).dim(1));
  if (op.op.starts_with("mlp")) {
    const MlpOperands positions(op.attributes);
    int64_t columns = 0;
    for (size_t product = 0; product < positions.products(); ++product) {
      const Shape& w = shape(op.inputs.at((op.op == "mlp" ? 0 : 1) + positions.weight(product)));
      columns = std::max({columns, w.dim(0), w.dim(1)});
    }
    return columns;
  }
  return 0;
}

}  // namespace

CpuBackend::CpuBackend(const Dispatch& dispatch, const CpuRates& rates) : target_(dispatch, rates) {
  omp_set_dynamic(0);
  omp_set_num_threads(dispatch.threads);
}

void CpuBackend::reserve(const Plan& plan, MemoryId memory) {
  require(memory.valid() && memory.index() < plan.memories.size(), "reserve: the plan has no memory {}",
          memory.value);
  if (arenas_.size() <= memory.index()) arenas_.resize(memory.index() + 1);
  require(arenas_[memory.index()].size() == Bytes(), "reserve: memory {} twice", memory.value);
  const PlanMemory& planned = plan.memories[memory.index()];
  Reservation arena(planned.arena_bytes, "the arena", huge_pages_);
  arena.commit(planned.arena_bytes);
  arena.touch();
  arenas_[memory.index()] = std::move(arena);
}

KernelId CpuBackend::bind(const Plan& plan, const PlanOp& op) {
  const Dispatch& dispatch = target_.dispatch();
  std::vector<OperandType> input_types, output_types;
  Binding binding{op.op, op.name, op.attributes, {}, {}, {}, dispatch};
  const auto add = [&](PlanTensorId id, std::vector<OperandType>& types, std::vector<Operand>& operands) {
    const PlanTensor& tensor = plan.tensor(id);
    types.push_back({tensor.dtype, tensor.shape});
    operands.push_back({bytes_of(tensor).data(), types.back()});
  };
  for (PlanTensorId id : op.inputs) add(id, input_types, binding.inputs);
  for (PlanTensorId id : op.outputs) add(id, output_types, binding.outputs);
  const OpQuery query{op.op, input_types, output_types, op.attributes};
  if (const auto refusal = target_.refusal(query))
    throw_internal("{} ({}): {} refuses: {}", op.name, op.op, target_.name(), *refusal);
  const KernelEntry& entry = pick_kernel(query, dispatch);
  const Bytes needed = entry.scratch_bytes(query, dispatch);
  if (op.scratch.valid()) binding.scratch = bytes_of(plan.tensor(op.scratch));
  require(static_cast<int64_t>(binding.scratch.size()) >= needed.value,
          "{} ({}): the {} kernel needs {} bytes of scratch, the plan gives {}", op.name, op.op,
          entry.implementation, needed.value, binding.scratch.size());
  kernels_.push_back({entry.make(binding), op.attributes.integer_or("overwrite_first", 0) != 0});
  return KernelId(kernels_.size() - 1);
}

Event CpuBackend::enqueue(KernelId kernel, LaneId, std::span<const Event>, int64_t repetition) {
  require(kernel.valid() && kernel.index() < kernels_.size(), "enqueue: no kernel {}", kernel.value);
  // Libraries ask OpenMP; the number belongs to the calling thread, which may not be the one that made the backend.
  if (omp_get_max_threads() != target_.dispatch().threads) omp_set_num_threads(target_.dispatch().threads);
  const Bound& bound = kernels_[kernel.index()];
  bound.kernel->run(bound.overwrite_first && repetition == 0);
  return Event{};
}

void CpuBackend::write(const PlanTensor& tensor, int64_t begin, std::span<const std::byte> source) {
  const std::span<std::byte> range = range_of(tensor, begin, source.size());
  if (!range.empty()) std::memcpy(range.data(), source.data(), range.size());
}

void CpuBackend::read(const PlanTensor& tensor, int64_t begin, std::span<std::byte> destination) {
  const std::span<std::byte> range = range_of(tensor, begin, destination.size());
  if (!range.empty()) std::memcpy(destination.data(), range.data(), range.size());
}

std::span<std::byte> CpuBackend::host_view(const PlanTensor& tensor) { return bytes_of(tensor); }

std::span<std::byte> CpuBackend::bytes_of(const PlanTensor& tensor) const {
  const MemoryId memory = tensor.place.memory;
  require(memory.valid() && memory.index() < arenas_.size() && arenas_[memory.index()].size() > Bytes(),
          "{}: its memory {} is not reserved", tensor.name, memory.value);
  const std::span<std::byte> arena = arenas_[memory.index()].bytes();
  const int64_t offset = tensor.place.offset.value, bytes = tensor.shape.bytes(tensor.dtype).value;
  require(offset >= 0 && bytes >= 0 && checked_add(offset, bytes) <= static_cast<int64_t>(arena.size()),
          "{}: bytes [{}, {}) leave the arena of {} bytes", tensor.name, offset, offset + bytes,
          arena.size());
  return arena.subspan(static_cast<size_t>(offset), static_cast<size_t>(bytes));
}

std::span<std::byte> CpuBackend::range_of(const PlanTensor& tensor, int64_t begin, size_t count) const {
  const std::span<std::byte> bytes = bytes_of(tensor);
  require(begin >= 0 && static_cast<size_t>(begin) <= bytes.size() &&
              count <= bytes.size() - static_cast<size_t>(begin),
          "{}: bytes [{}, {}) leave the tensor of {} bytes", tensor.name, begin,
          begin + static_cast<int64_t>(count), bytes.size());
  return bytes.subspan(static_cast<size_t>(begin), count);
}

Bytes CpuBackend::library_bytes(const Plan& plan) const {
  Bytes most;
  for (const PlanPhase& phase : plan.phases)
    for (const PlanOp& op : phase.ops)
      most = std::max(most, sgemm_buffer_bytes(product_columns(plan, op), target_.dispatch().cpu_class,
                                               target_.dispatch().threads));
  return most;
}

Bytes CpuBackend::arena_bytes() const {
  Bytes total;
  for (const Reservation& arena : arenas_) total += arena.committed();
  return total;
}

}  // namespace snug::cpu
