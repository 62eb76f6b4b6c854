#include "runtime/canary.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/errors.h"

namespace snug {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

// FNV-1a over 8-byte words, then over the bytes that are left.
uint64_t mix(uint64_t hash, std::span<const std::byte> bytes) {
  constexpr uint64_t kPrime = 0x100000001b3;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 32;
  }
  for (; i < bytes.size(); ++i) hash = (hash ^ static_cast<uint64_t>(bytes[i])) * kPrime;
  return hash;
}

bool persists(const PlanTensor& tensor) { return tensor.storage == "state" || tensor.storage == "carried"; }

}  // namespace

Canary::Canary(const Plan& plan, Backend& backend)
    : plan_(plan),
      backend_(backend),
      known_(plan.tensors.size()),
      piece_(kPieceBytes),
      pattern_(kPieceBytes, std::byte{0xFF}) {
  int64_t moments = 0;
  for (const PlanPhase& phase : plan.phases) moments += static_cast<int64_t>(phase.ops.size());
  dying_.resize(static_cast<size_t>(moments));
  std::unordered_map<int32_t, size_t> numbers;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlanTensor& tensor = plan.tensors[i];
    require(0 < tensor.last && tensor.last <= moments, "canary: {} lives to moment {} of {}", tensor.name,
            tensor.last, moments);
    dying_[static_cast<size_t>(tensor.last - 1)].push_back(PlanTensorId(i));
    const size_t group =
        tensor.buffer < 0 ? buffers_.size() : numbers.emplace(tensor.buffer, buffers_.size()).first->second;
    if (group == buffers_.size()) buffers_.emplace_back();
    buffers_[group].push_back(PlanTensorId(i));
    group_.push_back(group);
  }
}

void Canary::before_phase(const PlanPhase& phase, int64_t) {
  const int64_t first = phase.first_moment;
  for (size_t i = 0; i < plan_.tensors.size(); ++i) {
    const PlanTensorId id(i);
    const PlanTensor& tensor = plan_.tensors[i];
    if (!persists(tensor) || first < tensor.first || first >= tensor.last) continue;
    if (known_[i].valid)
      verify(id, phase, "the start", first);
    else
      learn(id, -1);
  }
  for (PlanTensorId id : phase.inputs) learn(id, -1);
  for (size_t m = 0; m < plan_.memories.size(); ++m)
    for (const Range& range : free_ranges(MemoryId(m), first)) fill(MemoryId(m), range);
  for (size_t i = 0; i < plan_.tensors.size(); ++i)
    if (plan_.tensors[i].last <= first || plan_.tensors[i].first > first) known_[i].valid = false;
}

void Canary::before_operation(const PlanPhase& phase, const PlanOp& op, int64_t moment, int64_t) {
  for (PlanTensorId id : op.inputs) verify(id, phase, op.name, moment);

  std::vector<PlanTensorId> own = op.outputs;
  if (op.scratch.valid()) own.push_back(op.scratch);
  guards_.clear();
  for (PlanTensorId id : own) {
    const MemoryId memory = plan_.tensor(id).place.memory;
    const Range range = range_of(id);
    const int64_t arena = plan_.memories[memory.index()].arena_bytes.value;
    Range before{std::max<int64_t>(0, range.begin - kGuard), range.begin};
    Range behind{range.end, std::min(arena, range.end + kGuard)};
    for (PlanTensorId other : own) {  // a neighbour that the operation writes itself shortens the guard
      if (plan_.tensor(other).place.memory != memory) continue;
      const Range taken = range_of(other);
      if (taken.begin < range.begin) before.begin = std::max(before.begin, std::min(taken.end, range.begin));
      if (taken.begin >= range.end) behind.end = std::min(behind.end, taken.begin);
    }
    for (const Range& guard : {before, behind}) {
      if (guard.begin >= guard.end) continue;
      Guard& made = guards_.emplace_back(
          Guard{memory, guard, std::vector<std::byte>(static_cast<size_t>(guard.end - guard.begin))});
      backend_.read(whole(memory), guard.begin, made.before);
    }
  }
}

void Canary::after_operation(const PlanPhase& phase, const PlanOp& op, int64_t moment, int64_t) {
  for (const Guard& guard : guards_) {
    const std::span<std::byte> now(piece_.data(), guard.before.size());
    backend_.read(whole(guard.memory), guard.range.begin, now);
    const auto differs = std::mismatch(guard.before.begin(), guard.before.end(), now.begin()).first;
    if (differs != guard.before.end())
      throw_internal(
          "memory check: {} {} of phase {} changed byte {} of memory {}, outside its outputs and scratch",
          op.op, op.name, phase.name, guard.range.begin + (differs - guard.before.begin()),
          plan_.memories[guard.memory.index()].name);
  }
  for (PlanTensorId id : op.outputs) learn(id, moment);
  // What lives to the end of the phase stays: the host may read it until the next phase begins.
  const int64_t end = phase.first_moment + static_cast<int64_t>(phase.ops.size());
  if (moment + 1 == end) return;
  for (PlanTensorId id : dying_[static_cast<size_t>(moment)]) {
    known_[id.index()] = Known{};
    const auto lives_on = [&](PlanTensorId other) {
      return plan_.tensor(other).first <= moment + 1 && moment + 1 < plan_.tensor(other).last;
    };
    if (std::none_of(buffer_of(id).begin(), buffer_of(id).end(), lives_on))
      fill(plan_.tensor(id).place.memory, range_of(id));
  }
}

void Canary::after_phase(const PlanPhase& phase, int64_t) {
  const int64_t end = phase.first_moment + static_cast<int64_t>(phase.ops.size());
  for (PlanTensorId id : phase.results) verify(id, phase, "the end", end);
  for (size_t i = 0; i < plan_.tensors.size(); ++i)
    if (persists(plan_.tensors[i]) && plan_.tensors[i].last >= end)
      verify(PlanTensorId(i), phase, "the end", end);
}

// The host writes a tensor in many pieces: its checksum is taken at its next use.
void Canary::after_write(PlanTensorId tensor) {
  for (PlanTensorId id : buffer_of(tensor)) known_[id.index()] = Known{};
}

PlanTensor Canary::whole(MemoryId memory) const {
  PlanTensor all;
  all.name = "memory " + plan_.memories[memory.index()].name;
  all.dtype = DType::kU8;
  all.shape = Shape{plan_.memories[memory.index()].arena_bytes.value};
  all.place = {memory, Bytes(0)};
  return all;
}

Canary::Range Canary::range_of(PlanTensorId id) const {
  const PlanTensor& tensor = plan_.tensor(id);
  const int64_t begin = tensor.place.offset.value;
  return {begin, begin + tensor.shape.bytes(tensor.dtype).value};
}

// The tensors that share `id`'s storage, itself among them.
const std::vector<PlanTensorId>& Canary::buffer_of(PlanTensorId id) const {
  return buffers_[group_[id.index()]];
}

uint64_t Canary::checksum(PlanTensorId id) {
  const PlanTensor& tensor = plan_.tensor(id);
  const int64_t size = tensor.shape.bytes(tensor.dtype).value;
  uint64_t hash = 0xcbf29ce484222325;
  for (int64_t begin = 0; begin < size; begin += static_cast<int64_t>(piece_.size())) {
    const auto piece = std::span(piece_).first(std::min(piece_.size(), static_cast<size_t>(size - begin)));
    backend_.read(tensor, begin, piece);
    hash = mix(hash, piece);
  }
  return hash;
}

// The tensor's bytes are right as they are. Every other tensor of its buffer has lost its value, but for
// the state or carried tensor, of which this is the new version.
void Canary::learn(PlanTensorId id, int64_t moment) {
  const Known now{true, checksum(id), moment};
  for (PlanTensorId other : buffer_of(id)) {
    const bool is_version = persists(plan_.tensor(other)) && range_of(other).end == range_of(id).end;
    known_[other.index()] = other == id || is_version ? now : Known{};
  }
}

void Canary::verify(PlanTensorId id, const PlanPhase& phase, std::string_view where, int64_t moment) {
  const Known& known = known_[id.index()];
  if (!known.valid || checksum(id) == known.checksum) return;
  throw_internal(
      "memory check: at {} of phase {} (moment {}), {} no longer holds what {} wrote: an operation since "
      "then "
      "changed bytes that are not its own",
      where, phase.name, moment, plan_.tensor(id).name, operation_at(known.written_at));
}

void Canary::fill(MemoryId memory, Range range) {
  const PlanTensor all = whole(memory);
  for (int64_t begin = range.begin; begin < range.end; begin += static_cast<int64_t>(pattern_.size()))
    backend_.write(
        all, begin,
        std::span(pattern_).first(std::min(pattern_.size(), static_cast<size_t>(range.end - begin))));
}

// The bytes that no tensor holds at `moment`.
std::vector<Canary::Range> Canary::free_ranges(MemoryId memory, int64_t moment) const {
  std::vector<Range> taken;
  for (size_t i = 0; i < plan_.tensors.size(); ++i) {
    const PlanTensor& tensor = plan_.tensors[i];
    if (tensor.place.memory == memory && tensor.first <= moment && moment < tensor.last)
      taken.push_back(range_of(PlanTensorId(i)));
  }
  std::sort(taken.begin(), taken.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> free;
  int64_t at = 0;
  for (const Range& range : taken) {
    if (range.begin > at) free.push_back({at, range.begin});
    at = std::max(at, range.end);
  }
  const int64_t arena = plan_.memories[memory.index()].arena_bytes.value;
  if (at < arena) free.push_back({at, arena});
  return free;
}

std::string Canary::operation_at(int64_t moment) const {
  if (moment < 0) return "the host";
  for (const PlanPhase& phase : plan_.phases) {
    const int64_t i = moment - phase.first_moment;
    if (i >= 0 && i < static_cast<int64_t>(phase.ops.size()))
      return fmt::format("{} of phase {} (moment {})", phase.ops[static_cast<size_t>(i)].name, phase.name,
                         moment);
  }
  return "an unknown operation";
}

}  // namespace snug
