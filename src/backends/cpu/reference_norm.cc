// Reference kernels: layer norm and RMS norm. Sums over channels and over rows are formed in f64.
#include <cmath>

#include "backends/cpu/reference.h"

namespace snug::cpu::reference {
namespace {

struct LayerNorm {
  template <typename A>
  static void run(const Call& call, bool) {
    using S = Statistic<A>;
    const A *x = call.input<A>(0), *w = call.input<A>(1), *bias = call.input<A>(2);
    A* y = call.output<A>(0);
    S *mean = call.output<S>(1), *rstd = call.output<S>(2);
    const double eps = number(call.attributes, "eps");
    const int64_t channels = call.input_shape(0).last();
    for (int64_t row = 0, rows = call.input_shape(0).rows(); row < rows; ++row) {
      const A* from = x + row * channels;
      double sum = 0, squares = 0;
      for (int64_t c = 0; c < channels; ++c) sum += load(from[c]);
      const double average = sum / static_cast<double>(channels);
      for (int64_t c = 0; c < channels; ++c) squares += (load(from[c]) - average) * (load(from[c]) - average);
      mean[row] = store<S>(average);
      rstd[row] = store<S>(1 / std::sqrt(squares / static_cast<double>(channels) + eps));
      for (int64_t c = 0; c < channels; ++c)
        y[row * channels + c] =
            store<A>((load(from[c]) - mean[row]) * rstd[row] * load(w[c]) + load(bias[c]));
    }
  }
};

// With n = (x−mean)·rstd and g = d_y·w:  d_x = rstd·(g − avg(g) − n·avg(g·n))
struct LayerNormDx {
  template <typename A>
  static void run(const Call& call, bool) {
    using S = Statistic<A>;
    const A *d_y = call.input<A>(0), *x = call.input<A>(1), *w = call.input<A>(2);
    const S *mean = call.input<S>(3), *rstd = call.input<S>(4);
    A* d_x = call.output<A>(0);
    const int64_t channels = call.input_shape(0).last();
    for (int64_t row = 0, rows = call.input_shape(0).rows(); row < rows; ++row) {
      const auto normalized = [&](int64_t c) {
        return (double{load(x[row * channels + c])} - mean[row]) * rstd[row];
      };
      const auto gradient = [&](int64_t c) { return double{load(d_y[row * channels + c])} * load(w[c]); };
      double sum = 0, projected = 0;
      for (int64_t c = 0; c < channels; ++c) {
        sum += gradient(c);
        projected += gradient(c) * normalized(c);
      }
      sum /= static_cast<double>(channels);
      projected /= static_cast<double>(channels);
      for (int64_t c = 0; c < channels; ++c)
        d_x[row * channels + c] = store<A>(rstd[row] * (gradient(c) - sum - normalized(c) * projected));
    }
  }
};

struct LayerNormDweight {
  template <typename A>
  static void run(const Call& call, bool overwrite) {
    using S = Statistic<A>;
    const A *d_y = call.input<A>(0), *x = call.input<A>(1);
    const S *mean = call.input<S>(2), *rstd = call.input<S>(3);
    S *d_w = call.output<S>(0), *d_b = call.output<S>(1);
    const bool adds = call.adds(overwrite);
    const int64_t rows = call.input_shape(0).rows(), channels = call.input_shape(0).last();
    for (int64_t c = 0; c < channels; ++c) {
      double weight = 0, bias = 0;
      for (int64_t row = 0; row < rows; ++row) {
        const double gradient = load(d_y[row * channels + c]);
        weight += gradient * ((double{load(x[row * channels + c])} - mean[row]) * rstd[row]);
        bias += gradient;
      }
      d_w[c] = store<S>(adds ? d_w[c] + weight : weight);
      d_b[c] = store<S>(adds ? d_b[c] + bias : bias);
    }
  }
};

struct RmsNorm {
  template <typename A>
  static void run(const Call& call, bool) {
    using S = Statistic<A>;
    const A *x = call.input<A>(0), *w = call.input<A>(1);
    A* y = call.output<A>(0);
    S* rstd = call.output<S>(1);
    const double eps = number(call.attributes, "eps");
    const int64_t channels = call.input_shape(0).last();
    for (int64_t row = 0, rows = call.input_shape(0).rows(); row < rows; ++row) {
      const A* from = x + row * channels;
      double squares = 0;
      for (int64_t c = 0; c < channels; ++c) squares += double{load(from[c])} * load(from[c]);
      rstd[row] = store<S>(1 / std::sqrt(squares / static_cast<double>(channels) + eps));
      for (int64_t c = 0; c < channels; ++c)
        y[row * channels + c] = store<A>(load(w[c]) * rounded<A>(load(from[c]) * rstd[row]));
    }
  }
};

// With n = x·rstd and g = d_y·w:  d_x = rstd·(g − n·avg(g·n))
struct RmsNormDx {
  template <typename A>
  static void run(const Call& call, bool) {
    using S = Statistic<A>;
    const A *d_y = call.input<A>(0), *x = call.input<A>(1), *w = call.input<A>(2);
    const S* rstd = call.input<S>(3);
    A* d_x = call.output<A>(0);
    const int64_t channels = call.input_shape(0).last();
    for (int64_t row = 0, rows = call.input_shape(0).rows(); row < rows; ++row) {
      const auto normalized = [&](int64_t c) { return double{load(x[row * channels + c])} * rstd[row]; };
      const auto gradient = [&](int64_t c) { return double{load(d_y[row * channels + c])} * load(w[c]); };
      double projected = 0;
      for (int64_t c = 0; c < channels; ++c) projected += gradient(c) * normalized(c);
      projected /= static_cast<double>(channels);
      for (int64_t c = 0; c < channels; ++c)
        d_x[row * channels + c] = store<A>(rstd[row] * (gradient(c) - normalized(c) * projected));
    }
  }
};

// The factor of d_y is what the forward multiplied w by: round_A(x·rstd).
struct RmsNormDweight {
  template <typename A>
  static void run(const Call& call, bool overwrite) {
    using S = Statistic<A>;
    const A *d_y = call.input<A>(0), *x = call.input<A>(1);
    const S* rstd = call.input<S>(2);
    S* d_w = call.output<S>(0);
    const bool adds = call.adds(overwrite);
    const int64_t rows = call.input_shape(0).rows(), channels = call.input_shape(0).last();
    for (int64_t c = 0; c < channels; ++c) {
      double weight = 0;
      for (int64_t row = 0; row < rows; ++row)
        weight += double{load(d_y[row * channels + c])} * rounded<A>(load(x[row * channels + c]) * rstd[row]);
      d_w[c] = store<S>(adds ? d_w[c] + weight : weight);
    }
  }
};

}  // namespace

std::span<const KernelEntry> norm_entries() {
  static constexpr KernelEntry kEntries[] = {
      entry<LayerNorm>("layer_norm"),
      entry<LayerNormDx>("layer_norm_dx"),
      entry<LayerNormDweight>("layer_norm_dweight"),
      entry<RmsNorm>("rms_norm"),
      entry<RmsNormDx>("rms_norm_dx"),
      entry<RmsNormDweight>("rms_norm_dweight"),
  };
  return kEntries;
}

}  // namespace snug::cpu::reference
