#include "formats/gpt2_config.h"

#include "base/checked.h"
#include "formats/config_reader.h"

namespace snug {

Gpt2Config parse_gpt2_config(const Json& json, const std::string& file) {
  ConfigReader reader(json, file);
  Gpt2Config config;
  config.vocab_size = reader.positive("vocab_size", config.vocab_size);
  config.positions = reader.positive("n_positions", config.positions);
  config.hidden = reader.positive("n_embd", config.hidden);
  config.layers = reader.positive("n_layer", config.layers);
  config.heads = reader.positive("n_head", config.heads);
  config.inner = reader.positive("n_inner", checked_mul(4, config.hidden));
  config.layer_norm_epsilon = reader.positive_real("layer_norm_epsilon", config.layer_norm_epsilon);
  config.resid_pdrop = reader.dropout("resid_pdrop", config.resid_pdrop);
  config.embd_pdrop = reader.dropout("embd_pdrop", config.embd_pdrop);
  config.attn_pdrop = reader.dropout("attn_pdrop", config.attn_pdrop);
  config.initializer_range = reader.not_negative_real("initializer_range", config.initializer_range);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings", config.tie_word_embeddings);

  const std::string activation = reader.word("activation_function", "gelu_new");
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh") {
    config.activation = Activation::kGeluTanh;
  } else if (activation == "gelu") {
    config.activation = Activation::kGeluExact;
  } else {
    throw_user(ExitCode::kBadFile,
               "{}: activation_function is \"{}\"; expected \"gelu_new\", \"gelu_pytorch_tanh\" or \"gelu\"",
               file, activation);
  }
  if (config.hidden % config.heads != 0)
    throw_user(ExitCode::kBadFile, "{}: n_embd is {}; expected a multiple of n_head ({})", file,
               config.hidden, config.heads);

  reader.must_be("scale_attn_weights", true);
  reader.must_be("scale_attn_by_inverse_layer_idx", false);
  reader.must_be("reorder_and_upcast_attn", false);
  // Heads for classification; Snug trains the language-model head.
  for (const char* key : {"summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
                          "summary_first_dropout"})
    reader.harmless(key);
  // Of the code that the weights were first trained with; no class reads them.
  for (const char* key : {"n_special", "predict_special_tokens"}) reader.harmless(key);
  reader.base_class_keys();
  reader.finish();
  return config;
}

}  // namespace snug
