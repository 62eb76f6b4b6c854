#include "formats/llama_config.h"

#include <cmath>

#include "base/json.h"
#include "base/testing.h"

namespace snug {
namespace {

LlamaConfig parse(const std::string& text) {
  return parse_llama_config(parse_json(text, "config.json"), "config.json");
}

// The file of SmolLM2-135M.
const std::string kSmolLm2 = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 0,
  "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664,
  "intermediate_size": 1536, "is_llama_config": true, "max_position_embeddings": 8192, "model_type": "llama",
  "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true, "vocab_size": 49152})";

TEST(LlamaConfig, ReadsSmolLm2) {
  const LlamaConfig config = parse(kSmolLm2);
  EXPECT_EQ(config.vocab_size, 49152);
  EXPECT_EQ(config.positions, 8192);
  EXPECT_EQ(config.hidden, 576);
  EXPECT_EQ(config.intermediate, 1536);
  EXPECT_EQ(config.layers, 30);
  EXPECT_EQ(config.heads, 9);
  EXPECT_EQ(config.kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.rms_norm_epsilon, 1e-5);
  EXPECT_EQ(config.initializer_range, 0.041666666666666664);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.rope, (RopeConfig{.theta = 100000}));
}

TEST(LlamaConfig, AbsentKeysTakeTheFamilysDefaults) {
  EXPECT_EQ(parse("{}"), LlamaConfig());
  EXPECT_EQ(parse(R"({"num_attention_heads":16,"num_key_value_heads":null})").kv_heads, 16);
  EXPECT_EQ(parse(R"({"hidden_size":48,"num_attention_heads":4,"head_dim":16})").head_dim, 16);
  EXPECT_EQ(parse(R"({"attention_dropout":0.1})").attention_dropout, 0.1);
  EXPECT_EQ(parse(R"({"head_dim":null})").head_dim, 128);
}

// The three dialects say the same thing.
TEST(LlamaConfig, ReadsLlama3ScalingInEveryDialect) {
  const RopeConfig expected = {.type = RopeType::kLlama3,
                               .theta = 500000,
                               .factor = 32,
                               .low_freq_factor = 1,
                               .high_freq_factor = 4,
                               .original_max_position_embeddings = 8192};
  const std::string keys =
      R"("factor":32.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192)";
  EXPECT_EQ(parse(R"({"rope_theta":500000.0,"rope_scaling":{"type":"llama3",)" + keys + "}}").rope, expected);
  EXPECT_EQ(parse(R"({"rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3",)" + keys + "}}").rope,
            expected);
  EXPECT_EQ(
      parse(R"({"rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3","type":"llama3",)" + keys + "}}")
          .rope,
      expected);
  EXPECT_EQ(parse(R"({"rope_parameters":{"rope_theta":500000.0,"rope_type":"llama3",)" + keys + "}}").rope,
            expected);
}

TEST(LlamaConfig, ReadsDefaultAndLinear) {
  EXPECT_EQ(parse(R"({"rope_parameters":{"rope_theta":20000.0,"rope_type":"default"}})").rope,
            (RopeConfig{.theta = 20000}));
  EXPECT_EQ(parse(R"({"rope_parameters":{"rope_theta":20000}})").rope, (RopeConfig{.theta = 20000}));
  EXPECT_EQ(parse(R"({"rope_scaling":{"type":"linear","factor":2.0}})").rope,
            (RopeConfig{.type = RopeType::kLinear, .factor = 2}));
}

TEST(LlamaConfig, ReadsYarnAndWorksOutItsAttentionFactor) {
  const RopeConfig plain =
      parse(
          R"({"max_position_embeddings":131072,"rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":32768}})")
          .rope;
  EXPECT_EQ(plain.type, RopeType::kYarn);
  EXPECT_EQ(plain.factor, 4);
  EXPECT_EQ(plain.original_max_position_embeddings, 32768);
  EXPECT_EQ(plain.beta_fast, 32);
  EXPECT_EQ(plain.beta_slow, 1);
  EXPECT_TRUE(plain.truncate);
  EXPECT_DOUBLE_EQ(plain.attention_factor, 0.1 * std::log(4.0) + 1);  // 1.1386
  // Without the original length it is the model's.
  EXPECT_EQ(parse(R"({"max_position_embeddings":4096,"rope_scaling":{"type":"yarn","factor":2}})")
                .rope.original_max_position_embeddings,
            4096);
  const RopeConfig given =
      parse(R"({"rope_scaling":{"rope_type":"yarn","factor":2,"original_max_position_embeddings":1024,
      "beta_fast":16,"beta_slow":2,"attention_factor":1.5,"truncate":false,"mscale":1.0,"mscale_all_dim":0.5}})")
          .rope;
  EXPECT_EQ(given.beta_fast, 16);
  EXPECT_EQ(given.beta_slow, 2);
  EXPECT_EQ(given.attention_factor, 1.5);
  EXPECT_FALSE(given.truncate);
  const RopeConfig mscale =
      parse(R"({"rope_scaling":{"rope_type":"yarn","factor":40,"original_max_position_embeddings":4096,
      "mscale":1.0,"mscale_all_dim":0.5}})")
          .rope;
  EXPECT_DOUBLE_EQ(mscale.attention_factor, (0.1 * std::log(40.0) + 1) / (0.05 * std::log(40.0) + 1));
}

TEST(LlamaConfig, KeysOfRealFilesThatChangeNothingAreAccepted) {
  EXPECT_EQ(parse(R"({"hidden_act":"swish","max_sequence_length":2048,"n_ctx":4096,"max_seq_len":8,
      "original_max_position_embeddings":1024,"use_flash_attention":true,"layer_norm_eps":1e-5,"multiple_of":256,
      "ffn_dim_multiplier":1.3,"max_window_layers":28,"use_mrope":false,"neftune_noise_alpha":5,"hidden_dropout":0.0})"),
            parse("{}"));
}

// transformers puts the key into the dictionary of a type that uses it.
TEST(LlamaConfig, OriginalPositionsMayStandAtTheTop) {
  constexpr std::string_view kScaling =
      R"("rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4)";
  EXPECT_EQ(parse(fmt::format(R"({{"original_max_position_embeddings":512,{}}}}})", kScaling)),
            parse(fmt::format(R"({{{},"original_max_position_embeddings":512}}}})", kScaling)));
  expect_user_error(
      ExitCode::kBadFile,
      "config.json: original_max_position_embeddings is 512 in rope_scaling but 256 at the top", [&] {
        parse(fmt::format(
            R"({{"original_max_position_embeddings":256,{},"original_max_position_embeddings":512}}}})",
            kScaling));
      });
  EXPECT_EQ(
      parse(R"({"original_max_position_embeddings":512,"rope_scaling":{"rope_type":"yarn","factor":4}})")
          .rope.original_max_position_embeddings,
      512);
}

TEST(LlamaConfig, RefusesByNameWhatItCannotHonour) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (
      const Case& c : std::initializer_list<Case>{
          {R"({"num_hidden_layers":"abc"})",
           "config.json: num_hidden_layers is \"abc\" (string); expected a positive integer"},
          {R"({"num_key_value_heads":5})",
           "num_key_value_heads is 5; expected a divisor of num_attention_heads (32)"},
          {R"({"hidden_size":4097})",
           "hidden_size is 4097; expected a multiple of num_attention_heads (32), or a head_dim"},
          {R"({"head_dim":65})", "head_dim is 65; expected an even number"},
          {R"({"hidden_act":"gelu"})", "hidden_act is \"gelu\" (string); Snug supports only \"silu\""},
          {R"({"attention_bias":true})", "attention_bias is true (boolean); Snug supports only false"},
          {R"({"hidden_dropout":0.1})", "hidden_dropout is 0.1 (number); Snug supports only 0.0"},
          {R"({"mlp_bias":true})", "mlp_bias is true (boolean); Snug supports only false"},
          {R"({"pretraining_tp":2})", "pretraining_tp is 2 (number); Snug supports only 1"},
          {R"({"sliding_window":4096})", "sliding_window is 4096 (number); Snug supports only null"},
          {R"({"partial_rotary_factor":0.5})",
           "partial_rotary_factor is 0.5 (number); Snug supports only 1.0"},
          {R"({"layer_types":["full_attention"]})", "layer_types is"},
          {R"({"rope_interleaved":true})", "rope_interleaved is true"},
          {R"({"attention_dropout":1})", "attention_dropout is 1 (number); expected a number in [0, 1)"},
          {R"({"rms_norm_eps":-1e-5})", "rms_norm_eps is -1e-05 (number); expected a positive number"},
          {R"({"no_rope_layers":[1,0]})", "no_rope_layers is [1,0] (array); Snug does not know this key"},
          {R"({"rope_theta":0})", "rope_theta is 0 (number); expected a positive number"},
          {R"({"rope_scaling":"linear"})", "rope_scaling is \"linear\" (string); expected an object or null"},
          {R"({"rope_scaling":{"type":"dynamic","factor":2.0}})",
           "rope_scaling: type is \"dynamic\"; expected \"default\""},
          {R"({"rope_scaling":{"rope_type":"longrope","factor":2.0}})",
           "rope_scaling: rope_type is \"longrope\""},
          {R"({"rope_scaling":{"type":"su"}})", "type is \"su\""},
          {R"({"rope_scaling":{"type":"linear","rope_type":"yarn","factor":2}})",
           "type is \"linear\" but rope_type is \"yarn\""},
          {R"({"rope_scaling":{"type":"linear"}})", "rope_scaling: factor is missing; \"linear\" needs it"},
          {R"({"rope_scaling":{"type":"linear","factor":0.5}})",
           "factor is 0.5 (number); expected a number of at least 1"},
          {R"({"rope_scaling":{"type":"linear","factor":2,"low_freq_factor":1}})",
           "rope_scaling: low_freq_factor is 1 (number); Snug does not know this key"},
          {R"({"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4}})",
           "original_max_position_embeddings is missing; \"llama3\" needs it"},
          {R"({"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4,"original_max_position_embeddings":8}})",
           "high_freq_factor is 4 (number); expected more than low_freq_factor (4)"},
          {R"({"rope_scaling":{"rope_type":"yarn","factor":8,"beta_fast":1}})",
           "beta_fast is 1; expected more than beta_slow (1)"},
          {R"({"rope_scaling":{"rope_type":"yarn","factor":8,"extra":1}})",
           "extra is 1 (number); Snug does not know this key"},
          {R"({"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_theta":1}})",
           "rope_scaling and rope_parameters are both given"},
          {R"({"rope_theta":10,"rope_parameters":{"rope_theta":20}})",
           "rope_theta is 10 but rope_parameters.rope_theta is 20"},
          {R"({"rope_parameters":{"full_attention":{"rope_theta":1}}})",
           "rotary settings by layer type are not supported"},
          {R"({"rope_parameters":{"rope_theta":1,"partial_rotary_factor":0.25}})",
           "rope_parameters: partial_rotary_factor is 0.25"}}) {
    SCOPED_TRACE(c.text);
    expect_user_error(ExitCode::kBadFile, c.message, [&] { parse(c.text); });
  }
}

}  // namespace
}  // namespace snug
