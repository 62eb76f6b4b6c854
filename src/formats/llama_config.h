// formats/llama_config.h — config.json of the Llama family as a plain checked struct
//
// Serves Llama 2 and 3, TinyLlama, SmolLM2 and every other file with model_type "llama". Every key of the
// family is read, or must be at its default (hidden_act "silu", attention_bias, mlp_bias, pretraining_tp 1,
// no sliding_window, …), or is harmless; any other is refused by name (formats/config_reader.h). Absent keys
// take the defaults of transformers' LlamaConfig.
#pragma once

#include <cstdint>
#include <string>

#include "base/json_type.h"

namespace snug {

enum class RopeType : uint8_t { kDefault, kLinear, kLlama3, kYarn };

// The name in config.json: "default", "linear", "llama3", "yarn".
std::string_view rope_type_name(RopeType type);

// How the angles of the rotary embedding are scaled. With d = head_dim, the unscaled inverse frequencies are
// theta^(-2i/d). Fields that a type does not use are at their defaults.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000;
  double factor = 1;                             // linear, llama3, yarn
  double low_freq_factor = 1;                    // llama3
  double high_freq_factor = 4;                   // llama3; above low_freq_factor
  int64_t original_max_position_embeddings = 0;  // llama3, yarn
  double beta_fast = 32;                         // yarn; above beta_slow
  double beta_slow = 1;                          // yarn
  double attention_factor = 1;  // yarn: what cos and sin are multiplied by; the default is worked out here
  bool truncate = true;         // yarn: whole dimensions as bounds of the ramp

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

struct LlamaConfig {
  int64_t vocab_size = 32000;
  int64_t positions = 2048;      // max_position_embeddings
  int64_t hidden = 4096;         // hidden_size
  int64_t intermediate = 11008;  // intermediate_size
  int64_t layers = 32;           // num_hidden_layers
  int64_t heads = 32;            // num_attention_heads
  int64_t kv_heads = 32;         // num_key_value_heads (null: heads); divides heads
  int64_t head_dim = 128;        // even; absent: hidden / heads
  double rms_norm_epsilon = 1e-6;
  double attention_dropout = 0;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  RopeConfig rope;

  friend bool operator==(const LlamaConfig&, const LlamaConfig&) = default;
};

// Throws UserError(kBadFile) naming `file`, the key, what was found and what is expected.
LlamaConfig parse_llama_config(const Json& config, const std::string& file);

}  // namespace snug
