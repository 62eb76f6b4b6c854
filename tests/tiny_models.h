// tests/tiny_models.h — models small enough to train in milliseconds, with sizes that divide by nothing convenient
#pragma once

#include <cstdint>

#include "models/gpt2.h"
#include "models/llama.h"

namespace snug {

struct TinyModel {
  int64_t blocks = 2;
  bool tied = true;
  double dropout = 0.1;
};

// 4 heads of 12 channels, vocabulary 67, 40 positions. Dropout at all three places.
inline Model tiny_gpt2(const TinyModel& tiny = {}) {
  Gpt2Config config;
  config.vocab_size = 67;
  config.positions = 40;
  config.hidden = 48;
  config.layers = tiny.blocks;
  config.heads = 4;
  config.inner = 104;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = tiny.dropout;
  config.tie_word_embeddings = tiny.tied;
  return gpt2_model(config);
}

// 6 query heads on 2 key-value heads of 10 channels, hidden 44, vocabulary 67, 40 positions. Dropout in the attention.
inline Model tiny_llama(const TinyModel& tiny = {}) {
  LlamaConfig config;
  config.vocab_size = 67;
  config.positions = 40;
  config.hidden = 44;
  config.intermediate = 90;
  config.layers = tiny.blocks;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 10;
  config.attention_dropout = tiny.dropout;
  config.tie_word_embeddings = tiny.tied;
  return llama_model(config);
}

}  // namespace snug
