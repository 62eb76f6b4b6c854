#include "models/llama.h"

#include "models/forward_builder.h"

namespace snug {
namespace {

std::string block_name(int64_t block) { return fmt::format("layers.{}", block); }
// The file's names begin with the module of the base model, which operations' names leave out.
std::string stored(std::string_view name) { return fmt::format("model.{}.weight", name); }

// Attributes of rotary_table: each scaling's own keys.
Attributes rotary_attributes(const LlamaConfig& config) {
  const RopeConfig& rope = config.rope;
  Attributes attributes{
      {"head_dim", config.head_dim}, {"type", std::string(rope_type_name(rope.type))}, {"theta", rope.theta}};
  if (rope.type != RopeType::kDefault) attributes.set("factor", rope.factor);
  if (rope.type == RopeType::kLlama3) {
    attributes.set("low_freq_factor", rope.low_freq_factor);
    attributes.set("high_freq_factor", rope.high_freq_factor);
    attributes.set("original_max_position_embeddings", rope.original_max_position_embeddings);
  }
  if (rope.type == RopeType::kYarn) {
    attributes.set("original_max_position_embeddings", rope.original_max_position_embeddings);
    attributes.set("beta_fast", rope.beta_fast);
    attributes.set("beta_slow", rope.beta_slow);
    attributes.set("attention_factor", rope.attention_factor);
    attributes.set("truncate", int64_t{rope.truncate});
  }
  return attributes;
}

}  // namespace

Model llama_model(const LlamaConfig& config) {
  Model model;
  model.family = "llama";
  model.vocabulary = config.vocab_size;
  model.max_positions = config.positions;
  model.hidden = config.hidden;
  model.blocks = config.layers;
  model.tied = config.tie_word_embeddings;
  model.config = config;

  const Initializer normal{Initializer::Kind::kNormal, config.initializer_range};
  const auto matrix = [&](const std::string& name, int64_t out, int64_t in) {
    model.parameters.push_back({.name = name, .shape = {out, in}, .decay = true, .initializer = normal});
  };
  const auto norm = [&](const std::string& name) {
    model.parameters.push_back(
        {.name = stored(name), .shape = {config.hidden}, .initializer = {.kind = Initializer::Kind::kOnes}});
  };
  const int64_t query = checked_mul(config.heads, config.head_dim);
  const int64_t key_value = checked_mul(config.kv_heads, config.head_dim);

  matrix(stored("embed_tokens"), config.vocab_size, config.hidden);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string block = block_name(i);
    matrix(stored(block + ".self_attn.q_proj"), query, config.hidden);
    matrix(stored(block + ".self_attn.k_proj"), key_value, config.hidden);
    matrix(stored(block + ".self_attn.v_proj"), key_value, config.hidden);
    matrix(stored(block + ".self_attn.o_proj"), config.hidden, query);
    matrix(stored(block + ".mlp.gate_proj"), config.intermediate, config.hidden);
    matrix(stored(block + ".mlp.up_proj"), config.intermediate, config.hidden);
    matrix(stored(block + ".mlp.down_proj"), config.hidden, config.intermediate);
    norm(block + ".input_layernorm");
    norm(block + ".post_attention_layernorm");
  }
  norm("norm");
  if (!model.tied) matrix("lm_head.weight", config.vocab_size, config.hidden);
  return model;
}

TensorId llama_forward(ForwardBuilder& builder, const LlamaConfig& config) {
  const auto norm = [&](const std::string& name, TensorId x) {
    return builder.add("rms_norm", name, {x, builder.parameter(stored(name))},
                       {{"eps", config.rms_norm_epsilon}}, {"rstd"});
  };
  const auto linear = [&](const std::string& name, TensorId x) {
    return builder.add("linear", name, {x, builder.parameter(stored(name))},
                       {{"weight", "oi"}, {"bias", int64_t{0}}});
  };
  TensorId x = builder.add("embedding", "embed_tokens",
                           {builder.input("tokens"), builder.parameter(stored("embed_tokens"))});
  // All blocks turn by the same angles.
  const std::vector<TensorId> table = builder.add_all(
      "rotary_table", "rotary_emb", {builder.input("positions")}, rotary_attributes(config), {"sin"});
  const auto rotary = [&](const std::string& name, TensorId heads_BTC, int64_t heads) {
    return builder.add("rotary", name, {heads_BTC, table[0], table[1]},
                       {{"heads", heads}, {"inverse", int64_t{0}}});
  };

  for (int64_t i = 0; i < config.layers; ++i) {
    builder.set_block(static_cast<int32_t>(i));
    const std::string block = block_name(i), self = block + ".self_attn", mlp = block + ".mlp";
    const TensorId normed = norm(block + ".input_layernorm", x);
    const TensorId q = rotary(self + ".q_rotary", linear(self + ".q_proj", normed), config.heads);
    const TensorId k = rotary(self + ".k_rotary", linear(self + ".k_proj", normed), config.kv_heads);
    const TensorId v = linear(self + ".v_proj", normed);
    const TensorId attended = builder.attention("attention", self, {q, k, v}, config.heads, config.kv_heads,
                                                config.head_dim, config.attention_dropout);
    x = builder.add("add", self + ".residual", {x, linear(self + ".o_proj", attended)});

    const TensorId normed_mlp = norm(block + ".post_attention_layernorm", x);
    const TensorId gate = linear(mlp + ".gate_proj", normed_mlp);
    const TensorId up = linear(mlp + ".up_proj", normed_mlp);
    const TensorId bent = builder.add("swiglu", mlp + ".act", {gate, up});
    x = builder.add("add", mlp + ".residual", {x, linear(mlp + ".down_proj", bent)});
  }
  builder.set_block(-1);
  return norm("norm", x);
}

}  // namespace snug
