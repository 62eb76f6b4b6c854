// Reference kernels: embeddings and everything that works element by element.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "backends/cpu/philox.h"
#include "backends/cpu/reference.h"
#include "backends/cpu/reference_gelu.h"
#include "backends/cpu/reference_swiglu.h"
#include "backends/cpu/rotary_frequencies.h"

namespace snug::cpu::reference {
namespace {

int64_t checked_row(const Call& call, int32_t index, int64_t rows) {
  require(index >= 0 && index < rows, "{}: index {} is outside the table of {} rows", call.name, index, rows);
  return index;
}

struct Embedding {
  static constexpr size_t kTypeOutput = 0;
  template <typename A>
  static void run(const Call& call, bool) {
    const int32_t* indices = call.input<int32_t>(0);
    const A* table = call.input<A>(1);
    A* y = call.output<A>(0);
    const int64_t tokens = call.input_shape(0).elements(), channels = call.input_shape(1).last();
    for (int64_t token = 0; token < tokens; ++token)
      std::copy_n(table + checked_row(call, indices[token], call.input_shape(1).dim(0)) * channels, channels,
                  y + token * channels);
  }
};

struct EmbeddingDtable {
  static constexpr size_t kTypeInput = 1;
  template <typename A>
  static void run(const Call& call, bool overwrite) {
    const int32_t* indices = call.input<int32_t>(0);
    const A* d_y = call.input<A>(1);
    auto* d_table = call.output<Statistic<A>>(0);
    const int64_t tokens = call.input_shape(0).elements(), rows = call.output_shape(0).dim(0);
    const int64_t channels = call.output_shape(0).last();
    if (!call.adds(overwrite)) std::fill_n(d_table, rows * channels, Statistic<A>{0});
    for (int64_t token = 0; token < tokens; ++token) {
      auto* row = d_table + checked_row(call, indices[token], rows) * channels;
      for (int64_t c = 0; c < channels; ++c) row[c] += load(d_y[token * channels + c]);
    }
  }
};

struct Add {
  template <typename A>
  static void run(const Call& call, bool) {
    const A *a = call.input<A>(0), *b = call.input<A>(1);
    A* y = call.output<A>(0);
    for (int64_t i = 0, n = call.output_shape(0).elements(); i < n; ++i)
      y[i] = store<A>(load(a[i]) + load(b[i]));
  }
};

bool approximates_by_tanh(const Call& call) {
  const std::string approximate = call.attributes.word_or("approximate", "tanh");
  require(approximate == "tanh" || approximate == "none", "{}: approximate is {}, expected tanh or none",
          call.name, approximate);
  return approximate == "tanh";
}

struct Gelu {
  template <typename A>
  static void run(const Call& call, bool) {
    const A* u = call.input<A>(0);
    A* h = call.output<A>(0);
    const bool by_tanh = approximates_by_tanh(call);
    for (int64_t i = 0, n = call.output_shape(0).elements(); i < n; ++i)
      h[i] = store<A>(gelu(load(u[i]), by_tanh));
  }
};

struct GeluBackward {
  template <typename A>
  static void run(const Call& call, bool) {
    const A *d_h = call.input<A>(0), *u = call.input<A>(1);
    A* d_u = call.output<A>(0);
    const bool by_tanh = approximates_by_tanh(call);
    for (int64_t i = 0, n = call.output_shape(0).elements(); i < n; ++i)
      d_u[i] = store<A>(load(d_h[i]) * gelu_derivative(load(u[i]), by_tanh));
  }
};

struct Swiglu {
  template <typename A>
  static void run(const Call& call, bool) {
    const A *gate = call.input<A>(0), *up = call.input<A>(1);
    A* h = call.output<A>(0);
    for (int64_t i = 0, n = call.output_shape(0).elements(); i < n; ++i)
      h[i] = swiglu<A>(load(gate[i]), load(up[i]));
  }
};

struct SwigluBackward {
  template <typename A>
  static void run(const Call& call, bool) {
    const A *d_h = call.input<A>(0), *gate = call.input<A>(1), *up = call.input<A>(2);
    A *d_gate = call.output<A>(0), *d_up = call.output<A>(1);
    for (int64_t i = 0, n = call.output_shape(0).elements(); i < n; ++i) {
      const SwigluGradient<A> gradient = swiglu_gradient<A>(load(d_h[i]), load(gate[i]), load(up[i]));
      d_gate[i] = gradient.gate;
      d_up[i] = gradient.up;
    }
  }
};

struct Dropout {
  template <typename A>
  static void run(const Call& call, bool) {
    const A* x = call.input<A>(0);
    const uint32_t* randomness = call.input<uint32_t>(1);
    A* y = call.output<A>(0);
    const double probability = call.attributes.real("probability");
    const uint64_t threshold = drop_threshold(probability);
    const auto scale = static_cast<Compute<A>>(keep_scale(probability));
    const int64_t samples = call.input_shape(0).dim(0);
    const int64_t elements = call.input_shape(0).elements() / std::max<int64_t>(samples, 1);
    for (int64_t b = 0; b < samples; ++b) {
      const RandomStream stream(randomness + 4 * b, call.attributes.integer("stream"));
      for (int64_t e = 0; e < elements; ++e) {
        const int64_t i = b * elements + e;
        y[i] = stream.word(static_cast<uint64_t>(e)) >= threshold ? store<A>(load(x[i]) * scale) : A{};
      }
    }
  }
};

// Angles are formed in the statistic type, as transformers does in f32.
struct RotaryTable {
  static constexpr size_t kTypeOutput = 0;
  template <typename A>
  static void run(const Call& call, bool) {
    using S = Statistic<A>;
    const int32_t* positions = call.input<int32_t>(0);
    S *cosine = call.output<S>(0), *sine = call.output<S>(1);
    const RotaryFrequencies<S> frequencies(call.attributes);
    const int64_t tokens = call.input_shape(0).elements(), pairs = call.output_shape(0).last();
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const S inverse = frequencies.inverse(pair);
      for (int64_t token = 0; token < tokens; ++token) {
        const S angle = static_cast<S>(positions[token]) * inverse;
        cosine[token * pairs + pair] = std::cos(angle) * frequencies.factor();
        sine[token * pairs + pair] = std::sin(angle) * frequencies.factor();
      }
    }
  }
};

struct Rotary {
  template <typename A>
  static void run(const Call& call, bool) {
    using S = Statistic<A>;
    const A* x = call.input<A>(0);
    const S *cosine = call.input<S>(1), *sine = call.input<S>(2);
    A* y = call.output<A>(0);
    const int64_t heads = call.attributes.integer("heads");
    const S sign = call.attributes.integer_or("inverse", 0) != 0 ? S{-1} : S{1};
    const int64_t tokens = call.input_shape(0).rows(), pairs = call.input_shape(1).last();
    for (int64_t token = 0; token < tokens; ++token)
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t first = (token * heads + head) * 2 * pairs;
        for (int64_t pair = 0; pair < pairs; ++pair) {
          const S c = cosine[token * pairs + pair], s = sign * sine[token * pairs + pair];
          const auto x1 = load(x[first + pair]), x2 = load(x[first + pairs + pair]);
          y[first + pair] = store<A>(x1 * c - x2 * s);
          y[first + pairs + pair] = store<A>(x2 * c + x1 * s);
        }
      }
  }
};

struct Fill {
  static constexpr size_t kTypeOutput = 0;
  template <typename A>
  static void run(const Call& call, bool) {
    std::fill_n(call.output<A>(0), call.output_shape(0).elements(),
                store<A>(number(call.attributes, "value")));
  }
};

// Codes of moments are filled too.
std::optional<std::string> fill_refusal(const OpQuery& query, const Dispatch& dispatch) {
  return query.outputs[0].dtype == DType::kU8 ? std::nullopt : refusal<Fill>(query, dispatch);
}
std::unique_ptr<Kernel> make_fill(const Binding& binding) {
  return binding.outputs.at(0).type.dtype == DType::kU8
             ? std::make_unique<FunctionKernel>(&Fill::run<uint8_t>, binding)
             : make<Fill>(binding);
}

struct NarrowWeight {
  static constexpr size_t kTypeOutput = 0;
  template <typename A>
  static void run(const Call& call, bool) {
    const auto* master = call.input<Statistic<A>>(0);
    A* w = call.output<A>(0);
    for (int64_t i = 0, n = call.output_shape(0).elements(); i < n; ++i) {
      if constexpr (std::is_same_v<A, BFloat16>)
        w[i] = narrow_weight(master[i]);
      else
        w[i] = store<A>(master[i]);
    }
  }
};

}  // namespace

std::span<const KernelEntry> elementwise_entries() {
  static constexpr KernelEntry kEntries[] = {
      entry<Embedding>("embedding"),
      entry<EmbeddingDtable>("embedding_dtable"),
      entry<Add>("add"),
      entry<Gelu>("gelu"),
      entry<GeluBackward>("gelu_backward"),
      entry<Swiglu>("swiglu"),
      entry<SwigluBackward>("swiglu_backward"),
      entry<Dropout>("dropout"),
      entry<RotaryTable>("rotary_table"),
      entry<Rotary>("rotary"),
      {"fill", "reference", &fill_refusal, &scratch_bytes<Fill>, &make_fill},
      entry<NarrowWeight>("narrow_weight"),
  };
  return kEntries;
}

}  // namespace snug::cpu::reference
