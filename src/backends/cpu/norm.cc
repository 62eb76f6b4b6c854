// Layer norm, RMS norm, their gradients, and the gradient of a bias, in f32, bf16 and f16.
//
// Rows are independent of each other; a row's sums are formed in f32 in 4 vectors of lanes. Column sums
// (gradients of parameters) are formed in blocks of rows whose number is a function of the shape alone, and
// the blocks are added in a tree: no bit depends on threads.
#include "backends/cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/norm_vector.h"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include "backends/cpu/norm_vector.h"

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
