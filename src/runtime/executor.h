// runtime/executor.h — runs the phases of a plan on a backend
//
// Takes a Plan and a Backend and nothing else. The constructor reserves every memory and binds every
// operation of every phase; afterwards running a phase, writing inputs and reading results allocate
// nothing. Operations go to one lane in the order of the plan, which keeps their order: none waits for an
// event.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backends/backend.h"

namespace snug {

// Is `op` carried out by the host (read_tensor, write_tensor) and not by a backend?
bool is_host_operation(const PlanOp& op);

// Watches an executor: called around every operation, with everything before it completed. For canary.h and
// tests.
class ExecutionObserver {
 public:
  virtual ~ExecutionObserver() = default;
  virtual void before_phase(const PlanPhase& phase, int64_t repetition) = 0;
  // `moment` is the operation's number in the plan.
  virtual void before_operation(const PlanPhase& phase, const PlanOp& op, int64_t moment,
                                int64_t repetition) = 0;
  virtual void after_operation(const PlanPhase& phase, const PlanOp& op, int64_t moment,
                               int64_t repetition) = 0;
  virtual void after_phase(const PlanPhase& phase, int64_t repetition) = 0;
  // The host wrote into `tensor` through the executor.
  virtual void after_write(PlanTensorId tensor) = 0;
};

class Executor {
 public:
  // Carries out one host operation: streams the tensor through Executor::write or read. Called in the order
  // of the plan with everything before it completed.
  using HostOperation = std::function<void(const PlanOp&)>;

  // Plan and backend must outlive the executor. Throws what Backend::reserve and Backend::bind throw.
  Executor(const Plan& plan, Backend& backend, HostOperation host_operation = {});
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  const Plan& plan() const { return plan_; }
  Backend& backend() const { return backend_; }

  // Runs all operations of a phase and waits for the last. `repetition` counts the phase's repeats from 0.
  // Throws InternalError for a phase that the plan does not have and for a host operation when the
  // constructor got none.
  void run_phase(std::string_view name, int64_t repetition = 0);

  // The tensor of that name; InternalError when the plan has none. O(1).
  PlanTensorId tensor(std::string_view name) const;

  // The whole of an input of some phase; the size must be the tensor's. For ids of tensors see tensor().
  void write_input(PlanTensorId input, std::span<const std::byte> source);
  void write_input(std::string_view name, std::span<const std::byte> source) {
    write_input(tensor(name), source);
  }
  // The whole of a result of some phase; the size must be the tensor's.
  void read_result(PlanTensorId result, std::span<std::byte> destination);
  void read_result(std::string_view name, std::span<std::byte> destination) {
    read_result(tensor(name), destination);
  }

  // Any part of any tensor, from byte `begin` of it: for host operations.
  void write(PlanTensorId tensor, int64_t begin, std::span<const std::byte> source);
  void read(PlanTensorId tensor, int64_t begin, std::span<std::byte> destination);

  // At most one observer; nullptr takes it away. It makes every operation wait for the one before.
  void observe(ExecutionObserver* observer) { observer_ = observer; }

  // Time of each kind of operation since the last reset. Measuring waits for every operation.
  struct OperationTime {
    std::string_view op;
    int64_t count = 0;
    double seconds = 0;
    double flops = 0;
  };
  void measure(bool on) { measure_ = on; }
  void reset_times();
  // In the order in which the kinds first stand in the plan; with zeros for what has not run.
  std::span<const OperationTime> times() const { return times_; }

 private:
  struct BoundOp {
    KernelId kernel;  // invalid: carried out by the host
    size_t kind = 0;  // index into times_
  };

  void run_operation(const PlanPhase& phase, const PlanOp& op, const BoundOp& bound, int64_t repetition);

  const Plan& plan_;
  Backend& backend_;
  HostOperation host_operation_;
  std::unordered_map<std::string_view, PlanTensorId> tensors_;
  std::vector<std::vector<BoundOp>> bound_;  // per phase, per operation
  std::vector<bool> is_input_, is_result_;   // per tensor
  ExecutionObserver* observer_ = nullptr;
  bool measure_ = false;
  std::vector<OperationTime> times_;
  Event last_;
};

}  // namespace snug
