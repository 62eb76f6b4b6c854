#include "models/gpt2.h"

#include <cmath>

#include "models/forward_builder.h"

namespace snug {
namespace {

std::string block_name(int64_t block) { return fmt::format("h.{}", block); }
// The file's names begin with the module of the base model, which operations' names leave out.
std::string stored(std::string_view name) { return fmt::format("transformer.{}", name); }

}  // namespace

Model gpt2_model(const Gpt2Config& config) {
  Model model;
  model.family = "gpt2";
  model.vocabulary = config.vocab_size;
  model.max_positions = config.positions;
  model.hidden = config.hidden;
  model.blocks = config.layers;
  model.tied = config.tie_word_embeddings;
  model.config = config;

  const Initializer normal{Initializer::Kind::kNormal, config.initializer_range};
  // Radford et al. 2019, §2.3: the residual stream sums 2 · layers of these.
  const Initializer residual{Initializer::Kind::kNormal,
                             config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.layers))};
  const int64_t hidden = config.hidden;
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns, Initializer initializer) {
    model.parameters.push_back(
        {.name = stored(name), .shape = {rows, columns}, .decay = true, .initializer = initializer});
  };
  const auto vector = [&](const std::string& name, int64_t size, Initializer::Kind kind) {
    model.parameters.push_back({.name = stored(name), .shape = {size}, .initializer = {.kind = kind}});
  };
  const auto norm = [&](const std::string& name) {
    vector(name + ".weight", hidden, Initializer::Kind::kOnes);
    vector(name + ".bias", hidden, Initializer::Kind::kZeros);
  };
  const auto linear = [&](const std::string& name, int64_t in, int64_t out, Initializer initializer) {
    matrix(name + ".weight", in, out, initializer);
    vector(name + ".bias", out, Initializer::Kind::kZeros);
  };

  matrix("wte.weight", config.vocab_size, hidden, normal);
  matrix("wpe.weight", config.positions, hidden, normal);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string block = block_name(i);
    norm(block + ".ln_1");
    linear(block + ".attn.c_attn", hidden, checked_mul(3, hidden), normal);
    linear(block + ".attn.c_proj", hidden, hidden, residual);
    norm(block + ".ln_2");
    linear(block + ".mlp.c_fc", hidden, config.inner, normal);
    linear(block + ".mlp.c_proj", config.inner, hidden, residual);
  }
  norm("ln_f");
  if (!model.tied)
    model.parameters.push_back({.name = "lm_head.weight",
                                .shape = {config.vocab_size, hidden},
                                .decay = true,
                                .initializer = normal});
  return model;
}

TensorId gpt2_forward(ForwardBuilder& builder, const Gpt2Config& config) {
  const auto norm = [&](const std::string& name, TensorId x) {
    return builder.add(
        "layer_norm", name,
        {x, builder.parameter(stored(name + ".weight")), builder.parameter(stored(name + ".bias"))},
        {{"eps", config.layer_norm_epsilon}}, {"mean", "rstd"});
  };
  const auto linear = [&](const std::string& name, TensorId x) {
    return builder.add(
        "linear", name,
        {x, builder.parameter(stored(name + ".weight")), builder.parameter(stored(name + ".bias"))},
        {{"weight", "io"}, {"bias", int64_t{1}}});
  };
  const TensorId token_rows =
      builder.add("embedding", "wte", {builder.input("tokens"), builder.parameter(stored("wte.weight"))});
  const TensorId position_rows =
      builder.add("embedding", "wpe", {builder.input("positions"), builder.parameter(stored("wpe.weight"))});
  TensorId x = builder.add("add", "embeddings", {token_rows, position_rows});
  x = builder.dropout("drop", x, config.embd_pdrop);

  for (int64_t i = 0; i < config.layers; ++i) {
    builder.set_block(static_cast<int32_t>(i));
    const std::string block = block_name(i);
    const TensorId qkv = linear(block + ".attn.c_attn", norm(block + ".ln_1", x));
    const TensorId attended = builder.attention("attention_qkv", block + ".attn", {qkv}, config.heads,
                                                config.heads, config.head_dim(), config.attn_pdrop);
    const TensorId projected = builder.dropout(block + ".attn.resid_dropout",
                                               linear(block + ".attn.c_proj", attended), config.resid_pdrop);
    x = builder.add("add", block + ".attn.residual", {x, projected});

    const TensorId wide = linear(block + ".mlp.c_fc", norm(block + ".ln_2", x));
    const TensorId bent =
        builder.add("gelu", block + ".mlp.act", {wide},
                    {{"approximate", config.activation == Activation::kGeluTanh ? "tanh" : "none"}});
    const TensorId narrow =
        builder.dropout(block + ".mlp.dropout", linear(block + ".mlp.c_proj", bent), config.resid_pdrop);
    x = builder.add("add", block + ".mlp.residual", {x, narrow});
  }
  builder.set_block(-1);
  return norm("ln_f", x);
}

}  // namespace snug
