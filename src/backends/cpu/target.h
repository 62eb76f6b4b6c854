// backends/cpu/target.h — what the planner may ask of the CPU backend
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/measured_costs.h"
#include "backends/cpu/roofline.h"
#include "plan/target.h"

namespace snug::cpu {

// Makes OpenMP's threads and oneDNN's internal buffers exist, as every later step will have them, and
// measures on the way. Takes about 0.2 s on two cores and 32 MiB while it runs. Whoever measures what lies
// outside the arena calls this first.
CpuRates warm_up(const Dispatch& dispatch);

class CpuTarget : public Target {
 public:
  CpuTarget(Dispatch dispatch, CpuRates rates);
  ~CpuTarget() override;
  CpuTarget(const CpuTarget&) = delete;
  CpuTarget& operator=(const CpuTarget&) = delete;

  std::string name() const override { return "cpu " + cpu_class_name(dispatch_.cpu_class); }
  std::optional<std::string> refusal(const OpQuery& query) const override;
  Bytes scratch_bytes(const OpQuery& query) const override;
  Bytes alignment() const override { return Bytes(64); }
  // By measured costs where there are any, otherwise by the roofline.
  double seconds(const OpQuery& query, const OpCost& cost) const override;

  // From now on `costs` answer, with their rates in place of this target's. nullptr: the roofline again. To be called again after every
  // change of `costs` that changes an answer.
  void set_costs(std::shared_ptr<const MeasuredCosts> costs);
  const MeasuredCosts* costs() const { return costs_.get(); }

  // One operation by measured costs.
  struct Priced {
    CostSample sample;
    double seconds = 0;  // of the operation
  };
  // What `seconds` answers by; needs costs. Remembered, for compilers ask about the same operation thousands of times; valid until
  // set_costs. Safe from several threads.
  const Priced& priced(const OpQuery& query, const OpCost& cost) const;

  const Dispatch& dispatch() const { return dispatch_; }
  const CpuRates& rates() const { return rates_; }

 private:
  Dispatch dispatch_;
  CpuRates rates_;
  std::shared_ptr<const MeasuredCosts> costs_;
  class Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace snug::cpu
