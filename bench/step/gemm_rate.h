// bench/step/gemm_rate.h — the rate that oneDNN reaches on one large product: the yardstick of a step
#pragma once

#include <memory>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/onednn.h"
#include "base/allocator.h"
#include "compile/options.h"

namespace snug::bench {

// A 4096³ product by the library and threads that the step uses. Its matrices (192 MiB in f32) live as long as it does.
class GemmRate {
 public:
  static constexpr int64_t kSize = 4096;

  // For bf16 on a processor with bf16 products, the faster of both types (one trial of each); otherwise f32. Runs each type once
  // beforehand, so that no product measured later is a first one.
  GemmRate(const cpu::Dispatch& dispatch, Precision precision);

  DType dtype() const { return dtype_; }
  // FLOP/s of one product now; multiply and add count as two.
  double measure();

 private:
  void run();

  Reservation matrices_;  // A, B, C one behind the other
  std::unique_ptr<cpu::Matmul> bf16_;
  Reservation scratch_;
  DType dtype_ = DType::kF32;
};

}  // namespace snug::bench
