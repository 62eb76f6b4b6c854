#include "backends/cpu/target.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "backends/cpu/kernel_list.h"
#include "backends/cpu/onednn.h"
#include "base/errors.h"

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

// Priced operations by all that the price depends on.
class CpuTarget::Memory {
 public:
  // The answer for the operation, made by `price` where it is new.
  template <typename Price>
  const Priced& find_or_add(const OpQuery& query, const OpCost& cost, const Price& price) {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = known_.equal_range(hash_of(query));
    for (auto at = first; at != last; ++at)
      if (at->second.is(query, cost)) return at->second.priced;
    const auto added = known_.emplace(hash_of(query), Known{std::string(query.op),
                                                            {query.inputs.begin(), query.inputs.end()},
                                                            {query.outputs.begin(), query.outputs.end()},
                                                            query.attributes,
                                                            cost,
                                                            price()});
    return added->second.priced;
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    known_.clear();
  }

 private:
  struct Known {
    std::string op;
    std::vector<OperandType> inputs, outputs;
    Attributes attributes;
    OpCost cost;
    Priced priced;

    bool is(const OpQuery& query, const OpCost& other) const {
      return op == query.op && cost.flops == other.flops && cost.bytes == other.bytes &&
             std::equal(inputs.begin(), inputs.end(), query.inputs.begin(), query.inputs.end()) &&
             std::equal(outputs.begin(), outputs.end(), query.outputs.begin(), query.outputs.end()) &&
             attributes == query.attributes;
    }
  };

  static size_t hash_of(const OpQuery& query) {
    size_t hash = std::hash<std::string_view>()(query.op);
    const auto add = [&](std::span<const OperandType> operands) {
      for (const OperandType& type : operands)
        for (int64_t dim : type.shape.dims()) hash = hash * 1099511628211u + static_cast<size_t>(dim);
    };
    add(query.inputs);
    add(query.outputs);
    return hash;
  }

  std::mutex mutex_;
  std::unordered_multimap<size_t, Known> known_;
};

CpuTarget::CpuTarget(Dispatch dispatch, CpuRates rates)
    : dispatch_(std::move(dispatch)), rates_(rates), memory_(std::make_unique<Memory>()) {}

CpuTarget::~CpuTarget() = default;

void CpuTarget::set_costs(std::shared_ptr<const MeasuredCosts> costs) {
  costs_ = std::move(costs);
  memory_->clear();
}

const CpuTarget::Priced& CpuTarget::priced(const OpQuery& query, const OpCost& cost) const {
  require(costs_ != nullptr, "{}: priced without measured costs", query.op);
  return memory_->find_or_add(query, cost, [&] {
    Priced priced{cost_sample(query, cost, dispatch_, costs_->rates()), 0};
    priced.seconds = priced.sample.factor * costs_->sample_seconds(priced.sample, dispatch_);
    return priced;
  });
}

double CpuTarget::seconds(const OpQuery& query, const OpCost& cost) const {
  if (costs_ == nullptr) return roofline_seconds(query, cost, dispatch_, rates_);
  return priced(query, cost).seconds;
}

}  // namespace snug::cpu
