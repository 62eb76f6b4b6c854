#include "backends/conformance/op_cases.h"

#include "backends/conformance/case_families.h"

namespace snug::conformance {

DType element_dtype(Element element, DType activation) {
  switch (element) {
    case Element::kActivation:
      return activation;
    case Element::kStatistic:
      return activation == DType::kF64 ? DType::kF64 : DType::kF32;
    case Element::kDouble:
      return DType::kF64;
    case Element::kIndex:
      return DType::kI32;
    case Element::kWord:
      return DType::kU32;
    case Element::kByte:
      return DType::kU8;
  }
  throw_internal("unknown element {}", static_cast<int>(element));
}

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  append_elementwise_cases(cases);
  append_product_cases(cases);
  append_mlp_cases(cases);
  append_norm_cases(cases);
  append_attention_cases(cases);
  append_head_cases(cases);
  append_fp8_cases(cases);
  append_update_cases(cases);
  return cases;
}

std::vector<OpCase> speed_cases() {
  const Attributes rotary{{"head_dim", int64_t{64}}, {"theta", 100000.0}, {"type", "default"}};
  const AttentionShape gpt2{.samples = 1, .positions = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64};
  const AttentionShape llama{.samples = 1, .positions = 1024, .heads = 9, .kv_heads = 3, .head_dim = 64};
  return {
      add_case("add", {1, 1024, 768}),
      gelu_case("gelu_tanh", {1, 1024, 3072}, "tanh"),
      gelu_case("gelu_none", {1, 1024, 3072}, "none"),
      swiglu_case("swiglu", {1, 1024, 1536}),
      dropout_case("dropout", {1, 1024, 768}),
      rotary_case("rotary", 1, 1024, 9, 64, rotary),
      embedding_case("embedding", 1, 1024, 50257, 768),
      layer_norm_case("layer_norm", 1, 1024, 768),
      rms_norm_case("rms_norm", 1, 1024, 576),
      linear_case("linear_fc", 1024, 768, 3072, "io", true),
      linear_case("linear_down", 1024, 1536, 576, "oi", false),
      mlp_case("mlp_whole", 1, 1024, 768, 3072, "gelu_tanh", "io", true, 1024),
      mlp_case("mlp_chunks_256", 1, 1024, 768, 3072, "gelu_tanh", "io", true, 256),
      mlp_case("mlp_gated_chunks_256", 1, 1024, 576, 1536, "swiglu", "oi", false, 256),
      attention_case("attention_gpt2", gpt2, {0}, false),
      attention_case("attention_llama", llama, {0}, false),
      head_case("head", 1, 1024, 768, 50257, 1024, {.kind = Values::Kind::kTargets, .bound = 50257}),
      fp8_case("fp8_e4m3_f32", {1, 1024, 3072}, "e4m3", DType::kF32, {}),
      fp8_case("fp8_e4m3_bf16", {1, 1024, 3072}, "e4m3", DType::kBF16, {}),
      adamw_case("adamw", {768, 3072}, AdamwWeight::kWhole),
      adamw_case("adamw_narrow", {768, 3072}, AdamwWeight::kNarrow),
      adamw_case("adamw_split", {768, 3072}, AdamwWeight::kSplit),
      adamw_case("adamw_split_half", {768, 3072}, AdamwWeight::kSplit, AdamwMoments::kHalf),
      adamw_case("adamw_split_coded", {768, 3072}, AdamwWeight::kSplit, AdamwMoments::kCoded),
      adamw_case("adamw_stochastic", {768, 3072}, AdamwWeight::kStochastic),
  };
}

}  // namespace snug::conformance
