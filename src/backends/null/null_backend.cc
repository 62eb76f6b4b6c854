#include "backends/null/null_backend.h"

#include <algorithm>
#include <functional>

#include "base/errors.h"

namespace snug {
namespace {

bool is_host_operation(const PlanOp& op) { return op.op == "read_tensor" || op.op == "write_tensor"; }

}  // namespace

void NullBackend::reserve(const Plan& plan, MemoryId memory) {
  require(plan_ == nullptr || plan_ == &plan, "null: reserve for a second plan");
  require(memory.valid() && memory.index() < plan.memories.size(), "null: reserve of memory {} of {}",
          memory.value, plan.memories.size());
  plan_ = &plan;
  memories_.resize(plan.memories.size());
  pieces_.resize(plan.tensors.size());
  Memory& state = memories_[memory.index()];
  require(!state.reserved, "null: memory {} is reserved twice", plan.memories[memory.index()].name);
  state.reserved = true;

  const int64_t arena = plan.memories[memory.index()].arena_bytes.value;
  for (const PlanTensor& tensor : plan.tensors) {
    if (tensor.place.memory != memory) continue;
    const int64_t begin = tensor.place.offset.value;
    const int64_t end = checked_add(begin, tensor.shape.bytes(tensor.dtype).value);
    require(begin >= 0 && end <= arena, "null: tensor {} takes bytes [{}, {}) of an arena of {}", tensor.name,
            begin, end, arena);
    state.cuts.push_back(begin);
    state.cuts.push_back(end);
  }
  std::sort(state.cuts.begin(), state.cuts.end());
  state.cuts.erase(std::unique(state.cuts.begin(), state.cuts.end()), state.cuts.end());
  state.writer.assign(state.cuts.size(), -1);
  const auto cut = [&](int64_t at) {
    return static_cast<size_t>(std::lower_bound(state.cuts.begin(), state.cuts.end(), at) -
                               state.cuts.begin());
  };
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlanTensor& tensor = plan.tensors[i];
    if (tensor.place.memory != memory) continue;
    const int64_t begin = tensor.place.offset.value;
    pieces_[i] = {.first = cut(begin), .last = cut(begin + tensor.shape.bytes(tensor.dtype).value)};
    if (tensor.storage == "state" || tensor.storage == "carried") persistent_.push_back(i);
  }
  for (const PlanPhase& phase : plan.phases)
    for (const PlanOp& op : phase.ops)
      if (is_host_operation(op) && op.scratch.valid()) {
        const PlanTensor& scratch = plan.tensor(op.scratch);
        staging_.resize(
            std::max(staging_.size(), static_cast<size_t>(scratch.shape.bytes(scratch.dtype).value)));
      }
}

KernelId NullBackend::bind(const Plan& plan, const PlanOp& op) {
  require(plan_ == &plan, "null: bind of {} before its plan's memories were reserved", op.name);
  const auto checked = [&](PlanTensorId id) {
    require(id.valid() && id.index() < plan.tensors.size(), "null: {} refers to tensor {} of {}", op.name,
            id.value, plan.tensors.size());
    const MemoryId memory = plan.tensor(id).place.memory;
    require(memory.valid() && memory.index() < memories_.size() && memories_[memory.index()].reserved,
            "null: {} uses {} in a memory that is not reserved", op.name, plan.tensor(id).name);
  };
  for (PlanTensorId id : op.inputs) checked(id);
  for (PlanTensorId id : op.outputs) checked(id);
  if (op.scratch.valid()) checked(op.scratch);

  for (const PlanPhase& phase : plan.phases) {
    // The operation is told by its address: names may repeat across phases.
    const std::less<const PlanOp*> before;
    if (phase.ops.empty() || before(&op, phase.ops.data()) ||
        !before(&op, phase.ops.data() + phase.ops.size()))
      continue;
    kernels_.push_back({.op = &op,
                        .phase = &phase,
                        .moment = phase.first_moment + (&op - phase.ops.data()),
                        .free_accumulator = op.attributes.integer_or("overwrite_first", 0) == 1});
    return KernelId(kernels_.size() - 1);
  }
  throw_internal("null: operation {} is not part of the plan", op.name);
}

Event NullBackend::enqueue(KernelId kernel_id, LaneId lane, std::span<const Event> waits,
                           int64_t repetition) {
  require(kernel_id.valid() && kernel_id.index() < kernels_.size(), "null: kernel {} is not bound",
          kernel_id.value);
  const Kernel& kernel = kernels_[kernel_id.index()];
  const PlanOp& op = *kernel.op;
  require(lane.valid(), "null: {} has no lane", op.name);
  for (const Event wait : waits)
    require(wait.value <= static_cast<uint64_t>(enqueued_),
            "null: {} waits for event {}, which nothing completes", op.name, wait.value);
  begin_repetition(kernel, repetition);

  for (PlanTensorId id : op.inputs) {
    check_alive(kernel, id.index());
    const bool is_free = kernel.free_accumulator && repetition == 0 &&
                         std::any_of(op.outputs.begin(), op.outputs.end(), [&](PlanTensorId output) {
                           return share_buffer(output.index(), id.index());
                         });
    if (!is_free) check_holds(id.index(), false, "operation", op.name);
  }
  if (op.scratch.valid()) {
    check_alive(kernel, op.scratch.index());
    put(op.scratch.index(), kernel.moment, "operation", op.name);
  }
  for (PlanTensorId id : op.outputs) {
    check_alive(kernel, id.index());
    put(id.index(), kernel.moment, "operation", op.name);
  }
  // Neither the scratch nor one output may have landed on another output.
  for (PlanTensorId id : op.outputs) check_holds(id.index(), false, "the end of operation", op.name);
  return Event{static_cast<uint64_t>(++enqueued_)};
}

void NullBackend::wait(Event event) {
  require(event.value <= static_cast<uint64_t>(enqueued_), "null: wait for event {}, which nothing completes",
          event.value);
}

void NullBackend::write(const PlanTensor& tensor, int64_t begin, std::span<const std::byte> source) {
  const size_t i = index(tensor);
  const int64_t size = tensor.shape.bytes(tensor.dtype).value;
  const auto count = static_cast<int64_t>(source.size());
  require(begin >= 0 && begin <= size && count <= size - begin,
          "null: the host writes bytes [{}, {}) of {}, which has {}", begin, begin + count, tensor.name,
          size);
  Piece& piece = pieces_[i];
  if (begin == 0) piece.host_bytes = 0;
  if (begin <= piece.host_bytes) piece.host_bytes = std::max(piece.host_bytes, begin + count);
  const auto held = writers(i);
  const bool holds_already =
      std::all_of(held.begin(), held.end(), [&](int32_t w) { return w == static_cast<int32_t>(i); });
  if (holds_already) return;
  put(i, tensor.first, "the host's write of", tensor.name);
  // Until the last byte has come the tensor counts as unwritten.
  if (piece.host_bytes < size) std::fill(held.begin(), held.end(), -1);
}

void NullBackend::read(const PlanTensor& tensor, int64_t begin, std::span<std::byte> destination) {
  const size_t i = index(tensor);
  const int64_t size = tensor.shape.bytes(tensor.dtype).value;
  const auto count = static_cast<int64_t>(destination.size());
  require(begin >= 0 && begin <= size && count <= size - begin,
          "null: the host reads bytes [{}, {}) of {}, which has {}", begin, begin + count, tensor.name, size);
  check_holds(i, persists(i), "the host's read of", tensor.name);
  std::fill(destination.begin(), destination.end(), std::byte{0});
}

std::span<std::byte> NullBackend::host_view(const PlanTensor& tensor) {
  const size_t i = index(tensor);
  if (tensor.storage != "scratch") return {};
  const auto size = static_cast<size_t>(plan_->tensors[i].shape.bytes(tensor.dtype).value);
  return size <= staging_.size() ? std::span(staging_).first(size) : std::span<std::byte>();
}

size_t NullBackend::index(const PlanTensor& tensor) const {
  const std::less<const PlanTensor*> before;
  require(plan_ != nullptr && !plan_->tensors.empty() && !before(&tensor, plan_->tensors.data()) &&
              before(&tensor, plan_->tensors.data() + plan_->tensors.size()),
          "null: tensor {} is not part of the plan", tensor.name);
  return static_cast<size_t>(&tensor - plan_->tensors.data());
}

bool NullBackend::share_buffer(size_t a, size_t b) const {
  return a == b || (plan_->tensors[a].buffer >= 0 && plan_->tensors[a].buffer == plan_->tensors[b].buffer);
}

bool NullBackend::persists(size_t tensor) const {
  return plan_->tensors[tensor].storage == "state" || plan_->tensors[tensor].storage == "carried";
}

std::span<int32_t> NullBackend::writers(size_t tensor) {
  const Piece& piece = pieces_[tensor];
  return std::span(memories_[plan_->tensors[tensor].place.memory.index()].writer)
      .subspan(piece.first, piece.last - piece.first);
}

void NullBackend::begin_repetition(const Kernel& kernel, int64_t repetition) {
  const bool continues =
      kernel.phase == running_phase_ && repetition == running_repetition_ && kernel.moment > last_moment_;
  running_phase_ = kernel.phase;
  running_repetition_ = repetition;
  last_moment_ = kernel.moment;
  if (continues) return;
  for (size_t i : persistent_)
    for (int32_t& writer : writers(i))
      if (writer >= 0 && share_buffer(static_cast<size_t>(writer), i)) writer = static_cast<int32_t>(i);
}

void NullBackend::check_alive(const Kernel& kernel, size_t tensor) const {
  const PlanTensor& t = plan_->tensors[tensor];
  require(t.first <= kernel.moment && kernel.moment < t.last,
          "null: operation {} of phase {} at moment {} uses {}, which lives in [{}, {})", kernel.op->name,
          kernel.phase->name, kernel.moment, t.name, t.first, t.last);
}

void NullBackend::check_holds(size_t tensor, bool any_of_its_buffer, const char* who,
                              const std::string& name) {
  const PlanTensor& t = plan_->tensors[tensor];
  const Memory& memory = memories_[t.place.memory.index()];
  const Piece& piece = pieces_[tensor];
  for (size_t p = piece.first; p < piece.last; ++p) {
    const int32_t writer = memory.writer[p];
    if (writer == static_cast<int32_t>(tensor)) continue;
    if (writer >= 0 && any_of_its_buffer && share_buffer(static_cast<size_t>(writer), tensor)) continue;
    throw_internal("null: at {} {}, bytes [{}, {}) of {} {}", who, name,
                   memory.cuts[p] - t.place.offset.value, memory.cuts[p + 1] - t.place.offset.value, t.name,
                   writer < 0 ? "were never written"
                              : "were overwritten by " + plan_->tensors[static_cast<size_t>(writer)].name);
  }
}

void NullBackend::put(size_t tensor, int64_t moment, const char* who, const std::string& name) {
  const PlanTensor& t = plan_->tensors[tensor];
  Memory& memory = memories_[t.place.memory.index()];
  const Piece& piece = pieces_[tensor];
  for (size_t p = piece.first; p < piece.last; ++p) {
    const int32_t writer = memory.writer[p];
    if (writer >= 0 && !share_buffer(static_cast<size_t>(writer), tensor)) {
      const PlanTensor& other = plan_->tensors[static_cast<size_t>(writer)];
      require(moment < other.first || moment >= other.last,
              "null: {} {} puts {} on bytes [{}, {}) of memory {}, where {} lives in [{}, {})", who, name,
              t.name, memory.cuts[p], memory.cuts[p + 1], plan_->memories[t.place.memory.index()].name,
              other.name, other.first, other.last);
    }
    memory.writer[p] = static_cast<int32_t>(tensor);
  }
}

}  // namespace snug
