#include <cmath>

#include "backends/conformance/case_families.h"

namespace snug::conformance {
namespace {

using Kind = Values::Kind;
constexpr Element kA = Element::kActivation, kS = Element::kStatistic;

// Implementations may round probabilities to bf16 before their products.
constexpr double kBf16 = 2e-2;

}  // namespace

OpCase attention_case(std::string name, const AttentionShape& shape, std::vector<double> boundaries,
                      bool fused) {
  const auto& [samples, positions, heads, kv_heads, head_dim, dropout] = shape;
  const Shape q{samples, positions, heads * head_dim}, kv{samples, positions, kv_heads * head_dim};
  const Shape qkv{samples, positions, (heads + 2 * kv_heads) * head_dim}, lse{samples, heads, positions};
  Attributes attributes{{"dropout", dropout},
                        {"heads", heads},
                        {"kv_heads", kv_heads},
                        {"scale", 1 / std::sqrt(static_cast<double>(head_dim))}};
  std::vector<std::string> tail = {"document_starts"};
  if (dropout > 0) {
    attributes.set("stream", int64_t{0x5bd1e995a3c59ac3});
    tail.push_back("randomness");
  }
  const auto join = [&](std::vector<std::string> names) {
    names.insert(names.end(), tail.begin(), tail.end());
    return names;
  };
  OpCase result;
  result.name = std::move(name);
  result.given = {{"d_y", kA, q},
                  {"document_starts",
                   Element::kIndex,
                   {samples, positions},
                   {.kind = Kind::kDocumentStarts, .list = std::move(boundaries)}},
                  {"randomness", Element::kWord, {samples, 4}, {.kind = Kind::kRandomBits}}};
  if (fused) {
    result.given.push_back({"qkv", kA, qkv});
    result.calls = {{.op = "attention_qkv",
                     .attributes = attributes,
                     .inputs = join({"qkv"}),
                     .outputs = {{"y", kA, q}, {"lse", kS, lse}},
                     .tolerance_bf16 = kBf16},
                    {.op = "attention_qkv_backward",
                     .attributes = attributes,
                     .inputs = join({"d_y", "qkv", "y", "lse"}),
                     .outputs = {{"d_qkv", kA, qkv}},
                     .tolerance_f32 = 5e-5,
                     .tolerance_bf16 = kBf16}};
    result.gradient = {"y", "d_y", {{"qkv", "d_qkv"}}};
  } else {
    for (const char* operand : {"q", "k", "v"})
      result.given.push_back({operand, kA, *operand == 'q' ? q : kv});
    result.calls = {{.op = "attention",
                     .attributes = attributes,
                     .inputs = join({"q", "k", "v"}),
                     .outputs = {{"y", kA, q}, {"lse", kS, lse}},
                     .tolerance_bf16 = kBf16},
                    {.op = "attention_backward",
                     .attributes = attributes,
                     .inputs = join({"d_y", "q", "k", "v", "y", "lse"}),
                     .outputs = {{"d_q", kA, q}, {"d_k", kA, kv}, {"d_v", kA, kv}},
                     .tolerance_f32 = 5e-5,
                     .tolerance_bf16 = kBf16}};
    result.gradient = {"y", "d_y", {{"q", "d_q"}, {"k", "d_k"}, {"v", "d_v"}}};
  }
  // Half of the two products of the forward and of the five of the backward.
  const double product = 2.0 * static_cast<double>(samples * heads * head_dim * positions * positions) / 2;
  result.calls[0].flops = 2 * product;
  result.calls[1].flops = 5 * product;
  return result;
}

void append_attention_cases(std::vector<OpCase>& cases) {
  for (const bool fused : {false, true}) {
    const std::string stem = fused ? "attention_qkv" : "attention";
    const AttentionShape small{.samples = 2, .positions = 7, .heads = 2, .kv_heads = 2, .head_dim = 5};
    AttentionShape grouped{.samples = 2, .positions = 7, .heads = 4, .kv_heads = 2, .head_dim = 8},
        dropped = small;
    dropped.dropout = 0.3;
    cases.push_back(attention_case(stem + "_token",
                                   {.samples = 1, .positions = 1, .heads = 1, .kv_heads = 1, .head_dim = 4},
                                   {0}, fused));
    cases.push_back(attention_case(stem + "_ragged", small, {0}, fused));
    cases.push_back(attention_case(stem + "_grouped_documents", grouped, {0, 3, 4}, fused));
    cases.push_back(attention_case(stem + "_dropout", dropped, {0, 4}, fused));
    grouped.dropout = 0.1;
    grouped.kv_heads = 1;
    cases.push_back(attention_case(stem + "_grouped_dropout", grouped, {0}, fused));
    // Beyond one block of queries and keys, boundaries inside blocks and on their edges.
    cases.push_back(attention_case(
        stem + "_blocks", {.samples = 1, .positions = 129, .heads = 3, .kv_heads = 1, .head_dim = 16},
        {0, 60, 128}, fused));
    cases.push_back(attention_case(
        stem + "_long",
        {.samples = 1, .positions = 300, .heads = 2, .kv_heads = 2, .head_dim = 16, .dropout = 0.2},
        {0, 150, 256}, fused));
  }
}

}  // namespace snug::conformance
