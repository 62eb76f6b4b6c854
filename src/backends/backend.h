// backends/backend.h — the contract between the runtime and a backend
//
// The runtime binds every operation of a plan once (this may allocate), then only enqueues bound kernels: after `bind` a
// backend allocates nothing of its own. The contract is asynchronous: an operation goes to a lane, waits for events and
// completes with an event; a lifetime ends at the completing operation. The runtime never dereferences an arena address:
// values cross by `write` and `read`. A CPU backend may do everything at once and return completed events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "plan/plan.h"
#include "plan/target.h"

namespace snug {

using KernelId = Id<struct KernelTag>;
using LaneId = Id<struct LaneTag>;

// Completion of one enqueued operation; 0 is "completed".
struct Event {
  uint64_t value = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // What the planner asks; outlives the backend's use.
  virtual const Target& target() const = 0;

  // Reserves `plan.memories[memory].arena_bytes`, touches every page, and zeroes it. Once per memory, before any bind.
  // Throws UserError(kIo) with planned and available bytes when the system refuses.
  virtual void reserve(const Plan& plan, MemoryId memory) = 0;

  // Prepares one operation of the plan: resolves places, creates library primitives, picks the fastest kernel that accepts.
  // `plan` must outlive the backend. Throws InternalError with the target's refusal if the operation is not supported.
  virtual KernelId bind(const Plan& plan, const PlanOp& op) = 0;

  // Runs a bound kernel on a lane after `waits`. `repetition` counts the phase's repeats from 0: kernels whose operation has
  // overwrite_first=1 ignore their accumulator's old content at 0.
  virtual Event enqueue(KernelId kernel, LaneId lane, std::span<const Event> waits, int64_t repetition) = 0;

  // Blocks until the event completed.
  virtual void wait(Event event) = 0;

  // Host bytes → arena and back, at byte `begin` of the tensor; synchronous, after everything enqueued before. Throws InternalError when the range
  // leaves the tensor.
  virtual void write(const PlanTensor& tensor, int64_t begin, std::span<const std::byte> source) = 0;
  virtual void read(const PlanTensor& tensor, int64_t begin, std::span<std::byte> destination) = 0;

  // Host-visible bytes of a scratch or staging tensor, or an empty span where the memory is not host-visible.
  virtual std::span<std::byte> host_view(const PlanTensor& tensor) = 0;
};

}  // namespace snug
