// models/llama.h — Llama (Touvron et al. 2023): rotary positions, RMSNorm before each half of a block,
// SwiGLU, grouped-query attention
#pragma once

#include "models/model.h"

namespace snug {

class ForwardBuilder;

// Parameters of the configuration. Initialisers as transformers': normal with initializer_range, norms 1.
Model llama_model(const LlamaConfig& config);

// Appends the forward up to the head's input (after the last norm), (B,T,C), and returns it.
TensorId llama_forward(ForwardBuilder& builder, const LlamaConfig& config);

}  // namespace snug
