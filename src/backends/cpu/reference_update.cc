// Reference kernels: gradient norm, clipping and AdamW.
#include <cmath>
#include <cstring>
#include <optional>

#include "backends/cpu/reference.h"
#include "backends/cpu/update_codes.h"
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

struct NarrowGradient {
  static constexpr size_t kTypeOutput = 0;
  template <typename A>
  static void run(const Call& call, bool) {
    const auto* wide = call.input<Statistic<A>>(0);
    A* narrow = call.output<A>(0);
    for (int64_t i = 0, n = call.output_shape(0).elements(); i < n; ++i) narrow[i] = store<A>(wide[i]);
  }
};

struct UpdateControl {
  template <typename A>
  static void run(const Call& call, bool) {
    using S = Statistic<A>;
    const S* hyperparameters = call.input<S>(0);
    S* control = call.output<S>(0);
    const double limit = number(call.attributes, "max_grad_norm");
    // Gradients come multiplied by the loss scale: adamw's factor takes it away with the clipping.
    const bool scaled = call.attributes.integer_or("scaled", 0) != 0;
    const double scale = scaled ? double{*call.input<S>(1)} : 1.0;
    const size_t first_sum = scaled ? 2 : 1;
    double sum = 0;
    int64_t first = -1;
    for (size_t i = first_sum; i < call.inputs.size(); ++i) {
      const double s = *call.input<double>(i);
      if (first < 0 && !std::isfinite(s)) first = static_cast<int64_t>(i - first_sum);
      sum += s;
    }
    const double norm = std::sqrt(sum) / scale;
    control[kClip] = static_cast<S>((limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0) / scale);
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

// One moment of one call, read and written a block of kMomentBlock elements at a time: f32 (f64 in f64), bf16 rounded
// stochastically, or codes of `map` with a scale a block.
template <typename S>
class Moment {
 public:
  Moment(const Call& call, size_t output, const MomentMap& map)
      : array_(call.outputs.at(output)), map_(map), elements_(array_.elements()) {
    if (array_.type.dtype == DType::kU8)
      scales_ = call.output<float>(AdamwPositions(call.attributes, DType::kU8).scales + output - 1);
  }

  // Elements [first, min(first + kMomentBlock, all)).
  void read(int64_t first, S* values) const {
    for (int64_t i = first; i < last(first); ++i) {
      S& value = values[i - first];
      if (scales_ != nullptr)
        value = map_.values[array_.as<uint8_t>()[i]] * scales_[first / kMomentBlock];
      else if (array_.type.dtype == DType::kBF16)
        value = widen(array_.as<BFloat16>()[i]);
      else
        value = array_.as<S>()[i];
    }
  }
  // `random(i)`: 16 bits for element i, asked for bf16 alone.
  template <typename Random>
  void write(int64_t first, const S* values, const Random& random) const {
    float scale = 0;
    if (scales_ != nullptr) {
      uint32_t largest = 0;
      for (int64_t i = first; i < last(first); ++i)
        largest =
            std::max(largest, std::bit_cast<uint32_t>(static_cast<float>(values[i - first])) & 0x7FFFFFFFu);
      scale = scales_[first / kMomentBlock] = moment_scale(largest);
    }
    for (int64_t i = first; i < last(first); ++i) {
      const S value = values[i - first];
      if (scales_ != nullptr)
        array_.as<uint8_t>()[i] = scale == 0 ? uint8_t{0} : code(static_cast<float>(value), scale);
      else if (array_.type.dtype == DType::kBF16)
        array_.as<BFloat16>()[i] = narrow_stochastic(static_cast<float>(value), random(i));
      else
        array_.as<S>()[i] = value;
    }
  }

 private:
  int64_t last(int64_t first) const { return std::min(first + kMomentBlock, elements_); }
  // The nearest, but of v no 0 for what is above it.
  uint8_t code(float value, float scale) const {
    const uint8_t nearest = map_.code(value / scale);
    return !map_.is_signed && value > 0 ? std::max<uint8_t>(nearest, 1) : nearest;
  }

  const Operand& array_;
  const MomentMap& map_;
  float* scales_ = nullptr;
  int64_t elements_;
};

// PyTorch's order: decay, first moment (lerp), second moment, step. A is the weight's type: bf16 for a split master and for none.
struct Adamw {
  template <typename A>
  static void run(const Call& call, bool) {
    using S = Statistic<A>;
    const bool narrow_gradient = call.inputs.at(3).type.dtype == DType::kBF16;
    const auto gradient_of = [&](int64_t i) -> S {
      return narrow_gradient ? S{widen(call.input<BFloat16>(3)[i])} : call.input<S>(3)[i];
    };
    const S* control = call.input<S>(5);
    int32_t& moved = *call.output<int32_t>(3);
    moved = 0;
    if (control[kApply] == 0) return;
    const AdamwScalars<S> s(call.attributes, call.input<S>(4), control);
    const Moment<S> m_of(call, 1, signed_moment_map()), v_of(call, 2, unsigned_moment_map());
    std::optional<UpdateDraws> draws;
    if (call.attributes.has("stream"))
      draws.emplace(
          call.input<uint32_t>(AdamwPositions(call.attributes, call.outputs[1].type.dtype).randomness),
          call.attributes.integer("stream"));
    A* weight = call.output<A>(0);
    const bool narrow = call.attributes.integer_or("narrow", 0) != 0;
    const bool in_f16 = narrow && call.outputs.at(4).type.dtype == DType::kF16;
    BFloat16* copy = narrow && !in_f16 ? call.output<BFloat16>(4) : nullptr;
    Float16* copy_f16 = in_f16 ? call.output<Float16>(4) : nullptr;
    const int64_t elements = call.output_shape(0).elements();
    for (int64_t first = 0; first < elements; first += kMomentBlock) {
      S ms[kMomentBlock] = {}, vs[kMomentBlock] = {};
      m_of.read(first, ms);
      v_of.read(first, vs);
      for (int64_t i = first; i < std::min(first + kMomentBlock, elements); ++i) {
        S &m = ms[i - first], &v = vs[i - first];
        const S gradient = gradient_of(i) * s.clip, before = load_weight(call, weight, i);
        S value = before * s.decay;
        m = m + s.one_minus_beta1 * (gradient - m);
        v = v * s.beta2 + s.one_minus_beta2 * gradient * gradient;
        value = value - s.step_size * (m / (std::sqrt(v) / s.correction2_root + s.eps));
        const S after = store_weight(call, weight, i, value, draws);
        if (std::memcmp(&before, &after, sizeof(S)) != 0) moved = 1;
        if (copy != nullptr) copy[i] = narrow_weight(static_cast<float>(value));
        if (copy_f16 != nullptr) copy_f16[i] = narrow_to_f16(static_cast<float>(value));
      }
      m_of.write(first, ms,
                 [&](int64_t i) { return draws->moments.word(static_cast<uint64_t>(i)) & 0xFFFF; });
      v_of.write(first, vs, [&](int64_t i) { return draws->moments.word(static_cast<uint64_t>(i)) >> 16; });
    }
  }

 private:
  using Draws = std::optional<UpdateDraws>;

  template <typename A>
  static A load_weight(const Call&, const A* weight, int64_t i) {
    return weight[i];
  }
  // Returns what the stored weight reads back as.
  template <typename A>
  static A store_weight(const Call&, A* weight, int64_t i, A value, const Draws&) {
    return weight[i] = value;
  }
  static bool is_split(const Call& call) { return call.attributes.integer_or("split", 0) != 0; }
  // An f16 weight is the copy of a whole master: shape rules give no such operation.
  static float load_weight(const Call& call, const Float16*, int64_t) {
    throw_internal("{}: the master is f16, expected f32", call.name);
  }
  static float store_weight(const Call& call, Float16*, int64_t, float, const Draws&) {
    throw_internal("{}: the master is f16, expected f32", call.name);
  }
  static float load_weight(const Call& call, const BFloat16* weight, int64_t i) {
    if (!is_split(call)) return widen(weight[i]);
    uint16_t low;
    std::memcpy(&low, call.output<uint8_t>(4) + 2 * i, 2);
    return join_halves(weight[i], low);
  }
  static float store_weight(const Call& call, BFloat16* weight, int64_t i, float value, const Draws& draws) {
    if (!is_split(call)) {
      weight[i] = call.attributes.word("rounding") == "stochastic"
                      ? narrow_stochastic(value, draws->weight.word(static_cast<uint64_t>(i)))
                      : narrow_weight(value);
      return widen(weight[i]);
    }
    weight[i] = narrow_weight(value);
    const uint16_t low = low_half(value);
    std::memcpy(call.output<uint8_t>(4) + 2 * i, &low, 2);
    return value;
  }
};

}  // namespace

std::span<const KernelEntry> update_entries() {
  static constexpr KernelEntry kEntries[] = {
      entry<NarrowGradient>("narrow_gradient"),
      entry<SumSquares>("sum_squares"),
      entry<UpdateControl>("update_control"),
      entry<UpdateGate>("update_gate"),
      entry<Adamw>("adamw"),
  };
  return kEntries;
}

}  // namespace snug::cpu::reference
