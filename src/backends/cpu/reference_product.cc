// Reference kernels: matrix products. Every sum is formed in f64, in index order.
#include "backends/cpu/reference.h"
#include "backends/cpu/reference_gelu.h"

namespace snug::cpu::reference {
namespace {

// A weight stored (O,I) or (I,O), read as w(o, i).
template <typename W>
struct Weight {
  const W* data;
  int64_t stride_o, stride_i;
  int64_t out_features, in_features;

  Weight(const Call& call, size_t position) : data(call.input<W>(position)) {
    const Shape& shape = call.input_shape(position);
    const std::string& layout = call.attributes.word("weight");
    require(layout == "oi" || layout == "io", "{}: weight is {}, expected oi or io", call.name, layout);
    out_features = shape.dim(layout == "oi" ? 0 : 1);
    in_features = shape.dim(layout == "oi" ? 1 : 0);
    stride_o = layout == "oi" ? in_features : 1;
    stride_i = layout == "oi" ? 1 : out_features;
  }
  double operator()(int64_t o, int64_t i) const { return load(data[o * stride_o + i * stride_i]); }
};

bool has_bias(const Call& call) { return call.attributes.integer_or("bias", 0) != 0; }

// x·w + bias for one row and one output feature, unrounded.
template <typename A>
double product(const Call& call, const Weight<A>& w, int64_t row, int64_t o) {
  const A* x = call.input<A>(0) + row * w.in_features;
  double sum = 0;
  for (int64_t i = 0; i < w.in_features; ++i) sum += double{load(x[i])} * w(o, i);
  return has_bias(call) ? sum + double{load(call.input<A>(2)[o])} : sum;
}

template <typename A, typename Body>
void for_each_product(const Call& call, Body body) {
  const Weight<A> w(call, 1);
  for (int64_t row = 0, rows = call.input_shape(0).rows(); row < rows; ++row)
    for (int64_t o = 0; o < w.out_features; ++o) body(row * w.out_features + o, product<A>(call, w, row, o));
}

struct Linear {
  template <typename A>
  static void run(const Call& call, bool) {
    if (call.attributes.word_or("out", "") == "f32")
      write<A>(call, call.output<Statistic<A>>(0));
    else
      write<A>(call, call.output<A>(0));
  }

 private:
  template <typename A, typename Y>
  static void write(const Call& call, Y* y) {
    for_each_product<A>(call, [&](int64_t at, double value) { y[at] = store<Y>(value); });
  }
};

struct LinearGelu {
  template <typename A>
  static void run(const Call& call, bool) {
    A *u = call.output<A>(0), *h = call.output<A>(1);
    const bool by_tanh = call.attributes.word_or("approximate", "tanh") == "tanh";
    for_each_product<A>(call, [&](int64_t at, double value) {
      u[at] = store<A>(value);
      h[at] = store<A>(gelu(load(u[at]), by_tanh));
    });
  }
};

struct LinearAdd {
  template <typename A>
  static void run(const Call& call, bool) {
    const A* residual = call.input<A>(has_bias(call) ? 3 : 2);
    A* y = call.output<A>(0);
    for_each_product<A>(
        call, [&](int64_t at, double value) { y[at] = store<A>(load(residual[at]) + rounded<A>(value)); });
  }
};

// Calls `body` with d_y in its stored type: A, or the statistic type behind an f32 product.
template <typename A, typename Body>
void with_gradient(const Call& call, size_t position, Body body) {
  if (call.inputs[position].type.dtype == dtype_of<A>())
    body(call.input<A>(position));
  else
    body(call.input<Statistic<A>>(position));
}

struct LinearDx {
  static constexpr size_t kTypeOutput = 0;
  template <typename A>
  static void run(const Call& call, bool) {
    const Weight<A> w(call, 1);
    A* d_x = call.output<A>(0);
    with_gradient<A>(call, 0, [&](const auto* d_y) {
      for (int64_t row = 0, rows = call.input_shape(0).rows(); row < rows; ++row)
        for (int64_t i = 0; i < w.in_features; ++i) {
          double sum = 0;
          for (int64_t o = 0; o < w.out_features; ++o)
            sum += double{load(d_y[row * w.out_features + o])} * w(o, i);
          d_x[row * w.in_features + i] = store<A>(sum);
        }
    });
  }
};

struct LinearDweight {
  template <typename A>
  static void run(const Call& call, bool overwrite) {
    using S = Statistic<A>;
    const A* x = call.input<A>(0);
    S* d_w = call.output<S>(0);
    const bool by_output = call.attributes.word("weight") == "oi", adds = call.adds(overwrite);
    const int64_t rows = call.input_shape(0).rows();
    const int64_t in_features = call.input_shape(0).last(), out_features = call.input_shape(1).last();
    with_gradient<A>(call, 1, [&](const auto* d_y) {
      for (int64_t o = 0; o < out_features; ++o)
        for (int64_t i = 0; i < in_features; ++i) {
          double sum = 0;
          for (int64_t row = 0; row < rows; ++row)
            sum += double{load(d_y[row * out_features + o])} * double{load(x[row * in_features + i])};
          S& to = d_w[by_output ? o * in_features + i : i * out_features + o];
          to = store<S>(adds ? to + sum : sum);
        }
    });
  }
};

struct LinearDbias {
  template <typename A>
  static void run(const Call& call, bool overwrite) {
    using S = Statistic<A>;
    const A* d_y = call.input<A>(0);
    S* d_bias = call.output<S>(0);
    const bool adds = call.adds(overwrite);
    const int64_t rows = call.input_shape(0).rows(), features = call.input_shape(0).last();
    for (int64_t o = 0; o < features; ++o) {
      double sum = 0;
      for (int64_t row = 0; row < rows; ++row) sum += load(d_y[row * features + o]);
      d_bias[o] = store<S>(adds ? d_bias[o] + sum : sum);
    }
  }
};

}  // namespace

std::span<const KernelEntry> product_entries() {
  static constexpr KernelEntry kEntries[] = {
      entry<Linear>("linear"),
      entry<LinearGelu>("linear_gelu"),
      entry<LinearAdd>("linear_add"),
      entry<LinearDx>("linear_dx"),
      entry<LinearDweight>("linear_dweight"),
      entry<LinearDbias>("linear_dbias"),
  };
  return kEntries;
}

}  // namespace snug::cpu::reference
