// Reference kernels: the head and the loss, one row of logits at a time.
//
// loss = inverse_tokens · Σ (lse − logit[target]) over supervised rows;  d_logits = inverse_tokens · loss_scale ·
// (softmax − onehot), rows of zeros where nothing is supervised. Logits are rounded to f32, their gradients to f32 or,
// where x is bf16, to bf16, as the plain decomposition stores them.
#include <algorithm>
#include <cmath>

#include "backends/cpu/reference.h"

namespace snug::cpu::reference {
namespace {

constexpr int32_t kIgnored = -100;  // the target of an unsupervised position

// Logits of one row in the statistic type: logits[v] = x · w[v]
template <typename A>
void row_logits(const A* x, const A* w, int64_t vocabulary, int64_t channels, double* logits) {
  for (int64_t v = 0; v < vocabulary; ++v) {
    double sum = 0;
    for (int64_t c = 0; c < channels; ++c) sum += double{load(x[c])} * double{load(w[v * channels + c])};
    logits[v] = store<Statistic<A>>(sum);
  }
}

template <typename T>
double log_sum_exp(const T* logits, int64_t vocabulary) {
  double largest = -INFINITY, sum = 0;
  for (int64_t v = 0; v < vocabulary; ++v) largest = std::max(largest, double{logits[v]});
  for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(logits[v] - largest);
  return largest + std::log(sum);
}

bool supervised(const Call& call, int32_t target, int64_t vocabulary) {
  require(target == kIgnored || (target >= 0 && target < vocabulary),
          "{}: target {} is neither -100 nor in [0, {})", call.name, target, vocabulary);
  return target != kIgnored;
}

// inverse_tokens · loss_scale, of which the second may be absent.
template <typename S>
double gradient_factor(const Call& call, size_t inverse_tokens) {
  const double inverse = *call.input<S>(inverse_tokens);
  return call.attributes.integer_or("scaled", 0) != 0 ? inverse * double{*call.input<S>(inverse_tokens + 1)}
                                                      : inverse;
}

// What the gradient of a logit is stored in, for activations of type A.
template <typename A>
using LogitGradient = std::conditional_t<std::is_same_v<A, BFloat16>, BFloat16, Statistic<A>>;

struct HeadLoss {
  static int64_t scratch_elements(const OpQuery& query) { return query.inputs[1].shape.dim(0); }
  template <typename A>
  static void run(const Call& call, bool) {
    const A *x = call.input<A>(0), *w = call.input<A>(1);
    const int32_t* targets = call.input<int32_t>(2);
    const int64_t vocabulary = call.input_shape(1).dim(0), channels = call.input_shape(1).dim(1);
    double sum = 0;
    for (int64_t row = 0, rows = call.input_shape(0).rows(); row < rows; ++row) {
      if (!supervised(call, targets[row], vocabulary)) continue;
      row_logits(x + row * channels, w, vocabulary, channels, call.scratch());
      sum += log_sum_exp(call.scratch(), vocabulary) - call.scratch()[targets[row]];
    }
    call.output<Statistic<A>>(0)[0] = store<Statistic<A>>(sum * *call.input<Statistic<A>>(3));
  }
};

struct HeadLossGradient {
  // one row of d_logits, one row of d_x
  static int64_t scratch_elements(const OpQuery& query) {
    return query.inputs[1].shape.dim(0) + query.inputs[1].shape.dim(1);
  }
  template <typename A>
  static void run(const Call& call, bool overwrite) {
    using S = Statistic<A>;
    const A *x = call.input<A>(0), *w = call.input<A>(1);
    const int32_t* targets = call.input<int32_t>(2);
    const double inverse_tokens = *call.input<S>(3), factor = gradient_factor<S>(call, 3);
    A* d_x = call.output<A>(1);
    const int64_t vocabulary = call.input_shape(1).dim(0), channels = call.input_shape(1).dim(1);
    S* d_w = call.attributes.integer_or("dweight", 0) != 0 ? call.output<S>(2) : nullptr;
    if (d_w != nullptr && !call.adds(overwrite)) std::fill_n(d_w, vocabulary * channels, S{0});
    double *logits = call.scratch(), *gradient = logits + vocabulary, sum = 0;
    for (int64_t row = 0, rows = call.input_shape(0).rows(); row < rows; ++row) {
      std::fill_n(gradient, channels, 0.0);
      if (supervised(call, targets[row], vocabulary)) {
        row_logits(x + row * channels, w, vocabulary, channels, logits);
        const double lse = log_sum_exp(logits, vocabulary);
        sum += lse - logits[targets[row]];
        for (int64_t v = 0; v < vocabulary; ++v) {
          const double d_logit =
              rounded<LogitGradient<A>>(factor * (std::exp(logits[v] - lse) - (v == targets[row] ? 1.0 : 0.0)));
          for (int64_t c = 0; c < channels; ++c) {
            gradient[c] += d_logit * double{load(w[v * channels + c])};
            if (d_w != nullptr)
              d_w[v * channels + c] =
                  store<S>(d_w[v * channels + c] + d_logit * double{load(x[row * channels + c])});
          }
        }
      }
      for (int64_t c = 0; c < channels; ++c) d_x[row * channels + c] = store<A>(gradient[c]);
    }
    call.output<S>(0)[0] = store<S>(sum * inverse_tokens);
  }
};

struct CrossEntropy {
  template <typename A>
  static void run(const Call& call, bool) {
    const A* logits = call.input<A>(0);
    const int32_t* targets = call.input<int32_t>(1);
    const int64_t vocabulary = call.input_shape(0).last();
    double sum = 0;
    for (int64_t row = 0, rows = call.input_shape(0).rows(); row < rows; ++row)
      if (supervised(call, targets[row], vocabulary))
        sum += log_sum_exp(logits + row * vocabulary, vocabulary) - logits[row * vocabulary + targets[row]];
    call.output<A>(0)[0] = store<A>(sum * *call.input<A>(2));
  }
};

struct CrossEntropyBackward {
  template <typename A>
  static void run(const Call& call, bool) {
    if (call.attributes.word_or("out", "") == "bf16")
      write<A, BFloat16>(call);
    else
      write<A, A>(call);
  }

 private:
  template <typename A, typename Out>
  static void write(const Call& call) {
    const A* logits = call.input<A>(0);
    const int32_t* targets = call.input<int32_t>(1);
    const double factor = gradient_factor<A>(call, 2);
    Out* d_logits = call.output<Out>(0);
    const int64_t vocabulary = call.input_shape(0).last();
    for (int64_t row = 0, rows = call.input_shape(0).rows(); row < rows; ++row) {
      const A* from = logits + row * vocabulary;
      const bool counts = supervised(call, targets[row], vocabulary);
      const double lse = counts ? log_sum_exp(from, vocabulary) : 0;
      for (int64_t v = 0; v < vocabulary; ++v)
        d_logits[row * vocabulary + v] =
            counts ? store<Out>(factor * (std::exp(from[v] - lse) - (v == targets[row] ? 1.0 : 0.0)))
                   : Out{};
    }
  }
};

// Logits are stored in f32 whatever A is: logits of 16 bits do not exist.
template <typename Op>
struct FloatLogits : Op {
  template <typename A>
  static void run(const Call& call, bool overwrite) {
    if constexpr (!std::is_same_v<A, Statistic<A>>)
      throw_internal("{}: logits are {}, expected f32", call.name, dtype_name(dtype_of<A>()));
    else
      Op::template run<A>(call, overwrite);
  }
};

struct LastLogits {
  static int64_t scratch_elements(const OpQuery& query) { return query.inputs[1].shape.dim(0); }
  template <typename A>
  static void run(const Call& call, bool) {
    using S = Statistic<A>;
    const A *x = call.input<A>(0), *w = call.input<A>(1);
    S* logits = call.output<S>(0);
    const int64_t samples = call.input_shape(0).dim(0), positions = call.input_shape(0).dim(1);
    const int64_t vocabulary = call.input_shape(1).dim(0), channels = call.input_shape(1).dim(1);
    const int32_t position = *call.input<int32_t>(2);
    require(position >= 0 && position < positions, "{}: position {} is outside [0, {})", call.name, position,
            positions);
    for (int64_t b = 0; b < samples; ++b) {
      row_logits(x + (b * positions + position) * channels, w, vocabulary, channels, call.scratch());
      for (int64_t v = 0; v < vocabulary; ++v) logits[b * vocabulary + v] = static_cast<S>(call.scratch()[v]);
    }
  }
};

}  // namespace

std::span<const KernelEntry> head_entries() {
  static constexpr KernelEntry kEntries[] = {
      entry<HeadLoss>("head_loss"),
      entry<HeadLossGradient>("head_loss_gradient"),
      entry<FloatLogits<CrossEntropy>>("cross_entropy"),
      entry<FloatLogits<CrossEntropyBackward>>("cross_entropy_backward"),
      entry<LastLogits>("last_logits"),
  };
  return kEntries;
}

}  // namespace snug::cpu::reference
