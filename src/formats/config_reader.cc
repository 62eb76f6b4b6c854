#include "formats/config_reader.h"

#include <vector>

namespace snug {
namespace {

// Keys that a reason lets stand, whatever their value: none of them enters the forward pass of a causal language model. They are of
// transformers' PretrainedConfig, of its generation defaults, of tools that stamp the file, and of models on the hub.
struct HarmlessKeys {
  std::string_view because;
  std::vector<std::string_view> keys;
};

const std::vector<HarmlessKeys>& harmless_keys() {
  static const std::vector<HarmlessKeys> kHarmless = {
      {"names the family; the reader was chosen by it", {"architectures", "model_type"}},
      {"states what the weights' file itself states", {"torch_dtype", "dtype"}},
      {"stamps who wrote the file",
       {"transformers_version", "name_or_path", "transformers.js_config", "unsloth_fixed", "unsloth_version",
        "transformers_weights"}},
      {"concerns the tokenizer, which has files of its own",
       {"tokenizer_class", "prefix", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id",
        "unk_token_id", "decoder_start_token_id", "bos_token", "eos_token", "pad_token", "unk_token",
        "model_max_length", "tokenizer_model_max_length", "padding_side"}},
      {"says what transformers' forward returns or keeps beside the logits",
       {"use_cache", "return_dict", "use_return_dict", "output_hidden_states", "output_attentions",
        "output_past", "output_router_logits", "torchscript", "keys_to_ignore_at_inference",
        "num_logits_to_keep", "logits_to_keep"}},
      {"chooses among implementations of the same mathematics",
       {"use_bfloat16", "gradient_checkpointing", "use_flash_attention", "use_flash_attn",
        "use_flash_attention_2", "flash_attention", "attn_implementation", "fuse_cross_entropy", "fuse_norm",
        "fuse_swiglu", "low_cpu_mem_usage", "base_model_tp_plan", "base_model_pp_plan", "tp_size"}},
      {"is for heads that classify",
       {"finetuning_task", "task_specific_params", "problem_type", "id2label", "label2id", "num_labels",
        "classifier_dropout"}},
      {"is for encoders beside decoders or for TensorFlow", {"is_decoder", "tf_legacy_loss"}},
      {"is a default of generation",
       {"max_length",
        "min_length",
        "max_new_tokens",
        "do_sample",
        "early_stopping",
        "num_beams",
        "num_beam_groups",
        "diversity_penalty",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
        "repetition_penalty",
        "length_penalty",
        "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size",
        "bad_words_ids",
        "num_return_sequences",
        "output_scores",
        "return_dict_in_generate",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "remove_invalid_values",
        "exponential_decay_length_penalty",
        "suppress_tokens",
        "begin_suppress_tokens"}},
      {"concerns initial weights alone, and is read where they are made", {"initializer_range"}},
      {"says a length again that the family's own key says (n_positions, max_position_embeddings)",
       {"max_sequence_length", "max_seq_len", "max_seq_length", "seq_length", "n_ctx"}},
      {"was a setting of an earlier training",
       {"neftune_noise_alpha", "pretraining_steps", "train_batch_size", "learning_rate"}},
  };
  return kHarmless;
}

}  // namespace

ConfigReader::ConfigReader(const Json& json, std::string file) : json_(json), file_(std::move(file)) {
  if (!json.is_object()) throw_unexpected(file_, "the top", json, "an object");
}

bool ConfigReader::has(std::string_view key) const {
  const auto found = json_.find(std::string(key));
  return found != json_.end() && !found->is_null();
}

template <typename T>
std::optional<T> ConfigReader::get(std::string_view key, const NumberRange& range) {
  read_.emplace(key);
  return optional_field<T>(json_, key, file_, range);
}

// The largest dimension accepted. Products of a few of them still fit 64 bits, and those of more are checked.
static constexpr NumberRange kDimension{.first = 1, .last = 2147483647, .expected = "positive"};

int64_t ConfigReader::positive(std::string_view key, int64_t otherwise) {
  return get<int64_t>(key, kDimension).value_or(otherwise);
}
std::optional<int64_t> ConfigReader::optional_positive(std::string_view key) {
  return get<int64_t>(key, kDimension);
}
std::optional<int64_t> ConfigReader::optional_not_negative(std::string_view key) {
  return get<int64_t>(key, kNotNegative);
}
double ConfigReader::positive_real(std::string_view key, double otherwise) {
  return get<double>(key, kPositive).value_or(otherwise);
}
double ConfigReader::not_negative_real(std::string_view key, double otherwise) {
  return get<double>(key, kNotNegative).value_or(otherwise);
}
double ConfigReader::dropout(std::string_view key, double otherwise) {
  const double value = get<double>(key).value_or(otherwise);
  if (!(value >= 0 && value < 1))
    throw_unexpected(file_, key, json_.at(std::string(key)), "a number in [0, 1)");
  return value;
}
bool ConfigReader::boolean(std::string_view key, bool otherwise) {
  return get<bool>(key).value_or(otherwise);
}
std::string ConfigReader::word(std::string_view key, std::string_view otherwise) {
  return get<std::string>(key).value_or(std::string(otherwise));
}

const Json& ConfigReader::value(std::string_view key) {
  static const Json kNull;
  read_.emplace(key);
  const auto found = json_.find(std::string(key));
  return found == json_.end() ? kNull : *found;
}

void ConfigReader::must_be(std::string_view key, const Json& expected) {
  const Json& found = value(key);
  if (found.is_null() || found == expected) return;
  throw_user(ExitCode::kBadFile, "{}: {} is {}; Snug supports only {}", file_, key, quote_json(found),
             expected.dump());
}

void ConfigReader::base_class_keys() {
  for (const HarmlessKeys& group : harmless_keys())
    for (const std::string_view key : group.keys) harmless(key);
  must_be("add_cross_attention", false);
  must_be("cross_attention_hidden_size", nullptr);
  must_be("is_encoder_decoder", false);
  must_be("tie_encoder_decoder", false);
  must_be("chunk_size_feed_forward", 0);
  must_be("pruned_heads", Json::object());
  must_be("quantization_config", nullptr);
  must_be("auto_map", nullptr);
}

void ConfigReader::finish() const {
  for (const auto& [key, value] : json_.items()) {
    // A leading underscore marks what transformers itself keeps for its bookkeeping ("_name_or_path",
    // "_commit_hash").
    if (key.starts_with('_') || read_.contains(key)) continue;
    if (value.is_null()) continue;
    throw_user(
        ExitCode::kBadFile,
        "{}: {} is {}; Snug does not know this key, and it could change the model (remove it if it does not)",
        file_, key, quote_json(value));
  }
}

}  // namespace snug
