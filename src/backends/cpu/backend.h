// backends/cpu/backend.h — the CPU backend: one arena, kernels bound once, everything done at once
//
// Lanes and events are accepted and need nothing: `enqueue` returns when the operation is done, on the calling thread and its OpenMP
// threads. Use one CpuBackend from one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/target.h"
#include "base/allocator.h"

namespace snug::cpu {

class CpuBackend : public Backend {
 public:
  // Warms up (see target.h): afterwards threads and library buffers exist.
  explicit CpuBackend(const Dispatch& dispatch) : CpuBackend(dispatch, warm_up(dispatch)) {}
  // With rates from elsewhere; measures nothing.
  CpuBackend(const Dispatch& dispatch, const CpuRates& rates);

  const CpuTarget& target() const override { return target_; }
  // What the target answers by from now on (see target.h).
  void set_costs(std::shared_ptr<const MeasuredCosts> costs) { target_.set_costs(std::move(costs)); }
  void reserve(const Plan& plan, MemoryId memory) override;
  KernelId bind(const Plan& plan, const PlanOp& op) override;
  Event enqueue(KernelId kernel, LaneId lane, std::span<const Event> waits, int64_t repetition) override;
  void wait(Event) override {}
  void write(const PlanTensor& tensor, int64_t begin, std::span<const std::byte> source) override;
  void read(const PlanTensor& tensor, int64_t begin, std::span<std::byte> destination) override;
  std::span<std::byte> host_view(const PlanTensor& tensor) override;

  // Bytes of all arenas that are reserved and touched.
  Bytes arena_bytes() const;

  // What the libraries take from the heap at most while any operation of `plan` runs, and give back. It lies outside the arena and is not
  // resident between kernels.
  Bytes library_bytes(const Plan& plan) const;

  // Huge pages for arenas reserved from now on. Asked for by default: about 2 % of a step, and three times faster to touch.
  void set_huge_pages(HugePages huge_pages) { huge_pages_ = huge_pages; }

 private:
  struct Bound {
    std::unique_ptr<Kernel> kernel;
    bool overwrite_first = false;
  };

  // The tensor's bytes. Throws InternalError when they leave its memory's arena.
  std::span<std::byte> bytes_of(const PlanTensor& tensor) const;
  std::span<std::byte> range_of(const PlanTensor& tensor, int64_t begin, size_t count) const;

  CpuTarget target_;
  HugePages huge_pages_ = HugePages::kOn;
  std::vector<Reservation> arenas_;  // by memory; size 0 until reserved
  std::vector<Bound> kernels_;       // by KernelId
};

}  // namespace snug::cpu
