// Reference kernels: gradient norm, clipping and AdamW.
#include <cmath>
#include <cstring>

#include "backends/cpu/reference.h"
#include "backends/cpu/update_rules.h"

namespace snug::cpu::reference {
namespace {

struct SumSquares {
  template <typename A>
  static void run(const Call& call, bool) {
    const A* g = call.input<A>(0);
    const int64_t elements = call.input_shape(0).elements();
    double total = 0;
    for (int64_t first = 0; first < elements; first += kSumBlock) {
      double lanes[kSumLanes] = {};
      for (int64_t i = first, last = std::min(first + kSumBlock, elements); i < last; ++i) {
        const double value = load(g[i]);
        lanes[(i - first) % kSumLanes] += value * value;
      }
      total += add_lanes(lanes);
    }
    call.output<double>(0)[0] = total;
  }
};

struct UpdateControl {
  template <typename A>
  static void run(const Call& call, bool) {
    using S = Statistic<A>;
    const S* hyperparameters = call.input<S>(0);
    S* control = call.output<S>(0);
    const double limit = number(call.attributes, "max_grad_norm");
    double sum = 0;
    int64_t first = -1;
    for (size_t i = 1; i < call.inputs.size(); ++i) {
      const double s = *call.input<double>(i);
      if (first < 0 && !std::isfinite(s)) first = static_cast<int64_t>(i) - 1;
      sum += s;
    }
    const double norm = std::sqrt(sum);
    control[kClip] = static_cast<S>(limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0);
    control[kApply] = hyperparameters[kLossIsFinite] != 0 && first < 0 ? S{1} : S{0};
    control[kNorm] = static_cast<S>(norm);
    control[kFirstNonFinite] = static_cast<S>(first);
  }
};

struct UpdateGate {
  template <typename A>
  static void run(const Call& call, bool) {
    using S = Statistic<A>;
    const std::string& after = call.attributes.word("after");
    const S* before = after == "nothing" ? nullptr : call.input<S>(1);
    const size_t first_sum = before == nullptr ? 1 : 2;
    S clip = 1, passed = 0, first = -1;
    bool open = std::isfinite(*call.input<S>(0));
    if (before != nullptr) {
      clip = before[kClip];
      open = open && before[kApply] != 0;
      if (after == "gate") passed = before[kPassed];
    }
    for (size_t i = first_sum; i < call.inputs.size(); ++i)
      if (first < 0 && !std::isfinite(*call.input<double>(i))) first = static_cast<S>(i - first_sum);
    S* gate = call.output<S>(0);
    gate[kClip] = clip;
    gate[kApply] = open && first < 0 ? S{1} : S{0};
    gate[kPassed] = passed + gate[kApply];
    gate[kFirstNonFinite] = first;
  }
};

// PyTorch's order: decay, first moment (lerp), second moment, step. A is the weight's type: bf16 for a split master.
struct Adamw {
  template <typename A>
  static void run(const Call& call, bool) {
    using S = Statistic<A>;
    S* m = call.output<S>(1);
    S* v = call.output<S>(2);
    const S* g = call.input<S>(3);
    const S* control = call.input<S>(5);
    int32_t& moved = *call.output<int32_t>(3);
    moved = 0;
    if (control[kApply] == 0) return;
    const AdamwScalars<S> s(call.attributes, call.input<S>(4), control);
    A* weight = call.output<A>(0);
    BFloat16* copy = call.attributes.integer_or("narrow", 0) != 0 ? call.output<BFloat16>(4) : nullptr;
    for (int64_t i = 0, n = call.output_shape(0).elements(); i < n; ++i) {
      const S gradient = g[i] * s.clip, before = load_weight(call, weight, i);
      S value = before * s.decay;
      m[i] = m[i] + s.one_minus_beta1 * (gradient - m[i]);
      v[i] = v[i] * s.beta2 + s.one_minus_beta2 * gradient * gradient;
      value = value - s.step_size * (m[i] / (std::sqrt(v[i]) / s.correction2_root + s.eps));
      store_weight(call, weight, i, value);
      if (std::memcmp(&before, &value, sizeof(S)) != 0) moved = 1;
      if (copy != nullptr) copy[i] = narrow_weight(static_cast<float>(value));
    }
  }

 private:
  template <typename A>
  static A load_weight(const Call&, const A* weight, int64_t i) {
    return weight[i];
  }
  template <typename A>
  static void store_weight(const Call&, A* weight, int64_t i, A value) {
    weight[i] = value;
  }
  static float load_weight(const Call& call, const BFloat16* weight, int64_t i) {
    uint16_t low;
    std::memcpy(&low, call.output<uint8_t>(4) + 2 * i, 2);
    return join_halves(weight[i], low);
  }
  static void store_weight(const Call& call, BFloat16* weight, int64_t i, float value) {
    weight[i] = narrow_weight(value);
    const uint16_t low = low_half(value);
    std::memcpy(call.output<uint8_t>(4) + 2 * i, &low, 2);
  }
};

}  // namespace

std::span<const KernelEntry> update_entries() {
  static constexpr KernelEntry kEntries[] = {
      entry<SumSquares>("sum_squares"),
      entry<UpdateControl>("update_control"),
      entry<UpdateGate>("update_gate"),
      entry<Adamw>("adamw"),
  };
  return kEntries;
}

}  // namespace snug::cpu::reference
