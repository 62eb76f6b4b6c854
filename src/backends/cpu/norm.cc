// Layer norm, RMS norm, their gradients, and the gradient of a bias, in f32 and bf16.
//
// Rows are independent of each other; a row's sums are formed in f32 in 4 vectors of lanes. Column sums
// (gradients of parameters) are formed in blocks of rows whose number is a function of the shape alone, and
// the blocks are added in a tree: no bit depends on threads.
#include "backends/cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/norm.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
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
  type == DType::kBF16 ? layer_norm_rows<BFloat16>(o, first, last) : layer_norm_rows<float>(o, first, last);
}
void rms_norm(DType type, const NormOperands& o, int64_t first, int64_t last) {
  type == DType::kBF16 ? rms_norm_rows<BFloat16>(o, first, last) : rms_norm_rows<float>(o, first, last);
}
void norm_dx(DType type, const NormOperands& o, int64_t first, int64_t last) {
  type == DType::kBF16 ? norm_dx_rows<BFloat16>(o, first, last) : norm_dx_rows<float>(o, first, last);
}
void layer_norm_dweight(DType type, const NormOperands& o, int64_t first, int64_t last, float* sums) {
  type == DType::kBF16 ? layer_norm_columns<BFloat16>(o, first, last, sums)
                       : layer_norm_columns<float>(o, first, last, sums);
}
void rms_norm_dweight(DType type, const NormOperands& o, int64_t first, int64_t last, float* sums) {
  type == DType::kBF16 ? rms_norm_columns<BFloat16>(o, first, last, sums)
                       : rms_norm_columns<float>(o, first, last, sums);
}
void linear_dbias(DType type, const NormOperands& o, int64_t first, int64_t last, float* sums) {
  type == DType::kBF16 ? bias_columns<BFloat16>(o, first, last, sums)
                       : bias_columns<float>(o, first, last, sums);
}

}  // namespace
}  // namespace snug::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "backends/cpu/elementwise_kernels.h"
#include "backends/cpu/parallel_ranges.h"
#include "backends/cpu/reference.h"

namespace snug::cpu {
namespace {

HWY_EXPORT(layer_norm);
HWY_EXPORT(rms_norm);
HWY_EXPORT(norm_dx);
HWY_EXPORT(layer_norm_dweight);
HWY_EXPORT(rms_norm_dweight);
HWY_EXPORT(linear_dbias);
HWY_EXPORT(add_to);

using RowRange = void (*)(DType, const NormOperands&, int64_t first, int64_t last);
using ColumnSums = void (*)(DType, const NormOperands&, int64_t first, int64_t last, float* sums);

// Rows of one thread at least.
constexpr int64_t kSmallestRows = 16;

class RowKernel : public Kernel {
 public:
  RowKernel(const Binding& binding, RowRange range, const NormOperands& operands)
      : range_(range),
        operands_(operands),
        activation_(binding.inputs.at(0).type.dtype),
        rows_(binding.inputs.at(0).type.shape.rows()),
        threads_(binding.dispatch.threads) {}
  void run(bool) override {
    parallel_ranges(threads_, rows_, 1, kSmallestRows,
                    [this](int64_t first, int64_t last) { range_(activation_, operands_, first, last); });
  }

 private:
  RowRange range_;
  NormOperands operands_;
  DType activation_;
  int64_t rows_;
  int threads_;
};

// Blocks of rows whose sums are formed apart: at least 32 rows each and at most 64 blocks.
int64_t rows_in_block(int64_t rows) { return std::max<int64_t>(32, ceil_div(rows, 64)); }
int64_t block_count(int64_t rows) { return ceil_div(rows, rows_in_block(rows)); }

// Inputs begin with d_y; one or two outputs of `channels` sums. Scratch: (blocks, outputs, C) f32.
Bytes column_scratch(const OpQuery& query, const Dispatch&) {
  const int64_t sums = checked_mul(static_cast<int64_t>(query.outputs.size()), query.inputs[0].shape.last());
  return Bytes(checked_mul(checked_mul(block_count(query.inputs[0].shape.rows()), sums), 4));
}

class ColumnKernel : public Kernel {
 public:
  ColumnKernel(const Binding& binding, ColumnSums block, const NormOperands& operands)
      : block_(block),
        operands_(operands),
        activation_(binding.inputs.at(0).type.dtype),
        rows_(binding.inputs.at(0).type.shape.rows()),
        partial_(reinterpret_cast<float*>(binding.scratch.data())),
        accumulate_(binding.attributes.integer_or("accumulate", 0) != 0),
        threads_(binding.dispatch.threads) {
    for (const Operand& output : binding.outputs) outputs_.push_back(output.as<float>());
    const Bytes needed(block_count(rows_) * width() * 4);
    require(static_cast<int64_t>(binding.scratch.size()) >= needed.value,
            "{}: scratch is {} bytes, expected {}", binding.name, binding.scratch.size(), needed.value);
  }
  void run(bool overwrite) override {
    const int64_t blocks = block_count(rows_), length = rows_in_block(rows_);
    parallel_ranges(threads_, blocks, 1, 1, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block)
        block_(activation_, operands_, block * length, std::min(rows_, (block + 1) * length),
               partial_ + block * width());
    });
    const auto add = HWY_DYNAMIC_DISPATCH(add_to);
    parallel_ranges(threads_, operands_.channels, 64, 64, [&](int64_t first, int64_t last) {
      for (size_t k = 0; k < outputs_.size(); ++k) {
        float* sums = partial_ + static_cast<int64_t>(k) * operands_.channels;
        for (int64_t left = blocks; left > 1; left = ceil_div(left, 2)) {
          const int64_t half = ceil_div(left, 2);
          for (int64_t block = half; block < left; ++block)
            add(sums + block * width(), sums + (block - half) * width(), first, last);
        }
        if (blocks == 0 || !accumulate_ || overwrite)
          std::fill(outputs_[k] + first, outputs_[k] + last, 0.0f);
        if (blocks > 0) add(sums, outputs_[k], first, last);
      }
    });
  }

 private:
  int64_t width() const { return static_cast<int64_t>(outputs_.size()) * operands_.channels; }

  ColumnSums block_;
  NormOperands operands_;
  DType activation_;
  int64_t rows_;
  float* partial_;
  std::vector<float*> outputs_;
  bool accumulate_;
  int threads_;
};

float epsilon(const Binding& binding) {
  return static_cast<float>(reference::number(binding.attributes, "eps"));
}

// Operands of a backward: d_y first; a null mean is RMS norm's 0.
NormOperands backward_operands(const Binding& binding, int x, int weight, int mean, int rstd) {
  NormOperands o;
  o.channels = binding.inputs.at(0).type.shape.last();
  o.d_y = binding.inputs.at(0).data;
  const auto input = [&](int position) -> const std::byte* {
    return position < 0 ? nullptr : binding.inputs.at(static_cast<size_t>(position)).data;
  };
  o.x = input(x);
  o.weight = input(weight);
  o.mean = reinterpret_cast<const float*>(input(mean));
  o.rstd = reinterpret_cast<const float*>(input(rstd));
  o.y = binding.outputs.at(0).data;
  return o;
}

std::unique_ptr<Kernel> make_layer_norm(const Binding& binding) {
  NormOperands o;
  o.channels = binding.inputs.at(0).type.shape.last();
  o.x = binding.inputs.at(0).data;
  o.weight = binding.inputs.at(1).data;
  o.bias = binding.inputs.at(2).data;
  o.y = binding.outputs.at(0).data;
  o.mean_out = binding.outputs.at(1).as<float>();
  o.rstd_out = binding.outputs.at(2).as<float>();
  o.eps = epsilon(binding);
  return std::make_unique<RowKernel>(binding, HWY_DYNAMIC_DISPATCH(layer_norm), o);
}

std::unique_ptr<Kernel> make_rms_norm(const Binding& binding) {
  NormOperands o;
  o.channels = binding.inputs.at(0).type.shape.last();
  o.x = binding.inputs.at(0).data;
  o.weight = binding.inputs.at(1).data;
  o.y = binding.outputs.at(0).data;
  o.rstd_out = binding.outputs.at(1).as<float>();
  o.eps = epsilon(binding);
  return std::make_unique<RowKernel>(binding, HWY_DYNAMIC_DISPATCH(rms_norm), o);
}

std::unique_ptr<Kernel> make_layer_norm_dx(const Binding& binding) {
  return std::make_unique<RowKernel>(binding, HWY_DYNAMIC_DISPATCH(norm_dx),
                                     backward_operands(binding, 1, 2, 3, 4));
}
std::unique_ptr<Kernel> make_rms_norm_dx(const Binding& binding) {
  return std::make_unique<RowKernel>(binding, HWY_DYNAMIC_DISPATCH(norm_dx),
                                     backward_operands(binding, 1, 2, -1, 3));
}
std::unique_ptr<Kernel> make_layer_norm_dweight(const Binding& binding) {
  return std::make_unique<ColumnKernel>(binding, HWY_DYNAMIC_DISPATCH(layer_norm_dweight),
                                        backward_operands(binding, 1, -1, 2, 3));
}
std::unique_ptr<Kernel> make_rms_norm_dweight(const Binding& binding) {
  return std::make_unique<ColumnKernel>(binding, HWY_DYNAMIC_DISPATCH(rms_norm_dweight),
                                        backward_operands(binding, 1, -1, -1, 2));
}
std::unique_ptr<Kernel> make_linear_dbias(const Binding& binding) {
  return std::make_unique<ColumnKernel>(binding, HWY_DYNAMIC_DISPATCH(linear_dbias),
                                        backward_operands(binding, -1, -1, -1, -1));
}

}  // namespace

std::span<const KernelEntry> norm_kernels() {
  static const KernelEntry kEntries[] = {
      {"layer_norm", "highway", &element_type_refusal, &no_scratch, &make_layer_norm},
      {"layer_norm_dx", "highway", &element_type_refusal, &no_scratch, &make_layer_norm_dx},
      {"layer_norm_dweight", "highway", &element_type_refusal, &column_scratch, &make_layer_norm_dweight},
      {"rms_norm", "highway", &element_type_refusal, &no_scratch, &make_rms_norm},
      {"rms_norm_dx", "highway", &element_type_refusal, &no_scratch, &make_rms_norm_dx},
      {"rms_norm_dweight", "highway", &element_type_refusal, &column_scratch, &make_rms_norm_dweight},
      {"linear_dbias", "highway", &element_type_refusal, &column_scratch, &make_linear_dbias},
  };
  return kEntries;
}

}  // namespace snug::cpu

#endif  // HWY_ONCE
