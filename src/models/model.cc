#include "models/model.h"

#include <algorithm>

#include "base/errors.h"
#include "models/forward_builder.h"
#include "models/gpt2.h"
#include "models/llama.h"

namespace snug {
namespace {

constexpr std::string_view kHeadName = "lm_head.weight";

// What a file's names begin with when it holds the model with its head.
std::string_view base_prefix(const Model& model) {
  return model.family == "gpt2" ? "transformer." : "model.";
}

std::string_view embedding_name(const Model& model) {
  return model.family == "gpt2" ? "transformer.wte.weight" : "model.embed_tokens.weight";
}

bool has_parameter(const Model& model, std::string_view name) {
  return std::any_of(model.parameters.begin(), model.parameters.end(),
                     [&](const ParameterSpec& spec) { return spec.name == name; });
}

// Removes `prefix`, then "NUMBER."; true when both were there.
bool consume_block(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  const size_t digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos || name[digits] != '.') return false;
  name.remove_prefix(digits + 1);
  return true;
}

}  // namespace

int64_t parameter_count(const Model& model) {
  int64_t count = 0;
  for (const ParameterSpec& spec : model.parameters) count = checked_add(count, spec.shape.elements());
  return count;
}

std::optional<std::string> model_parameter(const Model& model, std::string_view stored) {
  if (has_parameter(model, stored)) return std::string(stored);
  if (is_tied_copy(model, stored)) return std::string(embedding_name(model));
  std::string prefixed = fmt::format("{}{}", base_prefix(model), stored);
  if (has_parameter(model, prefixed)) return prefixed;
  return std::nullopt;
}

bool is_tied_copy(const Model& model, std::string_view stored) { return model.tied && stored == kHeadName; }

bool is_ignorable_tensor(const Model& model, std::string_view stored) {
  if (const std::string_view prefix = base_prefix(model); stored.starts_with(prefix))
    stored.remove_prefix(prefix.size());
  if (model.family == "gpt2")
    return consume_block(stored, "h.") && (stored == "attn.bias" || stored == "attn.masked_bias");
  return stored == "rotary_emb.inv_freq" ||
         (consume_block(stored, "layers.") && stored == "self_attn.rotary_emb.inv_freq");
}

Graph build_forward(const Model& model, Purpose purpose, int64_t batch, int64_t length, int64_t head_chunk) {
  if (batch < 1) throw_user(ExitCode::kUsage, "batch size: found {}, expected a number from 1", batch);
  if (length < 1 || length > model.max_positions)
    throw_user(ExitCode::kUsage, "max_length: found {}, expected 1 to {}, the positions of the model", length,
               model.max_positions);
  ForwardBuilder builder(model, purpose, batch, length);
  const TensorId x = std::holds_alternative<Gpt2Config>(model.config)
                         ? gpt2_forward(builder, std::get<Gpt2Config>(model.config))
                         : llama_forward(builder, std::get<LlamaConfig>(model.config));
  builder.head(x, model.tied ? embedding_name(model) : kHeadName, head_chunk);
  return builder.take();
}

}  // namespace snug
