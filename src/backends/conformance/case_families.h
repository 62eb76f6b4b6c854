// backends/conformance/case_families.h — the files that make up the table
#pragma once

#include <vector>

#include "backends/conformance/op_cases.h"

namespace snug::conformance {

// Each appends its cases.
void append_elementwise_cases(std::vector<OpCase>& cases);
void append_product_cases(std::vector<OpCase>& cases);
void append_mlp_cases(std::vector<OpCase>& cases);
void append_norm_cases(std::vector<OpCase>& cases);
void append_attention_cases(std::vector<OpCase>& cases);
void append_head_cases(std::vector<OpCase>& cases);
void append_fp8_cases(std::vector<OpCase>& cases);
void append_update_cases(std::vector<OpCase>& cases);

// Families that speed_cases uses at the shapes of a model.
OpCase gelu_case(std::string name, Shape shape, const std::string& approximate);
OpCase add_case(std::string name, Shape shape);
OpCase swiglu_case(std::string name, Shape shape);
OpCase dropout_case(std::string name, Shape shape);
OpCase rotary_case(std::string name, int64_t samples, int64_t positions, int64_t heads, int64_t head_dim,
                   Attributes table);
OpCase embedding_case(std::string name, int64_t samples, int64_t positions, int64_t rows, int64_t channels);
OpCase layer_norm_case(std::string name, int64_t samples, int64_t positions, int64_t channels);
OpCase rms_norm_case(std::string name, int64_t samples, int64_t positions, int64_t channels);
OpCase linear_case(std::string name, int64_t rows, int64_t in_features, int64_t out_features,
                   const std::string& layout, bool bias);
OpCase mlp_case(std::string name, int64_t samples, int64_t positions, int64_t channels, int64_t features,
                const std::string& activation, const std::string& layout, bool bias, int64_t chunk);
// How an adamw holds the weight: f32, f32 with a copy in 16 bits, bf16 with the 16 low bits, or bf16 alone, rounded either way; and the
// moments: f32, bf16, or 8 bits.
enum class AdamwWeight { kWhole, kNarrow, kSplit, kNearest, kStochastic };
enum class AdamwMoments { kWhole, kHalf, kCoded };
OpCase adamw_case(std::string name, Shape shape, AdamwWeight weight,
                  AdamwMoments moments = AdamwMoments::kWhole);
struct AttentionShape {
  int64_t samples = 1, positions = 1, heads = 1, kv_heads = 1, head_dim = 1;
  double dropout = 0;
};
OpCase attention_case(std::string name, const AttentionShape& shape, std::vector<double> boundaries,
                      bool fused);
OpCase head_case(std::string name, int64_t samples, int64_t positions, int64_t channels, int64_t vocabulary,
                 int64_t chunk, Values targets);

OpCase fp8_case(std::string name, Shape shape, const std::string& format, DType activation, Values values);

}  // namespace snug::conformance
