// Embedding rows and their gradient.
//
// The gradient is parallel over slices of channels and walks the tokens in order in each slice: no two
// threads share an element, and every sum is formed in token order.
#include "backends/cpu/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise_embedding_vector.h"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include "backends/cpu/elementwise_embedding_vector.h"

#include "backends/cpu/elementwise_kernels.h"
#include "backends/cpu/parallel_ranges.h"
#include "base/errors.h"

namespace snug::cpu {
namespace {

HWY_EXPORT(accumulate_row);

// Before the threads start: an exception cannot leave a parallel region.
void check_indices(const std::string& name, const int32_t* indices, int64_t tokens, int64_t rows) {
  for (int64_t token = 0; token < tokens; ++token)
    require(indices[token] >= 0 && indices[token] < rows, "{}: index {} is outside the table of {} rows",
            name, indices[token], rows);
}

class EmbeddingKernel : public Kernel {
 public:
  explicit EmbeddingKernel(const Binding& binding)
      : name_(binding.name),
        indices_(binding.inputs.at(0)),
        table_(binding.inputs.at(1)),
        y_(binding.outputs.at(0).data),
        threads_(binding.dispatch.threads) {}
  void run(bool) override {
    const int32_t* indices = indices_.as<int32_t>();
    const int64_t row_bytes = table_.type.shape.last() * dtype_bytes(table_.type.dtype);
    check_indices(name_, indices, indices_.elements(), table_.type.shape.dim(0));
    parallel_ranges(threads_, indices_.elements(), 1, 64, [&](int64_t first, int64_t last) {
      for (int64_t token = first; token < last; ++token)
        std::memcpy(y_ + token * row_bytes, table_.data + indices[token] * row_bytes,
                    static_cast<size_t>(row_bytes));
    });
  }

 private:
  std::string name_;
  Operand indices_, table_;
  std::byte* y_;
  int threads_;
};

class EmbeddingDtableKernel : public Kernel {
 public:
  explicit EmbeddingDtableKernel(const Binding& binding)
      : name_(binding.name),
        indices_(binding.inputs.at(0)),
        d_y_(binding.inputs.at(1)),
        d_table_(binding.outputs.at(0)),
        accumulate_(binding.attributes.integer_or("accumulate", 0) != 0),
        threads_(binding.dispatch.threads) {}
  void run(bool overwrite) override {
    const auto accumulate = HWY_DYNAMIC_DISPATCH(accumulate_row);
    const int32_t* indices = indices_.as<int32_t>();
    const int64_t rows = d_table_.type.shape.dim(0), channels = d_table_.type.shape.last();
    const int64_t row_bytes = channels * dtype_bytes(d_y_.type.dtype);
    check_indices(name_, indices, indices_.elements(), rows);
    parallel_ranges(threads_, channels, 64, 64, [&](int64_t first, int64_t last) {
      if (!accumulate_ || overwrite)
        for (int64_t row = 0; row < rows; ++row)
          std::fill(d_table_.as<float>() + row * channels + first,
                    d_table_.as<float>() + row * channels + last, 0.0f);
      for (int64_t token = 0; token < indices_.elements(); ++token)
        accumulate(d_y_.type.dtype, d_y_.data + token * row_bytes,
                   d_table_.as<float>() + indices[token] * channels, first, last);
    });
  }

 private:
  std::string name_;
  Operand indices_, d_y_, d_table_;
  bool accumulate_;
  int threads_;
};

}  // namespace

std::unique_ptr<Kernel> make_embedding(const Binding& binding) {
  return std::make_unique<EmbeddingKernel>(binding);
}
std::unique_ptr<Kernel> make_embedding_dtable(const Binding& binding) {
  return std::make_unique<EmbeddingDtableKernel>(binding);
}

}  // namespace snug::cpu
