#include "compile/phases.h"

#include <utility>

#include "base/errors.h"
#include "ir/operations.h"

namespace snug {
namespace {

TensorId add_weight(Graph& graph, const PlannedParameter& p) {
  return graph.add_tensor({.name = p.name,
                           .dtype = p.dtype,
                           .shape = p.shape,
                           .storage = Storage::kState,
                           .category = Category::kWeights,
                           .parameter = p.parameter,
                           .trainable = p.trainable,
                           .decay = p.decay});
}

TensorId add_master(Graph& graph, const PlannedParameter& p) {
  return graph.add_tensor({.name = "master." + p.parameter,
                           .dtype = DType::kF32,
                           .shape = p.shape,
                           .storage = Storage::kState,
                           .category = Category::kMasterWeights,
                           .parameter = p.parameter,
                           .trainable = p.trainable,
                           .decay = p.decay});
}

TensorId add_moment(Graph& graph, const PlannedParameter& p, const char* which) {
  return graph.add_tensor({.name = fmt::format("{}.{}", which, p.parameter),
                           .dtype = DType::kF32,
                           .shape = p.shape,
                           .storage = Storage::kState,
                           .category = Category::kOptimizerState,
                           .parameter = {}});
}

}  // namespace

std::vector<PlannedParameter> planned_parameters(const Graph& graph, bool training) {
  std::vector<PlannedParameter> parameters;
  for (const Tensor& tensor : graph.tensors)
    if (tensor.storage == Storage::kState && !tensor.parameter.empty())
      parameters.push_back({.name = tensor.name,
                            .parameter = tensor.parameter,
                            .shape = tensor.shape,
                            .dtype = tensor.dtype,
                            .trainable = training && tensor.trainable,
                            .decay = tensor.decay});
  return parameters;
}

Graph load_graph(const std::vector<PlannedParameter>& parameters) {
  Graph graph;
  graph.name = "load";
  AppendOptions options{.part = Part::kLoad,
                        .block = -1,
                        .category = Category::kWeights,
                        .output_names = {},
                        .existing_outputs = {}};
  const auto define = [&](std::string_view kind, std::string name, std::vector<TensorId> inputs,
                          TensorId output, Attributes attributes) {
    options.existing_outputs = {output};
    append(graph, kind, name, std::move(inputs), std::move(attributes), options);
  };
  for (const PlannedParameter& p : parameters) {
    if (p.has_master()) {
      const TensorId master = add_master(graph, p);
      define("read_tensor", p.parameter + ".read", {}, master, {});
      define("narrow_weight", p.parameter + ".narrow", {master}, add_weight(graph, p), {});
    } else {
      define("read_tensor", p.parameter + ".read", {}, add_weight(graph, p), {});
    }
    if (!p.trainable) continue;
    for (const char* moment : {"m", "v"})
      define("fill", fmt::format("{}.{}.fill", moment, p.parameter), {}, add_moment(graph, p, moment),
             {{"value", 0.0}});
  }
  return graph;
}

Graph update_graph(const std::vector<PlannedParameter>& parameters, const OptimizerOptions& optimizer) {
  Graph graph;
  graph.name = "update";
  AppendOptions options{.part = Part::kUpdate,
                        .block = -1,
                        .category = Category::kData,
                        .output_names = {},
                        .existing_outputs = {}};
  const TensorId hyperparameters = graph.add_tensor({.name = "hyperparameters",
                                                     .dtype = DType::kF32,
                                                     .shape = {4},
                                                     .storage = Storage::kInput,
                                                     .category = Category::kData,
                                                     .parameter = {}});
  std::vector<TensorId> gradients;
  std::vector<TensorId> control_inputs{hyperparameters};
  for (const PlannedParameter& p : parameters) {
    if (!p.trainable) continue;
    gradients.push_back(graph.add_tensor({.name = "d." + p.parameter,
                                          .dtype = DType::kF32,
                                          .shape = p.shape,
                                          .storage = Storage::kCarried,
                                          .category = Category::kGradients,
                                          .parameter = {}}));
    control_inputs.push_back(append(graph, "sum_squares", fmt::format("d.{}.sum_squares", p.parameter),
                                    {gradients.back()}, {}, options)
                                 .at(0));
  }
  require(!gradients.empty(), "update: no parameter is trainable");
  options.output_names = {"control"};
  const TensorId control = append(graph, "update_control", "update_control", std::move(control_inputs),
                                  {{"max_grad_norm", optimizer.max_grad_norm}}, options)
                               .at(0);
  graph.results.push_back(control);

  size_t gradient_idx = 0;
  for (const PlannedParameter& p : parameters) {
    if (!p.trainable) continue;
    const TensorId weight = add_weight(graph, p);
    const TensorId stored = p.has_master() ? add_master(graph, p) : weight;
    const TensorId m = add_moment(graph, p, "m");
    const TensorId v = add_moment(graph, p, "v");
    std::vector<TensorId> inputs{stored, m, v, gradients[gradient_idx++], hyperparameters, control};
    options.output_names = {graph.tensor(stored).name + ".next", graph.tensor(m).name + ".next",
                            graph.tensor(v).name + ".next", "moved." + p.parameter};
    if (p.has_master()) {
      inputs.push_back(weight);
      options.output_names.push_back(p.name + ".next");
    }
    const Attributes attributes{{"beta1", optimizer.beta1},
                                {"beta2", optimizer.beta2},
                                {"eps", optimizer.eps},
                                {"weight_decay", p.decay ? optimizer.weight_decay : 0.0},
                                {"narrow", int64_t{p.has_master() ? 1 : 0}}};
    graph.results.push_back(
        append(graph, "adamw", p.parameter + ".adamw", std::move(inputs), attributes, options).at(3));
  }
  return graph;
}

Graph save_graph(const std::vector<PlannedParameter>& parameters) {
  Graph graph;
  graph.name = "save";
  for (const PlannedParameter& p : parameters) {
    const TensorId stored = p.has_master() ? add_master(graph, p) : add_weight(graph, p);
    append(graph, "write_tensor", p.parameter + ".write", {stored}, {}, {.part = Part::kSave});
  }
  return graph;
}

}  // namespace snug
