// Reference kernels: an MLP, one row at a time. Every sum over features is formed in f64, in index order; what the plain decomposition
// stores is rounded to A. Gradients of parameters grow by one row at a time.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "backends/cpu/reference.h"
#include "backends/cpu/reference_gelu.h"
#include "backends/cpu/reference_swiglu.h"
#include "base/mlp_operands.h"

namespace snug::cpu::reference {
namespace {

// One product of the MLP: y[o] = Σ x[i]·w(o, i) + bias[o].
template <typename A>
struct Product {
  const A *weight = nullptr, *bias = nullptr;
  int64_t stride_o = 0, stride_i = 0, out = 0, in = 0;

  double w(int64_t o, int64_t i) const { return load(weight[o * stride_o + i * stride_i]); }

  // Rounded to A.
  void forward(const double* x, double* y) const {
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < in; ++i) sum += x[i] * w(o, i);
      y[o] = rounded<A>(bias == nullptr ? sum : sum + double{load(bias[o])});
    }
  }
  void backward(const double* d_y, double* d_x) const {
    for (int64_t i = 0; i < in; ++i) {
      double sum = 0;
      for (int64_t o = 0; o < out; ++o) sum += d_y[o] * w(o, i);
      d_x[i] = rounded<A>(sum);
    }
  }
};

// `first` is the position of x among the inputs.
template <typename A>
class Mlp {
 public:
  Mlp(const Call& call, size_t first) : positions(call.attributes), call_(call), first_(first) {
    const bool by_output = call.attributes.word("weight") == "oi";
    for (size_t p = 0; p < positions.products(); ++p) {
      const Shape& shape = call.input_shape(first + positions.weight(p));
      Product<A>& product = products[p];
      product.weight = call.input<A>(first + positions.weight(p));
      if (positions.bias) product.bias = call.input<A>(first + positions.bias_of(p));
      product.out = shape.dim(by_output ? 0 : 1);
      product.in = shape.dim(by_output ? 1 : 0);
      product.stride_o = by_output ? product.in : 1;
      product.stride_i = by_output ? 1 : product.out;
    }
    double* scratch = call.scratch();
    const auto take = [&scratch](int64_t elements) { return std::exchange(scratch, scratch + elements); };
    x = take(products[0].in);
    y = take(down().out);
    for (double** of : {&before[0], &before[1], &h, &d_h, &d_before[0], &d_before[1]}) *of = take(down().in);
    d_x = take(2 * products[0].in);
  }

  // Doubles that the constructor hands out.
  static int64_t scratch_elements(const OpQuery& query, size_t first) {
    const MlpOperands positions(query.attributes);
    const int64_t in = query.inputs[first].shape.last();
    const int64_t inner = query.inputs[first + positions.weight(0)].shape.elements() / in;
    const int64_t out = query.inputs[first + positions.weight(positions.down())].shape.elements() / inner;
    return checked_add(checked_add(checked_mul(3, in), out), checked_mul(6, inner));
  }

  int64_t rows() const { return call_.input_shape(first_).rows(); }
  const Product<A>& down() const { return products[positions.down()]; }

  // x, what the activation reads, and h of one row.
  void read(int64_t row) {
    const A* from = call_.input<A>(first_) + row * products[0].in;
    for (int64_t i = 0; i < products[0].in; ++i) x[i] = load(from[i]);
    for (size_t p = 0; p < positions.down(); ++p) products[p].forward(x, before[p]);
    for (int64_t f = 0; f < down().in; ++f) {
      const auto first = static_cast<Compute<A>>(before[0][f]);
      h[f] = load(positions.gated ? swiglu<A>(first, static_cast<Compute<A>>(before[1][f]))
                                  : store<A>(gelu(first, by_tanh())));
    }
  }

  void activation_backward() {
    for (int64_t f = 0; f < down().in; ++f) {
      const auto d = static_cast<Compute<A>>(d_h[f]), first = static_cast<Compute<A>>(before[0][f]);
      if (positions.gated) {
        const SwigluGradient<A> gradient =
            swiglu_gradient<A>(d, first, static_cast<Compute<A>>(before[1][f]));
        d_before[0][f] = load(gradient.gate);
        d_before[1][f] = load(gradient.up);
      } else {
        d_before[0][f] = rounded<A>(d * gelu_derivative(first, by_tanh()));
      }
    }
  }

  const MlpOperands positions;
  std::array<Product<A>, 3> products;
  double *x, *y, *h, *d_h, *d_x;
  std::array<double*, 2> before, d_before;

 private:
  bool by_tanh() const { return call_.attributes.word("activation") == "gelu_tanh"; }

  const Call& call_;
  size_t first_;
};

struct MlpForward {
  static int64_t scratch_elements(const OpQuery& query) { return Mlp<float>::scratch_elements(query, 0); }
  template <typename A>
  static void run(const Call& call, bool) {
    Mlp<A> mlp(call, 0);
    A* y = call.output<A>(0);
    const int64_t out = mlp.down().out;
    for (int64_t row = 0; row < mlp.rows(); ++row) {
      mlp.read(row);
      mlp.down().forward(mlp.h, mlp.y);
      for (int64_t o = 0; o < out; ++o) y[row * out + o] = store<A>(mlp.y[o]);
    }
  }
};

struct MlpGradient {
  static int64_t scratch_elements(const OpQuery& query) { return Mlp<float>::scratch_elements(query, 1); }
  template <typename A>
  static void run(const Call& call, bool overwrite) {
    using S = Statistic<A>;
    Mlp<A> mlp(call, 1);
    const MlpOperands& positions = mlp.positions;
    if (!call.adds(overwrite))
      for (size_t output = positions.first_parameter(); output < call.outputs.size(); ++output)
        std::fill_n(call.output<S>(output), call.output_shape(output).elements(), S{0});
    const A* d_y = call.input<A>(0);
    const int64_t out = mlp.down().out, in = mlp.products[0].in;
    for (int64_t row = 0; row < mlp.rows(); ++row) {
      mlp.read(row);
      for (int64_t o = 0; o < out; ++o) mlp.y[o] = load(d_y[row * out + o]);
      add_parameters<A>(call, positions, positions.down(), mlp.down(), mlp.h, mlp.y);
      if (!positions.passes_down()) continue;
      mlp.down().backward(mlp.y, mlp.d_h);
      mlp.activation_backward();
      for (size_t p = 0; p < positions.down(); ++p)
        add_parameters<A>(call, positions, p, mlp.products[p], mlp.x, mlp.d_before[p]);
      if (!positions.makes(0)) continue;
      for (size_t p = 0; p < positions.down(); ++p)
        mlp.products[p].backward(mlp.d_before[p], mlp.d_x + static_cast<int64_t>(p) * in);
      A* d_x = call.output<A>(0) + row * in;
      for (int64_t i = 0; i < in; ++i)
        d_x[i] = store<A>(positions.gated
                              ? static_cast<Compute<A>>(mlp.d_x[in + i]) + static_cast<Compute<A>>(mlp.d_x[i])
                              : mlp.d_x[i]);
    }
  }

 private:
  // What one row adds to the gradients of a product's parameters.
  template <typename A>
  static void add_parameters(const Call& call, const MlpOperands& positions, size_t product,
                             const Product<A>& of, const double* x, const double* d_y) {
    using S = Statistic<A>;
    if (const size_t weight = positions.weight(product); positions.makes(weight)) {
      S* d_w = call.output<S>(positions.output(weight));
      for (int64_t o = 0; o < of.out; ++o)
        for (int64_t i = 0; i < of.in; ++i) {
          S& to = d_w[o * of.stride_o + i * of.stride_i];
          to = store<S>(to + d_y[o] * x[i]);
        }
    }
    if (!positions.bias || !positions.makes(positions.bias_of(product))) return;
    S* d_bias = call.output<S>(positions.output(positions.bias_of(product)));
    for (int64_t o = 0; o < of.out; ++o) d_bias[o] = store<S>(d_bias[o] + d_y[o]);
  }
};

}  // namespace

std::span<const KernelEntry> mlp_entries() {
  static constexpr KernelEntry kEntries[] = {
      entry<MlpForward>("mlp"),
      entry<MlpGradient>("mlp_gradient"),
  };
  return kEntries;
}

}  // namespace snug::cpu::reference
