#include "models/forward_builder.h"

#include <cmath>

#include "base/errors.h"
#include "base/stream.h"

namespace snug {
namespace {

std::string graph_name(Purpose purpose, int64_t length) {
  switch (purpose) {
    case Purpose::kTrain:
      return "micro_step";
    case Purpose::kEvaluate:
      return "evaluate";
    case Purpose::kGenerate:
      return fmt::format("generate_{}", length);
  }
  throw_internal("purpose {} has no graph", static_cast<int>(purpose));
}

}  // namespace

ForwardBuilder::ForwardBuilder(const Model& model, Purpose purpose, int64_t batch, int64_t length)
    : model_(model), purpose_(purpose), batch_(batch), length_(length) {
  graph_.name = graph_name(purpose, length);
  for (const ParameterSpec& spec : model.parameters)
    graph_.add_tensor({.name = spec.name,
                       .dtype = DType::kF32,
                       .shape = spec.shape,
                       .storage = Storage::kState,
                       .category = Category::kWeights,
                       .parameter = spec.name,
                       .trainable = spec.trainable,
                       .decay = spec.decay});
}

TensorId ForwardBuilder::parameter(std::string_view name) const {
  const TensorId id = graph_.find(name);
  require(id.valid(), "model {} has no parameter {}", model_.family, name);
  return id;
}

TensorId ForwardBuilder::input(std::string_view name) {
  if (const TensorId found = graph_.find(name); found.valid()) return found;
  DType dtype = DType::kI32;
  Shape shape{batch_, length_};
  if (name == "inverse_tokens") {
    dtype = DType::kF32;
    shape = {1};
  } else if (name == "randomness") {
    dtype = DType::kU32;
    shape = {batch_, 4};
  } else if (name == "position") {
    shape = {1};
  }
  return graph_.add_tensor({.name = std::string(name),
                            .dtype = dtype,
                            .shape = shape,
                            .storage = Storage::kInput,
                            .category = Category::kData});
}

std::vector<TensorId> ForwardBuilder::add_all(std::string_view kind, const std::string& name,
                                              std::vector<TensorId> inputs, Attributes attributes,
                                              const std::vector<std::string>& suffixes) {
  std::vector<std::string> names{name};
  for (const std::string& suffix : suffixes) names.push_back(name + "." + suffix);
  return append(graph_, kind, name, std::move(inputs), std::move(attributes),
                {.part = Part::kForward, .block = block_, .output_names = std::move(names)});
}

TensorId ForwardBuilder::add(std::string_view kind, const std::string& name, std::vector<TensorId> inputs,
                             Attributes attributes, const std::vector<std::string>& suffixes) {
  return add_all(kind, name, std::move(inputs), std::move(attributes), suffixes)[0];
}

TensorId ForwardBuilder::dropout(const std::string& name, TensorId x, double probability) {
  if (purpose_ != Purpose::kTrain || probability == 0) return x;
  return add("dropout", name, {x, input("randomness")},
             {{"probability", probability}, {"stream", stream_of(name)}});
}

TensorId ForwardBuilder::attention(std::string_view kind, const std::string& name,
                                   std::vector<TensorId> inputs, int64_t heads, int64_t kv_heads,
                                   int64_t head_dim, double dropout) {
  const double probability = purpose_ == Purpose::kTrain ? dropout : 0.0;
  Attributes attributes{{"heads", heads},
                        {"kv_heads", kv_heads},
                        {"scale", 1 / std::sqrt(static_cast<double>(head_dim))},
                        {"dropout", probability}};
  inputs.push_back(input("document_starts"));
  if (probability > 0) {
    attributes.set("stream", stream_of(name));
    inputs.push_back(input("randomness"));
  }
  return add(kind, name, std::move(inputs), std::move(attributes), {"lse"});
}

void ForwardBuilder::head(TensorId x, std::string_view weight, int64_t chunk) {
  const TensorId w = parameter(weight);
  const AppendOptions options{.part = Part::kForward,
                              .block = -1,
                              .output_names = {purpose_ == Purpose::kGenerate ? "logits" : "loss"}};
  if (purpose_ == Purpose::kGenerate) {
    graph_.results = append(graph_, "last_logits", "lm_head", {x, w, input("position")}, {}, options);
  } else {
    graph_.results = append(graph_, "head_loss", "lm_head", {x, w, input("targets"), input("inverse_tokens")},
                            {{"chunk", chunk}}, options);
  }
}

}  // namespace snug
