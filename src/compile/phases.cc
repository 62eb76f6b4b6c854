#include "compile/phases.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "ir/operations.h"
#include "passes/scale_loss.h"

namespace snug {

Graph load_graph(const std::vector<PlannedParameter>& parameters) {
  Graph graph;
  graph.name = "load";
  AppendOptions options{.part = Part::kLoad,
                        .block = -1,
                        .category = Category::kWeights,
                        .output_names = {},
                        .existing_outputs = {}};
  const auto define = [&](std::string_view kind, const std::string& name, std::vector<TensorId> inputs,
                          std::vector<TensorId> outputs, Attributes attributes) {
    options.existing_outputs = std::move(outputs);
    append(graph, kind, name, std::move(inputs), std::move(attributes), options);
  };
  for (const PlannedParameter& p : parameters) {
    if (p.has_full_master()) {
      const TensorId master = add_master(graph, p);
      define("read_tensor", p.parameter + ".read", {}, {master}, {});
      Attributes narrow;
      if (p.dtype == DType::kF16) narrow.set("out", "f16");
      define("narrow_weight", p.parameter + ".narrow", {master}, {add_weight(graph, p)}, std::move(narrow));
    } else {
      std::vector<TensorId> stored{add_weight(graph, p)};
      if (p.has_split_master()) stored.push_back(add_master(graph, p));
      define("read_tensor", p.parameter + ".read", {}, std::move(stored), {});
    }
    if (!p.trainable) continue;
    const auto fill = [&](TensorId state) {
      define("fill", graph.tensor(state).name + ".fill", {}, {state}, {{"value", 0.0}});
    };
    for (const char* moment : {"m", "v"}) {
      fill(add_moment(graph, p, moment));  // code 0 is 0
      if (p.moments == Moments::kEightBit) fill(add_moment_scales(graph, p, moment));
    }
  }
  return graph;
}

Graph update_graph(const std::vector<PlannedParameter>& parameters, const OptimizerOptions& optimizer) {
  Graph graph;
  graph.name = "update";
  const TensorId hyperparameters = add_hyperparameters(graph);
  std::vector<TensorId> gradients;
  std::vector<TensorId> control_inputs{hyperparameters};
  Attributes control_attributes{{"max_grad_norm", optimizer.max_grad_norm}};
  // Gradients of an f16 model come multiplied by the loss scale.
  const bool scaled = std::any_of(parameters.begin(), parameters.end(),
                                  [](const PlannedParameter& p) { return p.dtype == DType::kF16; });
  if (scaled) {
    control_inputs.push_back(add_loss_scale(graph));
    control_attributes.set("scaled", int64_t{1});
  }
  for (const PlannedParameter& p : parameters) {
    if (!p.trainable) continue;
    gradients.push_back(graph.add_tensor({.name = "d." + p.parameter,
                                          .dtype = p.has_narrow_gradient() ? DType::kBF16 : DType::kF32,
                                          .shape = p.shape,
                                          .storage = Storage::kCarried,
                                          .category = Category::kGradients,
                                          .parameter = {}}));
    control_inputs.push_back(append_sum_squares(graph, p, gradients.back()));
  }
  require(!gradients.empty(), "update: no parameter is trainable");
  const TensorId control = append(graph, "update_control", "update_control", std::move(control_inputs),
                                  std::move(control_attributes),
                                  {.part = Part::kUpdate,
                                   .block = -1,
                                   .category = Category::kData,
                                   .output_names = {"control"},
                                   .existing_outputs = {}})
                               .at(0);
  graph.results.push_back(control);

  size_t gradient_idx = 0;
  for (const PlannedParameter& p : parameters)
    if (p.trainable)
      graph.results.push_back(append_adamw(graph, p, optimizer, add_weight(graph, p),
                                           gradients[gradient_idx++], hyperparameters, control));
  return graph;
}

Graph save_graph(const std::vector<PlannedParameter>& parameters) {
  Graph graph;
  graph.name = "save";
  for (const PlannedParameter& p : parameters) {
    std::vector<TensorId> stored{p.has_full_master() ? add_master(graph, p) : add_weight(graph, p)};
    Attributes attributes;
    if (p.has_split_master()) {
      stored.push_back(add_master(graph, p));
      attributes.set("split", int64_t{1});
    }
    append(graph, "write_tensor", p.parameter + ".write", std::move(stored), std::move(attributes),
           {.part = Part::kSave});
  }
  return graph;
}

}  // namespace snug
