// backends/cpu/dispatch.h — the one place that decides which class of processor this run computes for
#pragma once

#include <string>

namespace snug::cpu {

// Each class includes the ones before it. Neither is the fallback of another: each has its own way to a fast bf16 product.
enum class CpuClass { kAvx2, kAvx512, kAvx512Bf16 };

struct Dispatch {
  CpuClass cpu_class = CpuClass::kAvx2;
  int threads = 1;     // OpenMP threads of every kernel
  std::string reason;  // why this class: "processor has avx512_bf16" or "limited by SNUG_MAX_CPU_CLASS=avx2"

  // oneDNN multiplies bf16 directly. Otherwise bf16 panels are widened and multiplied in f32.
  bool native_bf16_products() const { return cpu_class == CpuClass::kAvx512Bf16; }
};

std::string cpu_class_name(CpuClass cpu_class);  // "avx2", "avx512", "avx512_bf16"

// Reads the processor, SNUG_MAX_CPU_CLASS (avx2 | avx512 | avx512_bf16) and ONEDNN_MAX_CPU_ISA (products follow it), and limits
// Highway's targets to the class. Throws UserError(kUsage) for an unknown name, for a class above the processor's, and for a processor
// without AVX2 and FMA, each naming what was found. Call once before any kernel is made.
Dispatch choose_dispatch(int threads);

}  // namespace snug::cpu
