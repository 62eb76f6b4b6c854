// runtime/canary.h — --check_memory: finds bytes of a real run that no operation was to change
//
// The null backend proves that a plan is right; this finds kernels that do not keep to it. Attach with
// executor.observe(&canary); a violation is an InternalError that names the operation and the tensor or byte.
//
//   values   Each living tensor has a checksum, taken when it was written. Before an operation its inputs must
//            still have theirs, after a phase all state and carried tensors and results: else some operation
//            since the writing has changed bytes that were not its own. The message says between which two.
//   guards   The kGuard bytes before and behind each output and scratch of an operation, as far as they are
//            not its own, are the same before and after it: a write past an end is caught where it happens.
//   dead     The bytes of a tensor are filled with 0xFF (a NaN in every floating type) when it dies, those
//            that are free at the start of a phase then: a use after death, or of an output that was not
//            written, becomes a NaN and not a plausible number.
//
// Cost in bytes read or written: per operation its inputs and outputs once (checksums), its dying tensors
// once (filling) and 4 kGuard an output; per repetition of a phase the persistent tensors twice and the
// free bytes of the arena once. About twice the time of a step. Uses Backend::read and write alone.
// Allocates while attached.
// Not done: a stray write into a living tensor far from the operation's outputs
// is found at the tensor's next use and not at the operation that did it; one into dead bytes is not found.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/executor.h"

namespace snug {

class Canary : public ExecutionObserver {
 public:
  static constexpr int64_t kGuard = 4096;

  Canary(const Plan& plan, Backend& backend);

  void before_phase(const PlanPhase& phase, int64_t repetition) override;
  void before_operation(const PlanPhase& phase, const PlanOp& op, int64_t moment,
                        int64_t repetition) override;
  void after_operation(const PlanPhase& phase, const PlanOp& op, int64_t moment, int64_t repetition) override;
  void after_phase(const PlanPhase& phase, int64_t repetition) override;
  void after_write(PlanTensorId tensor) override;

 private:
  struct Range {
    int64_t begin, end;
  };
  // What is known about a tensor's bytes since `written_at`; unknown when not valid.
  struct Known {
    bool valid = false;
    uint64_t checksum = 0;
    int64_t written_at = -1;  // moment; -1: by the host or before the canary was attached
  };
  struct Guard {
    MemoryId memory;
    Range range;
    std::vector<std::byte> before;
  };

  PlanTensor whole(MemoryId memory) const;
  Range range_of(PlanTensorId id) const;
  const std::vector<PlanTensorId>& buffer_of(PlanTensorId id) const;
  uint64_t checksum(PlanTensorId id);
  void learn(PlanTensorId id, int64_t moment);
  void verify(PlanTensorId id, const PlanPhase& phase, std::string_view where, int64_t moment);
  void fill(MemoryId memory, Range range);
  std::vector<Range> free_ranges(MemoryId memory, int64_t moment) const;
  std::string operation_at(int64_t moment) const;

  const Plan& plan_;
  Backend& backend_;
  std::vector<Known> known_;                        // per tensor
  std::vector<size_t> group_;                       // per tensor: index into buffers_
  std::vector<std::vector<PlanTensorId>> buffers_;  // tensors that share storage
  std::vector<std::vector<PlanTensorId>> dying_;    // per moment: tensors that live up to its end
  std::vector<Guard> guards_;                       // of the operation that runs
  std::vector<std::byte> piece_, pattern_;
};

}  // namespace snug
