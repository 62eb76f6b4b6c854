// formats/gpt2_config.h — config.json of the GPT-2 family as a plain checked struct
//
// Every key of the family is read, or must be at its default (scale_attn_weights,
// scale_attn_by_inverse_layer_idx, reorder_and_upcast_attn, add_cross_attention), or is harmless; any other
// is refused by name (formats/config_reader.h). Absent keys take the defaults of transformers' GPT2Config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json_type.h"

namespace snug {

// How a feed-forward layer bends its values. Both are GELU; the names of config.json are in the comments.
enum class Activation : uint8_t {
  kGeluTanh,   // "gelu_new", "gelu_pytorch_tanh": 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kGeluExact,  // "gelu": 0.5 x (1 + erf(x / sqrt 2))
};

struct Gpt2Config {
  int64_t vocab_size = 50257;
  int64_t positions = 1024;  // n_positions
  int64_t hidden = 768;      // n_embd, divisible by heads
  int64_t layers = 12;       // n_layer
  int64_t heads = 12;        // n_head
  int64_t inner = 3072;      // n_inner; null: 4 n_embd
  Activation activation = Activation::kGeluTanh;
  double layer_norm_epsilon = 1e-5;
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;

  int64_t head_dim() const { return hidden / heads; }
  friend bool operator==(const Gpt2Config&, const Gpt2Config&) = default;
};

// Throws UserError(kBadFile) naming `file`, the key, what was found and what is expected.
Gpt2Config parse_gpt2_config(const Json& config, const std::string& file);

}  // namespace snug
