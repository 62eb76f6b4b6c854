// compile/example_test.h — the models on which the budget's searches are tested
#pragma once

#include <string>

#include "models/gpt2.h"
#include "models/llama.h"

namespace snug {

inline Model six_blocks(const std::string& family, bool tied = true) {
  if (family == "llama") {
    LlamaConfig config;
    config.vocab_size = 300;
    config.hidden = 64;
    config.intermediate = 192;
    config.layers = 6;
    config.heads = 4;
    config.kv_heads = 2;
    config.head_dim = 16;
    config.tie_word_embeddings = tied;
    return llama_model(config);
  }
  Gpt2Config config;
  config.vocab_size = 300;
  config.layers = 6;
  config.hidden = 64;
  config.inner = 256;
  config.heads = 4;
  config.tie_word_embeddings = tied;
  return gpt2_model(config);
}

}  // namespace snug
