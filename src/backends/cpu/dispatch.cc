#include "backends/cpu/dispatch.h"

#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "backends/cpu/onednn.h"
#include "base/errors.h"

namespace snug::cpu {
namespace {

constexpr std::array kClasses = {CpuClass::kAvx2, CpuClass::kAvx512, CpuClass::kAvx512Bf16};
constexpr const char* kLimitVariable = "SNUG_MAX_CPU_CLASS";

CpuClass processor_class() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    throw_user(ExitCode::kUsage, "this processor has no {}; Snug needs AVX2 and FMA",
               __builtin_cpu_supports("avx2") ? "FMA" : "AVX2");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd");
  if (!avx512) return CpuClass::kAvx2;
  return __builtin_cpu_supports("avx512bf16") ? CpuClass::kAvx512Bf16 : CpuClass::kAvx512;
}

CpuClass parse_limit(const std::string& text) {
  for (CpuClass c : kClasses)
    if (cpu_class_name(c) == text) return c;
  throw_user(ExitCode::kUsage, "{}: found \"{}\", expected avx2, avx512 or avx512_bf16", kLimitVariable,
             text);
}

// Element-wise kernels follow the class too: Highway is kept from every target above it, or given all of them
// back.
void limit_highway(CpuClass cpu_class) {
  hwy::SetSupportedTargetsForTest(0);
  if (cpu_class == CpuClass::kAvx2) {
    const int64_t above = HWY_AVX3 | HWY_AVX3_DL;
    hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~above);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace

std::string cpu_class_name(CpuClass cpu_class) {
  switch (cpu_class) {
    case CpuClass::kAvx2:
      return "avx2";
    case CpuClass::kAvx512:
      return "avx512";
    case CpuClass::kAvx512Bf16:
      return "avx512_bf16";
  }
  throw_internal("unknown processor class {}", static_cast<int>(cpu_class));
}

Dispatch choose_dispatch(int threads) {
  if (threads < 1) throw_user(ExitCode::kUsage, "threads: found {}, expected at least 1", threads);
  const CpuClass found = processor_class();
  Dispatch dispatch{found, threads, "processor has " + cpu_class_name(found)};
  if (const char* limit = std::getenv(kLimitVariable); limit != nullptr && *limit != '\0') {
    const CpuClass wanted = parse_limit(limit);
    if (wanted > found)
      throw_user(ExitCode::kUsage, "{}={}: this processor has only {}", kLimitVariable, limit,
                 cpu_class_name(found));
    if (wanted < found) dispatch.reason = fmt::format("limited by {}={}", kLimitVariable, limit);
    dispatch.cpu_class = wanted;
  }
  // A user's own ONEDNN_MAX_CPU_ISA is never raised.
  const std::optional<CpuClass> products = onednn_class();
  if (products.value_or(CpuClass::kAvx2) < dispatch.cpu_class) {
    dispatch.cpu_class = products.value_or(CpuClass::kAvx2);
    dispatch.reason =
        fmt::format("oneDNN is held to {} by ONEDNN_MAX_CPU_ISA", cpu_class_name(dispatch.cpu_class));
  } else if (products && *products > dispatch.cpu_class && !limit_onednn(dispatch.cpu_class)) {
    dispatch.reason += "; oneDNN had already chosen " + cpu_class_name(*products);
  }
  limit_highway(dispatch.cpu_class);
  return dispatch;
}

}  // namespace snug::cpu
