#include "backends/cpu/target.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>

#include "backends/cpu/kernel_list.h"
#include "backends/cpu/onednn.h"

namespace snug::cpu {
namespace {

// Kernels of a thread use less stack than this below the frame that runs them; touching it once makes the
// pages resident before anything is measured.
constexpr size_t kStackBytes = 256 * 1024;

[[gnu::noinline]] void touch_stack() {
  std::byte stack[kStackBytes];
  for (size_t at = 0; at < kStackBytes; at += 4096) stack[at] = std::byte{1};
  asm volatile("" : : "r"(stack) : "memory");  // the writes must happen
}

double copy_bytes_per_second(int threads) {
  constexpr size_t kBytes = 16 * 1024 * 1024;
  constexpr int kRepeats = 3;
  const auto from = std::make_unique<std::byte[]>(kBytes), to = std::make_unique<std::byte[]>(kBytes);
  double best_seconds = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
#pragma omp parallel num_threads(threads)
    {
      const size_t share = kBytes / static_cast<size_t>(omp_get_num_threads());
      const size_t first = share * static_cast<size_t>(omp_get_thread_num());
      std::memcpy(to.get() + first, from.get() + first, share);
    }
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    best_seconds = std::min(best_seconds, spent.count());
  }
  return 2.0 * kBytes / best_seconds;
}

}  // namespace

CpuRates warm_up(const Dispatch& dispatch) {
  omp_set_dynamic(0);
  omp_set_num_threads(dispatch.threads);
#pragma omp parallel num_threads(dispatch.threads)
  touch_stack();
  CpuRates rates;
  rates.product_flops_per_second = warm_up_products(dispatch.threads);
  rates.bytes_per_second = copy_bytes_per_second(dispatch.threads);
  return rates;
}

std::optional<std::string> CpuTarget::refusal(const OpQuery& query) const {
  const std::vector<KernelOption> options = kernel_options(query, dispatch_);
  if (options.empty()) return "the CPU backend has no operation of this name";
  for (const KernelOption& option : options)
    if (!option.refusal) return std::nullopt;
  return refusals_text(options);
}

Bytes CpuTarget::scratch_bytes(const OpQuery& query) const {
  return pick_kernel(query, dispatch_).scratch_bytes(query, dispatch_);
}

double CpuTarget::seconds(const OpQuery& query, const OpCost& cost) const {
  if (costs_ == nullptr) return roofline_seconds(query, cost, dispatch_, rates_);
  const CostSample sample = cost_sample(query, cost, dispatch_, costs_->rates());
  return sample.factor * costs_->sample_seconds(sample, dispatch_);
}

}  // namespace snug::cpu
