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

// PyTorch's order: decay, first moment (lerp), second moment, step.
struct Adamw {
  template <typename A>
  static void run(const Call& call, bool) {
    if constexpr (std::is_same_v<A, BFloat16>)
      throw_internal("{}: weight is bf16, expected f32", call.name);
    else
      update(call, call.output<A>(0), call.output<A>(1), call.output<A>(2));
  }

 private:
  template <typename A>
  static void update(const Call& call, A* weight, A* m, A* v) {
    const A* g = call.input<A>(3);
    const A* control = call.input<A>(5);
    int32_t& moved = *call.output<int32_t>(3);
    moved = 0;
    if (control[kApply] == 0) return;
    const AdamwScalars<A> s(call.attributes, call.input<A>(4), control);
    BFloat16* copy = call.attributes.integer_or("narrow", 0) != 0 ? call.output<BFloat16>(4) : nullptr;
    for (int64_t i = 0, n = call.output_shape(0).elements(); i < n; ++i) {
      const A gradient = g[i] * s.clip, before = weight[i];
      A value = before * s.decay;
      m[i] = m[i] + s.one_minus_beta1 * (gradient - m[i]);
      v[i] = v[i] * s.beta2 + s.one_minus_beta2 * gradient * gradient;
      value = value - s.step_size * (m[i] / (std::sqrt(v[i]) / s.correction2_root + s.eps));
      weight[i] = value;
      if (std::memcmp(&before, &value, sizeof(A)) != 0) moved = 1;
      if (copy != nullptr) copy[i] = narrow_weight(static_cast<float>(value));
    }
  }
};

}  // namespace

std::span<const KernelEntry> update_entries() {
  static constexpr KernelEntry kEntries[] = {
      entry<SumSquares>("sum_squares"),
      entry<UpdateControl>("update_control"),
      entry<Adamw>("adamw"),
  };
  return kEntries;
}

}  // namespace snug::cpu::reference
