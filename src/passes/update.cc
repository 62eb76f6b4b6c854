#include "passes/update.h"

#include <utility>

#include "base/errors.h"
#include "base/stream.h"
#include "ir/operations.h"

namespace snug {
namespace {

TensorId add_parameter(Graph& graph, const PlannedParameter& p, std::string name, DType dtype, Shape shape,
                       Category category) {
  return graph.add_tensor({.name = std::move(name),
                           .dtype = dtype,
                           .shape = std::move(shape),
                           .storage = Storage::kState,
                           .category = category,
                           .parameter = p.parameter,
                           .trainable = p.trainable,
                           .decay = p.decay});
}

DType moment_dtype(Moments moments) {
  switch (moments) {
    case Moments::kBF16:
      return DType::kBF16;
    case Moments::kEightBit:
      return DType::kU8;
    case Moments::kF32:
      break;
  }
  return DType::kF32;
}

TensorId add_optimizer_state(Graph& graph, std::string name, DType dtype, Shape shape) {
  return graph.add_tensor({.name = std::move(name),
                           .dtype = dtype,
                           .shape = std::move(shape),
                           .storage = Storage::kState,
                           .category = Category::kOptimizerState,
                           .parameter = {}});
}

TensorId update_randomness(Graph& graph) {
  const TensorId known = graph.find(kUpdateRandomness);
  if (known.valid()) return known;
  return graph.add_tensor({.name = std::string(kUpdateRandomness),
                           .dtype = DType::kU32,
                           .shape = {4},
                           .storage = Storage::kInput,
                           .category = Category::kData,
                           .parameter = {}});
}

AppendOptions update_part(int32_t block, std::vector<std::string> names) {
  return {.part = Part::kUpdate,
          .block = block,
          .category = Category::kData,
          .output_names = std::move(names),
          .existing_outputs = {}};
}

}  // namespace

std::vector<PlannedParameter> planned_parameters(const Graph& graph, bool training, MasterWeights master,
                                                 const OptimizerOptions& optimizer) {
  std::vector<PlannedParameter> parameters;
  for (const Tensor& tensor : graph.tensors)
    if (tensor.storage == Storage::kState && tensor.category == Category::kWeights &&
        !tensor.parameter.empty())
      parameters.push_back(
          {.name = tensor.name,
           .parameter = tensor.parameter,
           .shape = tensor.shape,
           .dtype = tensor.dtype,
           .trainable = training && tensor.trainable,
           .decay = tensor.decay,
           .master = master,
           .moments = tensor.shape.elements() < kSmallestCompressed ? Moments::kF32 : optimizer.moments,
           .bf16_gradients = optimizer.bf16_gradients});
  return parameters;
}

TensorId add_weight(Graph& graph, const PlannedParameter& p) {
  return add_parameter(graph, p, p.name, p.dtype, p.shape, Category::kWeights);
}

TensorId add_master(Graph& graph, const PlannedParameter& p) {
  if (!p.has_split_master())
    return add_parameter(graph, p, "master." + p.parameter, DType::kF32, p.shape, Category::kMasterWeights);
  std::vector<int64_t> halves = p.shape.dims();
  halves.push_back(2);
  return add_parameter(graph, p, "low." + p.parameter, DType::kU8, Shape(std::move(halves)),
                       Category::kMasterWeights);
}

TensorId add_moment(Graph& graph, const PlannedParameter& p, std::string_view which) {
  return add_optimizer_state(graph, fmt::format("{}.{}", which, p.parameter), moment_dtype(p.moments),
                             p.shape);
}

TensorId add_moment_scales(Graph& graph, const PlannedParameter& p, std::string_view which) {
  return add_optimizer_state(graph, fmt::format("{}_scale.{}", which, p.parameter), DType::kF32,
                             moment_scales_shape(p.shape));
}

TensorId add_hyperparameters(Graph& graph) {
  return graph.add_tensor({.name = "hyperparameters",
                           .dtype = DType::kF32,
                           .shape = {4},
                           .storage = Storage::kInput,
                           .category = Category::kData,
                           .parameter = {}});
}

TensorId append_sum_squares(Graph& graph, const PlannedParameter& p, TensorId gradient, int32_t block) {
  return append(graph, "sum_squares", fmt::format("d.{}.sum_squares", p.parameter), {gradient}, {},
                update_part(block, {}))
      .at(0);
}

TensorId append_adamw(Graph& graph, const PlannedParameter& p, const OptimizerOptions& optimizer,
                      TensorId weight, TensorId gradient, TensorId hyperparameters, TensorId control,
                      int32_t block) {
  const bool full = p.has_full_master(), split = p.has_split_master();
  const TensorId master = full || split ? add_master(graph, p) : TensorId();
  const TensorId stored = full ? master : weight;
  const TensorId m = add_moment(graph, p, "m");
  const TensorId v = add_moment(graph, p, "v");
  std::vector<TensorId> inputs{stored, m, v, gradient, hyperparameters, control};
  std::vector<std::string> names{graph.tensor(stored).name + ".next", graph.tensor(m).name + ".next",
                                 graph.tensor(v).name + ".next", "moved." + p.parameter};
  const auto add_changed = [&](TensorId state) {
    inputs.push_back(state);
    names.push_back(graph.tensor(state).name + ".next");
  };
  if (full || split) add_changed(full ? weight : master);
  if (p.moments == Moments::kEightBit)
    for (const char* which : {"m", "v"}) add_changed(add_moment_scales(graph, p, which));
  Attributes attributes{{"beta1", optimizer.beta1},
                        {"beta2", optimizer.beta2},
                        {"eps", optimizer.eps},
                        {"weight_decay", p.decay ? optimizer.weight_decay : 0.0},
                        {"narrow", int64_t{full ? 1 : 0}}};
  if (split) attributes.set("split", int64_t{1});
  const bool rounded = p.has_no_master();
  if (rounded) attributes.set("rounding", std::string("stochastic"));
  const std::string name = p.parameter + ".adamw";
  if (rounded || p.moments == Moments::kBF16) {
    attributes.set("stream", stream_of(name));
    inputs.push_back(update_randomness(graph));
  }
  return append(graph, "adamw", name, std::move(inputs), std::move(attributes),
                update_part(block, std::move(names)))
      .at(3);
}

}  // namespace snug
