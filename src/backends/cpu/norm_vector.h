// backends/cpu/norm_vector.h — norms over rows and sums over columns; included once per Highway target
#if defined(SNUG_BACKENDS_CPU_NORM_VECTOR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_BACKENDS_CPU_NORM_VECTOR_H_
#undef SNUG_BACKENDS_CPU_NORM_VECTOR_H_
#else
#define SNUG_BACKENDS_CPU_NORM_VECTOR_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "backends/cpu/norm_operands.h"
#include "backends/cpu/vector_io.h"

HWY_BEFORE_NAMESPACE();
namespace snug::cpu::HWY_NAMESPACE {
namespace {

template <size_t kSums>
using Vectors = std::array<FloatVector, kSums>;

// Sums of the terms over [0, count); term(lanes) gives kSums vectors.
template <size_t kSums, typename Term>
HWY_INLINE std::array<float, kSums> row_sums(int64_t count, const Term& term) {
  constexpr int64_t kChains = 4;  // independent additions in flight
  Vectors<kSums> chains[kChains];
  for (Vectors<kSums>& chain : chains)
    for (FloatVector& sum : chain) sum = hn::Zero(FloatTag());
  int64_t at = 0;
  for (; at + kChains * kLanes <= count; at += kChains * kLanes)
    for (int64_t chain = 0; chain < kChains; ++chain) {
      const Vectors<kSums> terms = term(AllLanes{at + chain * kLanes});
      for (size_t k = 0; k < kSums; ++k) chains[chain][k] = hn::Add(chains[chain][k], terms[k]);
    }
  for_lanes(at, count, [&](auto lanes) {
    const Vectors<kSums> terms = term(lanes);
    for (size_t k = 0; k < kSums; ++k) chains[0][k] = hn::Add(chains[0][k], lanes.select(terms[k]));
  });
  std::array<float, kSums> sums;
  for (size_t k = 0; k < kSums; ++k)
    sums[k] = hn::GetLane(hn::SumOfLanes(
        FloatTag(), hn::Add(hn::Add(chains[0][k], chains[2][k]), hn::Add(chains[1][k], chains[3][k]))));
  return sums;
}

template <typename A>
void layer_norm_rows(const NormOperands& o, int64_t first, int64_t last) {
  const int64_t channels = o.channels;
  for (int64_t row = first; row < last; ++row) {
    const A* x = o.x_row<A>(row);
    A* y = o.y_row<A>(row);
    const float mean = row_sums<1>(channels, [&](auto lanes) { return Vectors<1>{lanes.load(x)}; })[0] /
                       static_cast<float>(channels);
    const FloatVector means = hn::Set(FloatTag(), mean);
    const float squares = row_sums<1>(channels, [&](auto lanes) {
      const FloatVector centred = hn::Sub(lanes.load(x), means);
      return Vectors<1>{hn::Mul(centred, centred)};
    })[0];
    const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(channels) + o.eps);
    const FloatVector rstds = hn::Set(FloatTag(), rstd);
    for_lanes(0, channels, [&](auto lanes) {
      const FloatVector normalized = hn::Mul(hn::Sub(lanes.load(x), means), rstds);
      lanes.store(hn::Add(hn::Mul(normalized, lanes.load(o.weights<A>())), lanes.load(o.biases<A>())), y);
    });
    o.mean_out[row] = mean;
    o.rstd_out[row] = rstd;
  }
}

template <typename A>
void rms_norm_rows(const NormOperands& o, int64_t first, int64_t last) {
  const int64_t channels = o.channels;
  for (int64_t row = first; row < last; ++row) {
    const A* x = o.x_row<A>(row);
    A* y = o.y_row<A>(row);
    const float squares = row_sums<1>(channels, [&](auto lanes) {
      const FloatVector value = lanes.load(x);
      return Vectors<1>{hn::Mul(value, value)};
    })[0];
    const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(channels) + o.eps);
    const FloatVector rstds = hn::Set(FloatTag(), rstd);
    for_lanes(0, channels, [&](auto lanes) {
      const FloatVector normalized = rounded_vector<A>(hn::Mul(lanes.load(x), rstds));
      lanes.store(hn::Mul(lanes.load(o.weights<A>()), normalized), y);
    });
    o.rstd_out[row] = rstd;
  }
}

// With n the normalized row and g = d_y·w: layer norm rstd·(g − avg(g) − n·avg(g·n)); RMS norm has mean 0 and
// no avg(g).
template <typename A>
void norm_dx_rows(const NormOperands& o, int64_t first, int64_t last) {
  const int64_t channels = o.channels;
  const float scale = 1.0f / static_cast<float>(channels);
  for (int64_t row = first; row < last; ++row) {
    const A *x = o.x_row<A>(row), *d_y = o.d_y_row<A>(row);
    A* d_x = o.y_row<A>(row);
    const FloatVector mean = hn::Set(FloatTag(), o.mean == nullptr ? 0.0f : o.mean[row]);
    const FloatVector rstd = hn::Set(FloatTag(), o.rstd[row]);
    const auto [total, projected] = row_sums<2>(channels, [&](auto lanes) {
      const FloatVector gradient = hn::Mul(lanes.load(d_y), lanes.load(o.weights<A>()));
      const FloatVector normalized = hn::Mul(hn::Sub(lanes.load(x), mean), rstd);
      return Vectors<2>{gradient, hn::Mul(gradient, normalized)};
    });
    const FloatVector average = hn::Set(FloatTag(), o.mean == nullptr ? 0.0f : total * scale);
    const FloatVector projection = hn::Set(FloatTag(), projected * scale);
    for_lanes(0, channels, [&](auto lanes) {
      const FloatVector gradient = hn::Mul(lanes.load(d_y), lanes.load(o.weights<A>()));
      const FloatVector normalized = hn::Mul(hn::Sub(lanes.load(x), mean), rstd);
      lanes.store(hn::Mul(rstd, hn::NegMulAdd(normalized, projection, hn::Sub(gradient, average))), d_x);
    });
  }
}

// sums[k·channels + c] = Σ over rows [first, last), in order, of term(row, lanes)[k].
template <size_t kSums, typename Term>
HWY_INLINE void column_sums(int64_t channels, int64_t first, int64_t last, float* sums, const Term& term) {
  constexpr int64_t kRowsAtOnce = 4;  // one load and store of the sums for so many rows
  std::fill_n(sums, static_cast<int64_t>(kSums) * channels, 0.0f);
  for (int64_t row = first; row < last; row += kRowsAtOnce) {
    const int64_t rows = std::min(kRowsAtOnce, last - row);
    for_lanes(0, channels, [&](auto lanes) {
      Vectors<kSums> total;
      for (size_t k = 0; k < kSums; ++k) total[k] = lanes.load(sums + static_cast<int64_t>(k) * channels);
      for (int64_t r = row; r < row + rows; ++r) {
        const Vectors<kSums> terms = term(r, lanes);
        for (size_t k = 0; k < kSums; ++k) total[k] = hn::Add(total[k], terms[k]);
      }
      for (size_t k = 0; k < kSums; ++k) lanes.store(total[k], sums + static_cast<int64_t>(k) * channels);
    });
  }
}

// sums: d_w (C), d_b (C)
template <typename A>
void layer_norm_columns(const NormOperands& o, int64_t first, int64_t last, float* sums) {
  column_sums<2>(o.channels, first, last, sums, [&](int64_t row, auto lanes) {
    const FloatVector mean = hn::Set(FloatTag(), o.mean[row]), rstd = hn::Set(FloatTag(), o.rstd[row]);
    const FloatVector gradient = lanes.load(o.d_y_row<A>(row));
    return Vectors<2>{hn::Mul(gradient, hn::Mul(hn::Sub(lanes.load(o.x_row<A>(row)), mean), rstd)), gradient};
  });
}

template <typename A>
void rms_norm_columns(const NormOperands& o, int64_t first, int64_t last, float* sums) {
  column_sums<1>(o.channels, first, last, sums, [&](int64_t row, auto lanes) {
    const FloatVector rstd = hn::Set(FloatTag(), o.rstd[row]);
    const FloatVector normalized = rounded_vector<A>(hn::Mul(lanes.load(o.x_row<A>(row)), rstd));
    return Vectors<1>{hn::Mul(lanes.load(o.d_y_row<A>(row)), normalized)};
  });
}

template <typename A>
void bias_columns(const NormOperands& o, int64_t first, int64_t last, float* sums) {
  column_sums<1>(o.channels, first, last, sums,
                 [&](int64_t row, auto lanes) { return Vectors<1>{lanes.load(o.d_y_row<A>(row))}; });
}

// a[first, last) += b[first, last)
void add_to(const float* b, float* a, int64_t first, int64_t last) {
  for_lanes(first, last, [&](auto lanes) { lanes.store(hn::Add(lanes.load(a), lanes.load(b)), a); });
}

void layer_norm(DType type, const NormOperands& o, int64_t first, int64_t last) {
  by_type(type, [&](auto sample) { layer_norm_rows<decltype(sample)>(o, first, last); });
}
void rms_norm(DType type, const NormOperands& o, int64_t first, int64_t last) {
  by_type(type, [&](auto sample) { rms_norm_rows<decltype(sample)>(o, first, last); });
}
void norm_dx(DType type, const NormOperands& o, int64_t first, int64_t last) {
  by_type(type, [&](auto sample) { norm_dx_rows<decltype(sample)>(o, first, last); });
}
void layer_norm_dweight(DType type, const NormOperands& o, int64_t first, int64_t last, float* sums) {
  by_type(type, [&](auto sample) { layer_norm_columns<decltype(sample)>(o, first, last, sums); });
}
void rms_norm_dweight(DType type, const NormOperands& o, int64_t first, int64_t last, float* sums) {
  by_type(type, [&](auto sample) { rms_norm_columns<decltype(sample)>(o, first, last, sums); });
}
void linear_dbias(DType type, const NormOperands& o, int64_t first, int64_t last, float* sums) {
  by_type(type, [&](auto sample) { bias_columns<decltype(sample)>(o, first, last, sums); });
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
