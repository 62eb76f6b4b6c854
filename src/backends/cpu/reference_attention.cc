// Reference kernels: causal attention within documents, by whole rows of probabilities.
//
// Gradient, with P the probabilities, M the dropout factor (0 or 1/(1−p)) and dP = (dY·Vᵀ)∘M:
//   dV = (P∘M)ᵀ·dY,  dS = P∘(dP − rowsum(dY∘Y)),  dQ = scale·dS·K,  dK = scale·dSᵀ·Q   (Dao et al. 2022,
//   appendix B.2)
#include <algorithm>
#include <cmath>

#include "backends/cpu/philox.h"
#include "backends/cpu/reference.h"

namespace snug::cpu::reference {
namespace {

// One of q, k, v (or a gradient of one): token rows `stride` apart, heads side by side from `data`.
template <typename T>
struct Heads {
  T* data;
  int64_t stride, head_dim;

  T* row(int64_t token, int64_t head) const { return data + token * stride + head * head_dim; }
};

struct Sizes {
  int64_t samples, positions, heads, kv_heads, head_dim;

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
};

Sizes sizes(const Attributes& attributes, const Shape& q, int64_t heads_in_row) {
  Sizes s;
  s.samples = q.dim(0);
  s.positions = q.dim(1);
  s.heads = attributes.integer("heads");
  s.kv_heads = attributes.integer_or("kv_heads", s.heads);
  s.head_dim = q.last() / heads_in_row;
  return s;
}

int64_t fused_heads(const Attributes& attributes) {
  const int64_t heads = attributes.integer("heads");
  return heads + 2 * attributes.integer_or("kv_heads", heads);
}

// The dropout factors of one (sample, head, query) row: written for keys [first, last) to factors[key].
class DropoutRow {
 public:
  DropoutRow(const Call& call, size_t randomness_input) {
    probability_ = number_or(call.attributes, "dropout", 0);
    if (probability_ == 0) return;
    randomness_ = call.input<uint32_t>(randomness_input);
    stream_ = call.attributes.integer("stream");
    threshold_ = drop_threshold(probability_);
  }
  void factors(const Sizes& s, int64_t sample, int64_t head, int64_t query, int64_t first,
               double* out) const {
    for (int64_t key = first; key <= query; ++key) {
      if (probability_ == 0) {
        out[key] = 1;
        continue;
      }
      const RandomStream stream(randomness_ + 4 * sample, stream_);
      const auto element = static_cast<uint64_t>((head * s.positions + query) * s.positions + key);
      out[key] = stream.word(element) >= threshold_ ? keep_scale(probability_) : 0.0;
    }
  }

 private:
  double probability_ = 0;
  const uint32_t* randomness_ = nullptr;
  int64_t stream_ = 0;
  uint64_t threshold_ = 0;
};

template <typename T>
double dot(const T* a, const T* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{load(a[i])} * double{load(b[i])};
  return sum;
}

int64_t first_key(const Call& call, const int32_t* document_starts, int64_t token, int64_t query) {
  const int64_t first = document_starts[token];
  require(first >= 0 && first <= query, "{}: document start {} at position {}", call.name, first, query);
  return first;
}

// scratch: probabilities (T), dropout factors (T)
template <typename A>
void attend(const Call& call, const Sizes& s, Heads<const A> q, Heads<const A> k, Heads<const A> v,
            size_t starts_input) {
  const int32_t* starts = call.input<int32_t>(starts_input);
  const DropoutRow dropout(call, starts_input + 1);
  const Heads<A> y{call.output<A>(0), s.q_width(), s.head_dim};
  auto* lse = call.output<Statistic<A>>(1);
  const double scale = number(call.attributes, "scale");
  double *p = call.scratch(), *factor = p + s.positions;
  for (int64_t b = 0; b < s.samples; ++b)
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t i = 0; i < s.positions; ++i) {
        const int64_t token = b * s.positions + i, kv = h * s.kv_heads / s.heads;
        const int64_t first = first_key(call, starts, token, i);
        double largest = -INFINITY, sum = 0;
        for (int64_t j = first; j <= i; ++j) {
          p[j] = scale * dot(q.row(token, h), k.row(b * s.positions + j, kv), s.head_dim);
          largest = std::max(largest, p[j]);
        }
        for (int64_t j = first; j <= i; ++j) sum += p[j] = std::exp(p[j] - largest);
        lse[(b * s.heads + h) * s.positions + i] = store<Statistic<A>>(largest + std::log(sum));
        dropout.factors(s, b, h, i, first, factor);
        for (int64_t d = 0; d < s.head_dim; ++d) {
          double out = 0;
          for (int64_t j = first; j <= i; ++j)
            out += p[j] / sum * factor[j] * double{load(v.row(b * s.positions + j, kv)[d])};
          y.row(token, h)[d] = store<A>(out);
        }
      }
}

template <typename A>
struct AttentionOperands {
  const A *d_y, *y;
  Heads<const A> q, k, v;
  Heads<A> d_q, d_k, d_v;
  size_t lse_input;  // document starts and randomness follow it
};

// scratch: dropout factors (T), d_q (D), d_k (T·D), d_v (T·D)
int64_t backward_scratch(const Sizes& s) { return s.positions + s.head_dim + 2 * s.positions * s.head_dim; }

template <typename A>
void attend_backward(const Call& call, const Sizes& s, const AttentionOperands<A>& o) {
  const auto* lse = call.input<Statistic<A>>(o.lse_input);
  const int32_t* starts = call.input<int32_t>(o.lse_input + 1);
  const DropoutRow dropout(call, o.lse_input + 2);
  const Heads<const A> d_y{o.d_y, s.q_width(), s.head_dim}, y{o.y, s.q_width(), s.head_dim};
  const double scale = number(call.attributes, "scale");
  const int64_t group = s.heads / s.kv_heads;
  double* factor = call.scratch();
  double *d_q = factor + s.positions, *d_k = d_q + s.head_dim, *d_v = d_k + s.positions * s.head_dim;
  for (int64_t b = 0; b < s.samples; ++b)
    for (int64_t kv = 0; kv < s.kv_heads; ++kv) {
      std::fill_n(d_k, 2 * s.positions * s.head_dim, 0.0);
      for (int64_t h = kv * group; h < (kv + 1) * group; ++h)
        for (int64_t i = 0; i < s.positions; ++i) {
          const int64_t token = b * s.positions + i, first = first_key(call, starts, token, i);
          const double row_sum = dot(d_y.row(token, h), y.row(token, h), s.head_dim);
          dropout.factors(s, b, h, i, first, factor);
          std::fill_n(d_q, s.head_dim, 0.0);
          for (int64_t j = first; j <= i; ++j) {
            const int64_t other = b * s.positions + j;
            const double score = scale * dot(o.q.row(token, h), o.k.row(other, kv), s.head_dim);
            const double p = std::exp(score - lse[(b * s.heads + h) * s.positions + i]);
            const double d_p = dot(d_y.row(token, h), o.v.row(other, kv), s.head_dim) * factor[j];
            const double d_score = p * (d_p - row_sum) * scale;
            for (int64_t d = 0; d < s.head_dim; ++d) {
              d_q[d] += d_score * double{load(o.k.row(other, kv)[d])};
              d_k[j * s.head_dim + d] += d_score * double{load(o.q.row(token, h)[d])};
              d_v[j * s.head_dim + d] += p * factor[j] * double{load(d_y.row(token, h)[d])};
            }
          }
          for (int64_t d = 0; d < s.head_dim; ++d) o.d_q.row(token, h)[d] = store<A>(d_q[d]);
        }
      for (int64_t j = 0; j < s.positions; ++j)
        for (int64_t d = 0; d < s.head_dim; ++d) {
          o.d_k.row(b * s.positions + j, kv)[d] = store<A>(d_k[j * s.head_dim + d]);
          o.d_v.row(b * s.positions + j, kv)[d] = store<A>(d_v[j * s.head_dim + d]);
        }
    }
}

struct Attention {
  static int64_t scratch_elements(const OpQuery& query) { return 2 * query.inputs[0].shape.dim(1); }
  template <typename A>
  static void run(const Call& call, bool) {
    const Sizes s = sizes(call.attributes, call.input_shape(0), call.attributes.integer("heads"));
    attend<A>(call, s, {call.input<A>(0), s.q_width(), s.head_dim},
              {call.input<A>(1), s.kv_width(), s.head_dim}, {call.input<A>(2), s.kv_width(), s.head_dim}, 3);
  }
};

struct AttentionQkv {
  static int64_t scratch_elements(const OpQuery& query) { return 2 * query.inputs[0].shape.dim(1); }
  template <typename A>
  static void run(const Call& call, bool) {
    const Sizes s = sizes(call.attributes, call.input_shape(0), fused_heads(call.attributes));
    const A* qkv = call.input<A>(0);
    const int64_t stride = call.input_shape(0).last();
    attend<A>(call, s, {qkv, stride, s.head_dim}, {qkv + s.q_width(), stride, s.head_dim},
              {qkv + s.q_width() + s.kv_width(), stride, s.head_dim}, 1);
  }
};

struct AttentionBackward {
  static int64_t scratch_elements(const OpQuery& query) {
    return backward_scratch(
        sizes(query.attributes, query.inputs[1].shape, query.attributes.integer("heads")));
  }
  template <typename A>
  static void run(const Call& call, bool) {
    const Sizes s = sizes(call.attributes, call.input_shape(1), call.attributes.integer("heads"));
    attend_backward<A>(call, s,
                       {.d_y = call.input<A>(0),
                        .y = call.input<A>(4),
                        .q = {call.input<A>(1), s.q_width(), s.head_dim},
                        .k = {call.input<A>(2), s.kv_width(), s.head_dim},
                        .v = {call.input<A>(3), s.kv_width(), s.head_dim},
                        .d_q = {call.output<A>(0), s.q_width(), s.head_dim},
                        .d_k = {call.output<A>(1), s.kv_width(), s.head_dim},
                        .d_v = {call.output<A>(2), s.kv_width(), s.head_dim},
                        .lse_input = 5});
  }
};

struct AttentionQkvBackward {
  static int64_t scratch_elements(const OpQuery& query) {
    return backward_scratch(sizes(query.attributes, query.inputs[1].shape, fused_heads(query.attributes)));
  }
  template <typename A>
  static void run(const Call& call, bool) {
    const Sizes s = sizes(call.attributes, call.input_shape(1), fused_heads(call.attributes));
    const A* qkv = call.input<A>(1);
    A* d_qkv = call.output<A>(0);
    const int64_t stride = call.input_shape(1).last(), to_k = s.q_width(), to_v = to_k + s.kv_width();
    attend_backward<A>(call, s,
                       {.d_y = call.input<A>(0),
                        .y = call.input<A>(2),
                        .q = {qkv, stride, s.head_dim},
                        .k = {qkv + to_k, stride, s.head_dim},
                        .v = {qkv + to_v, stride, s.head_dim},
                        .d_q = {d_qkv, stride, s.head_dim},
                        .d_k = {d_qkv + to_k, stride, s.head_dim},
                        .d_v = {d_qkv + to_v, stride, s.head_dim},
                        .lse_input = 3});
  }
};

}  // namespace

std::span<const KernelEntry> attention_entries() {
  static constexpr KernelEntry kEntries[] = {
      entry<Attention>("attention"),
      entry<AttentionQkv>("attention_qkv"),
      entry<AttentionBackward>("attention_backward"),
      entry<AttentionQkvBackward>("attention_qkv_backward"),
  };
  return kEntries;
}

}  // namespace snug::cpu::reference
