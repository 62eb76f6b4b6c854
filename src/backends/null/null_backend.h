// backends/null/null_backend.h — a backend that does no arithmetic and checks every access against the plan
//
// It remembers for every byte of every arena which tensor wrote it last, and throws InternalError that
// names the operation, the tensor and the bytes when
//   * an operand, output or scratch does not live at the operation's moment, or leaves the arena;
//   * an input holds bytes that nothing has written, or that a tensor of another buffer has written since; so
//     with what the host reads;
//   * an output, a scratch or a host's write lands on bytes of a living tensor of another buffer;
//   * an input's value was replaced in its own buffer by a later tensor: an in-place operation came too early.
// State is written by phase "load" or the host, inputs by the host before every repetition, values by their
// producer. At the start of each repetition of a phase the state or carried tensor of a buffer takes over
// what the buffer holds. An accumulator of an operation with overwrite_first=1 may hold anything at
// repetition 0.
//
// No arena exists: plans far larger than this machine run. Reads give zeros; host_view gives bytes only for
// the scratch of read_tensor and write_tensor. After bind nothing allocates. Not done: operations of
// different lanes are taken in the order in which they are enqueued.
#pragma once

#include <map>
#include <vector>

#include "backends/backend.h"
#include "backends/null/null_target.h"

namespace snug {

class NullBackend : public Backend {
 public:
  explicit NullBackend(NullProfile profile = {}) : target_(profile) {}

  const Target& target() const override { return target_; }
  void reserve(const Plan& plan, MemoryId memory) override;
  KernelId bind(const Plan& plan, const PlanOp& op) override;
  Event enqueue(KernelId kernel, LaneId lane, std::span<const Event> waits, int64_t repetition) override;
  void wait(Event event) override;
  void write(const PlanTensor& tensor, int64_t begin, std::span<const std::byte> source) override;
  void read(const PlanTensor& tensor, int64_t begin, std::span<std::byte> destination) override;
  std::span<std::byte> host_view(const PlanTensor& tensor) override;

  // Operations enqueued so far: a test that the executor ran what it should.
  int64_t enqueued() const { return enqueued_; }

 private:
  struct Kernel {
    const PlanOp* op;
    const PlanPhase* phase;
    int64_t moment;
    bool free_accumulator;  // overwrite_first=1
  };
  // The pieces [first, last) of its memory that a tensor covers, and how much of it the host has written in
  // a row.
  struct Piece {
    size_t first = 0, last = 0;
    int64_t host_bytes = 0;
  };
  // One memory, cut at every place where a tensor begins or ends.
  struct Memory {
    bool reserved = false;
    std::vector<int64_t> cuts;
    std::vector<int32_t> writer;  // per piece: the tensor that wrote it last; -1 none
  };

  size_t index(const PlanTensor& tensor) const;
  bool share_buffer(size_t a, size_t b) const;
  bool persists(size_t tensor) const;
  std::span<int32_t> writers(size_t tensor);
  void begin_repetition(const Kernel& kernel, int64_t repetition);
  void check_alive(const Kernel& kernel, size_t tensor) const;
  void check_holds(size_t tensor, bool any_of_its_buffer, const char* who, const std::string& name);
  void put(size_t tensor, int64_t moment, const char* who, const std::string& name);

  NullTarget target_;
  const Plan* plan_ = nullptr;
  std::vector<Memory> memories_;
  std::vector<Piece> pieces_;       // per tensor
  std::vector<size_t> persistent_;  // state and carried tensors
  std::vector<Kernel> kernels_;
  std::vector<std::byte> staging_;
  const PlanPhase* running_phase_ = nullptr;
  int64_t running_repetition_ = -1, last_moment_ = -1;
  int64_t enqueued_ = 0;
};

}  // namespace snug
