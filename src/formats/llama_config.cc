#include "formats/llama_config.h"

#include <cmath>
#include <optional>

#include "formats/config_reader.h"

namespace snug {
namespace {

// 0.1 m ln(s) + 1, the attention temperature of YaRN (Peng et al. 2023, equation 22 as released: sqrt(1/t) =
// 0.1 ln s + 1).
double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

RopeType parse_rope_type(const std::string& name, const std::string& file, const std::string& where) {
  for (RopeType type : {RopeType::kDefault, RopeType::kLinear, RopeType::kLlama3, RopeType::kYarn})
    if (rope_type_name(type) == name) return type;
  throw_user(ExitCode::kBadFile, "{}: {} is \"{}\"; expected \"default\", \"linear\", \"llama3\" or \"yarn\"",
             file, where, name);
}

// One rope dictionary. Three dialects: rope_scaling with "type", rope_scaling with "rope_type" (theta beside
// it in both), and rope_parameters of transformers 5 with theta inside. A key that the type does not use is
// refused. `outer_original` is original_max_position_embeddings as it stands at the top of the file: transformers puts it into the
// dictionary of a type that uses it.
RopeConfig parse_rope_dictionary(const Json& dictionary, const std::string& key, const std::string& file,
                                 double theta, int64_t positions, std::optional<int64_t> outer_original) {
  if (!dictionary.is_object()) throw_unexpected(file, key, dictionary, "an object or null");
  for (const auto& [name, value] : dictionary.items())
    if (value.is_object())
      throw_user(ExitCode::kBadFile,
                 "{}: {}.{} is an object: rotary settings by layer type are not supported", file, key, name);

  // Messages name the field with its dictionary: "config.json: rope_scaling: factor is …".
  const std::string place = fmt::format("{}: {}", file, key);
  ConfigReader reader(dictionary, place);
  const std::string old_name = reader.word("type", "");
  const std::string new_name = reader.word("rope_type", old_name.empty() ? "default" : old_name);
  if (!old_name.empty() && old_name != new_name)
    throw_user(ExitCode::kBadFile, "{}: type is \"{}\" but rope_type is \"{}\"", place, old_name, new_name);

  RopeConfig rope;
  rope.type = parse_rope_type(new_name, place, old_name.empty() ? "rope_type" : "type");
  rope.theta = reader.positive_real("rope_theta", theta);
  reader.must_be("partial_rotary_factor", 1.0);

  const auto must_have = [&](const char* name) {
    if (!reader.has(name))
      throw_user(ExitCode::kBadFile, "{}: {} is missing; \"{}\" needs it", place, name, new_name);
  };
  if (rope.type != RopeType::kDefault) {
    must_have("factor");
    rope.factor = reader.positive_real("factor", 1);
    if (rope.factor < 1) throw_unexpected(place, "factor", dictionary.at("factor"), "a number of at least 1");
  }
  const auto original_positions = [&](int64_t otherwise) {
    const auto inner = reader.optional_positive("original_max_position_embeddings");
    if (inner && outer_original && *inner != *outer_original)
      throw_user(ExitCode::kBadFile,
                 "{}: original_max_position_embeddings is {} in {} but {} at the top; expected one number",
                 file, *inner, key, *outer_original);
    return inner ? *inner : outer_original.value_or(otherwise);
  };
  if (rope.type == RopeType::kLlama3) {
    for (const char* name : {"low_freq_factor", "high_freq_factor"}) must_have(name);
    if (!outer_original) must_have("original_max_position_embeddings");
    rope.low_freq_factor = reader.positive_real("low_freq_factor", 0);
    rope.high_freq_factor = reader.positive_real("high_freq_factor", 0);
    rope.original_max_position_embeddings = original_positions(0);
    if (rope.high_freq_factor <= rope.low_freq_factor)
      throw_unexpected(place, "high_freq_factor", dictionary.at("high_freq_factor"),
                       fmt::format("more than low_freq_factor ({})", rope.low_freq_factor));
  }
  if (rope.type == RopeType::kYarn) {
    rope.original_max_position_embeddings = original_positions(positions);
    rope.beta_fast = reader.positive_real("beta_fast", rope.beta_fast);
    rope.beta_slow = reader.positive_real("beta_slow", rope.beta_slow);
    if (rope.beta_fast <= rope.beta_slow)
      throw_user(ExitCode::kBadFile, "{}: beta_fast is {}; expected more than beta_slow ({})", place,
                 rope.beta_fast, rope.beta_slow);
    rope.truncate = reader.boolean("truncate", rope.truncate);
    const double mscale = reader.not_negative_real("mscale", 0);
    const double mscale_all_dim = reader.not_negative_real("mscale_all_dim", 0);
    const double worked_out = mscale != 0 && mscale_all_dim != 0
                                  ? yarn_scale(rope.factor, mscale) / yarn_scale(rope.factor, mscale_all_dim)
                                  : yarn_scale(rope.factor, 1);
    rope.attention_factor = reader.positive_real("attention_factor", worked_out);
  }
  reader.finish();
  return rope;
}

}  // namespace

std::string_view rope_type_name(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kYarn:
      return "yarn";
  }
  return "?";
}

LlamaConfig parse_llama_config(const Json& json, const std::string& file) {
  ConfigReader reader(json, file);
  LlamaConfig config;
  config.vocab_size = reader.positive("vocab_size", config.vocab_size);
  config.positions = reader.positive("max_position_embeddings", config.positions);
  config.hidden = reader.positive("hidden_size", config.hidden);
  config.intermediate = reader.positive("intermediate_size", config.intermediate);
  config.layers = reader.positive("num_hidden_layers", config.layers);
  config.heads = reader.positive("num_attention_heads", config.heads);
  config.kv_heads = reader.positive("num_key_value_heads", config.heads);
  if (config.heads % config.kv_heads != 0)
    throw_user(ExitCode::kBadFile,
               "{}: num_key_value_heads is {}; expected a divisor of num_attention_heads ({})", file,
               config.kv_heads, config.heads);
  if (const auto head_dim = reader.optional_positive("head_dim")) {
    config.head_dim = *head_dim;
  } else if (config.hidden % config.heads == 0) {
    config.head_dim = config.hidden / config.heads;
  } else {
    throw_user(ExitCode::kBadFile,
               "{}: hidden_size is {}; expected a multiple of num_attention_heads ({}), or a head_dim", file,
               config.hidden, config.heads);
  }
  if (config.head_dim % 2 != 0)
    throw_user(ExitCode::kBadFile, "{}: head_dim is {}; expected an even number (rotary embedding)", file,
               config.head_dim);
  config.rms_norm_epsilon = reader.positive_real("rms_norm_eps", config.rms_norm_epsilon);
  config.attention_dropout = reader.dropout("attention_dropout", config.attention_dropout);
  config.initializer_range = reader.not_negative_real("initializer_range", config.initializer_range);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings", config.tie_word_embeddings);

  const double theta = reader.positive_real("rope_theta", config.rope.theta);
  config.rope.theta = theta;
  // Angles that nothing scales do not know it.
  const auto original = reader.optional_positive("original_max_position_embeddings");
  const Json& scaling = reader.value("rope_scaling");
  const Json& parameters = reader.value("rope_parameters");
  if (!scaling.is_null() && !parameters.is_null())
    throw_user(ExitCode::kBadFile,
               "{}: rope_scaling and rope_parameters are both given; expected one of them", file);
  if (!scaling.is_null())
    config.rope = parse_rope_dictionary(scaling, "rope_scaling", file, theta, config.positions, original);
  if (!parameters.is_null()) {
    config.rope =
        parse_rope_dictionary(parameters, "rope_parameters", file, theta, config.positions, original);
    if (reader.has("rope_theta") && config.rope.theta != theta)
      throw_user(ExitCode::kBadFile, "{}: rope_theta is {} but rope_parameters.rope_theta is {}", file, theta,
                 config.rope.theta);
  }

  // "swish" is transformers' other name of the same function.
  if (reader.word("hidden_act", "silu") != "swish") reader.must_be("hidden_act", "silu");
  reader.must_be("attention_bias", false);
  reader.must_be("mlp_bias", false);
  reader.must_be("pretraining_tp", 1);
  reader.must_be("partial_rotary_factor", 1.0);
  reader.must_be("sliding_window", nullptr);
  reader.must_be("use_sliding_window", false);
  reader.must_be("layer_types", nullptr);
  reader.must_be("rope_interleaved", false);
  reader.must_be("embd_pdrop", 0.0);
  reader.must_be("resid_pdrop", 0.0);
  reader.must_be("hidden_dropout", 0.0);
  reader.must_be("use_mrope", false);
  // Of Meta's params.json, beside the intermediate_size that was made of them; of windows, which are off; of norms of other families.
  for (const char* key : {"is_llama_config", "ffn_dim_multiplier", "multiple_of", "max_window_layers",
                          "sliding_window_pattern", "layer_norm_eps"})
    reader.harmless(key);
  reader.base_class_keys();
  reader.finish();
  return config;
}

}  // namespace snug
