// models/gpt2.h — GPT-2 (Radford et al. 2019): learned positions, LayerNorm before each half of a block,
// GELU, one product for q, k, v
#pragma once

#include "models/model.h"

namespace snug {

class ForwardBuilder;

// Parameters of the configuration. Initialisers as transformers': normal with initializer_range, the two
// products that end in the residual stream with initializer_range / sqrt(2 layers), biases 0, norms 1.
Model gpt2_model(const Gpt2Config& config);

// Appends the forward up to the head's input (after ln_f), (B,T,C), and returns it.
TensorId gpt2_forward(ForwardBuilder& builder, const Gpt2Config& config);

}  // namespace snug
