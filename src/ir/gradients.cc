// Gradient rules of the forward operations. The formulas are in docs/operations.md; a rule only chooses and
// wires operations.
#include <optional>

#include "base/errors.h"
#include "ir/operation_rules.h"

namespace snug {
namespace {

// Appends the backward operations of one forward operation under its name, part and block.
class Backward {
 public:
  explicit Backward(GradientRequest& request)
      : request_(request), op_(request.op), gradients_(request.op.inputs.size()) {
    require(request.d_outputs.size() == op_.outputs.size() && request.needs.size() == op_.inputs.size() &&
                request.partial.size() == op_.inputs.size(),
            "gradient of {}: the request does not match its operands", op_.name);
  }

  bool needs(size_t input) const { return request_.needs[input]; }
  TensorId input(size_t position) const { return op_.inputs.at(position); }
  TensorId output(size_t position) const { return op_.outputs.at(position); }
  TensorId d_output(size_t position) const { return request_.d_outputs[position]; }
  const Attributes& attributes() const { return op_.attributes; }
  const Graph& graph() const { return request_.graph; }

  // The gradient of the only output that a gradient flows into; the others are statistics.
  TensorId only_d_output() const {
    require(d_output(0).valid(), "gradient of {}: nothing flows back", op_.name);
    for (size_t i = 1; i < request_.d_outputs.size(); ++i)
      require(!d_output(i).valid(), "gradient of {}: output {} is a statistic and has no gradient", op_.name,
              i);
    return d_output(0);
  }

  // Name of the gradient of `input`.
  std::string gradient_name(size_t input) const {
    return "d." + request_.graph.tensor(op_.inputs.at(input)).name;
  }

  std::vector<TensorId> emit(std::string_view kind, std::string_view suffix, std::vector<TensorId> inputs,
                             Attributes attributes, std::vector<std::string> output_names,
                             Category category = Category::kActivations,
                             std::vector<TensorId> existing_outputs = {}) {
    return append(request_.graph, kind, op_.name + "." + std::string(suffix), std::move(inputs),
                  std::move(attributes),
                  {.part = Part::kBackward,
                   .block = op_.block,
                   .category = category,
                   .output_names = std::move(output_names),
                   .existing_outputs = std::move(existing_outputs)});
  }

  // The gradients of the parameters at `positions`, made by one operation whose accumulators follow `inputs`. Where `activation` is a
  // position, the operation's first output is that operand's gradient.
  void emit_parameters(std::string_view kind, std::string_view suffix, std::vector<TensorId> inputs,
                       Attributes attributes, const std::vector<size_t>& positions,
                       std::optional<size_t> activation = {}) {
    std::vector<std::string> names;
    size_t partials = 0;
    if (activation) names.push_back(gradient_name(*activation));
    for (size_t position : positions) {
      names.push_back(gradient_name(position));
      if (request_.partial[position].valid()) ++partials;
    }
    const bool accumulate = !positions.empty() && partials == positions.size();
    attributes.set("accumulate", int64_t{accumulate});
    if (accumulate)
      for (size_t position : positions) inputs.push_back(request_.partial[position]);
    std::vector<TensorId> made =
        emit(kind, suffix, std::move(inputs), std::move(attributes), std::move(names), Category::kGradients);
    if (activation) {
      request_.graph.tensor(made[0]).category = Category::kActivations;
      set(*activation, made[0]);
      made.erase(made.begin());
    }
    for (size_t i = 0; i < positions.size(); ++i) {
      const size_t position = positions[i];
      if (!needs(position)) continue;
      gradients_[position] = made[i];
      // Only some of an operation's parameters have a gradient so far: it cannot accumulate, so the sum is
      // separate.
      if (!accumulate && request_.partial[position].valid())
        gradients_[position] =
            emit("add", fmt::format("{}.add{}", suffix, i), {request_.partial[position], made[i]}, {},
                 {gradient_name(position)}, Category::kGradients)[0];
    }
  }

  void set(size_t input, TensorId gradient) {
    if (needs(input)) gradients_.at(input) = gradient;
  }
  std::vector<TensorId> done() const { return gradients_; }
  GradientRequest& request() { return request_; }

 private:
  GradientRequest& request_;
  const Op& op_;
  std::vector<TensorId> gradients_;
};

// Backward of the product with operands x, w, [bias] at 0, 1, 2.
void emit_linear(Backward& backward, TensorId d_y) {
  const Attributes weight{{"weight", backward.attributes().word("weight")}};
  // The parameters' gradients come first: they are the last use of a recomputed x, whose bytes are then free
  // when its gradient is made.
  if (backward.needs(1))
    backward.emit_parameters("linear_dweight", "dweight", {backward.input(0), d_y}, weight, {1});
  if (backward.attributes().integer("bias") == 1 && backward.needs(2))
    backward.emit_parameters("linear_dbias", "dbias", {d_y}, {}, {2});
  if (backward.needs(0))
    backward.set(0, backward.emit("linear_dx", "dx", {d_y, backward.input(1)}, weight,
                                  {backward.gradient_name(0)})[0]);
}

// The loss's own gradient is 1 and no tensor: nothing may follow the operation that makes the loss.
void require_loss(const Backward& backward, std::string_view kind) {
  require(!backward.d_output(0).valid(), "gradient of {}: its output is the loss, nothing may follow it",
          kind);
}

std::vector<TensorId> gradient_of_norm(GradientRequest& request, std::string_view kind, bool centred) {
  Backward backward(request);
  const TensorId d_y = backward.only_d_output();
  const TensorId x = backward.input(0), w = backward.input(1);
  std::vector<TensorId> statistics;
  for (size_t i = 1; i < request.op.outputs.size(); ++i) statistics.push_back(backward.output(i));
  const auto with_statistics = [&](std::vector<TensorId> inputs) {
    inputs.insert(inputs.end(), statistics.begin(), statistics.end());
    return inputs;
  };
  // The parameters' gradients come first: the gradient of x may then take d_y's storage.
  if (backward.needs(1) || (centred && backward.needs(2)))
    backward.emit_parameters(fmt::format("{}_dweight", kind), "dweight", with_statistics({d_y, x}), {},
                             centred ? std::vector<size_t>{1, 2} : std::vector<size_t>{1});
  if (backward.needs(0))
    backward.set(0, backward.emit(fmt::format("{}_dx", kind), "dx", with_statistics({d_y, x, w}), {},
                                  {backward.gradient_name(0)})[0]);
  return backward.done();
}

}  // namespace

std::vector<TensorId> gradient_of_embedding(GradientRequest& request) {
  Backward backward(request);
  if (backward.needs(1)) {
    const int64_t rows = backward.graph().tensor(backward.input(1)).shape.dim(0);
    backward.emit_parameters("embedding_dtable", "dtable", {backward.input(0), backward.only_d_output()},
                             {{"rows", rows}}, {1});
  }
  return backward.done();
}

std::vector<TensorId> gradient_of_add(GradientRequest& request) {
  Backward backward(request);
  backward.set(0, backward.only_d_output());
  backward.set(1, backward.only_d_output());
  return backward.done();
}

std::vector<TensorId> gradient_of_linear(GradientRequest& request) {
  Backward backward(request);
  emit_linear(backward, backward.only_d_output());
  return backward.done();
}

std::vector<TensorId> gradient_of_linear_gelu(GradientRequest& request) {
  Backward backward(request);
  TensorId d_u = backward.d_output(0);
  if (const TensorId d_h = backward.d_output(1); d_h.valid()) {
    const std::string name = "d." + backward.graph().tensor(backward.output(0)).name;
    const TensorId through =
        backward.emit("gelu_backward", "gelu.du", {d_h, backward.output(0)},
                      {{"approximate", backward.attributes().word("approximate")}}, {name})[0];
    d_u = d_u.valid() ? backward.emit("add", "du", {d_u, through}, {}, {name})[0] : through;
  }
  require(d_u.valid(), "gradient of {}: nothing flows back", request.op.name);
  emit_linear(backward, d_u);
  return backward.done();
}

std::vector<TensorId> gradient_of_linear_add(GradientRequest& request) {
  Backward backward(request);
  const TensorId d_y = backward.only_d_output();
  emit_linear(backward, d_y);
  backward.set(request.op.inputs.size() - 1, d_y);
  return backward.done();
}

std::vector<TensorId> gradient_of_layer_norm(GradientRequest& request) {
  return gradient_of_norm(request, "layer_norm", true);
}

std::vector<TensorId> gradient_of_rms_norm(GradientRequest& request) {
  return gradient_of_norm(request, "rms_norm", false);
}

std::vector<TensorId> gradient_of_rotary(GradientRequest& request) {
  Backward backward(request);
  Attributes attributes = backward.attributes();
  attributes.set("inverse", 1 - attributes.integer("inverse"));
  if (backward.needs(0))
    backward.set(
        0, backward.emit("rotary", "dx", {backward.only_d_output(), backward.input(1), backward.input(2)},
                         attributes, {backward.gradient_name(0)})[0]);
  return backward.done();
}

std::vector<TensorId> gradient_of_attention(GradientRequest& request) {
  Backward backward(request);
  std::vector<TensorId> inputs{backward.only_d_output(), backward.input(0),  backward.input(1),
                               backward.input(2),        backward.output(0), backward.output(1)};
  inputs.insert(inputs.end(), request.op.inputs.begin() + 3, request.op.inputs.end());
  if (!backward.needs(0) && !backward.needs(1) && !backward.needs(2)) return backward.done();
  const std::vector<TensorId> made =
      backward.emit("attention_backward", "backward", std::move(inputs), backward.attributes(),
                    {backward.gradient_name(0), backward.gradient_name(1), backward.gradient_name(2)});
  for (size_t i = 0; i < 3; ++i) backward.set(i, made[i]);
  return backward.done();
}

std::vector<TensorId> gradient_of_attention_qkv(GradientRequest& request) {
  Backward backward(request);
  std::vector<TensorId> inputs{backward.only_d_output(), backward.input(0), backward.output(0),
                               backward.output(1)};
  inputs.insert(inputs.end(), request.op.inputs.begin() + 1, request.op.inputs.end());
  if (backward.needs(0))
    backward.set(0, backward.emit("attention_qkv_backward", "backward", std::move(inputs),
                                  backward.attributes(), {backward.gradient_name(0)})[0]);
  return backward.done();
}

std::vector<TensorId> gradient_of_gelu(GradientRequest& request) {
  Backward backward(request);
  if (backward.needs(0))
    backward.set(0, backward.emit("gelu_backward", "du", {backward.only_d_output(), backward.input(0)},
                                  backward.attributes(), {backward.gradient_name(0)})[0]);
  return backward.done();
}

std::vector<TensorId> gradient_of_swiglu(GradientRequest& request) {
  Backward backward(request);
  if (!backward.needs(0) && !backward.needs(1)) return backward.done();
  const std::vector<TensorId> made = backward.emit(
      "swiglu_backward", "backward", {backward.only_d_output(), backward.input(0), backward.input(1)}, {},
      {backward.gradient_name(0), backward.gradient_name(1)});
  backward.set(0, made[0]);
  backward.set(1, made[1]);
  return backward.done();
}

std::vector<TensorId> gradient_of_mlp(GradientRequest& request) {
  Backward backward(request);
  std::vector<TensorId> inputs{backward.only_d_output()};
  inputs.insert(inputs.end(), request.op.inputs.begin(), request.op.inputs.end());
  std::vector<size_t> parameters;
  int64_t gradients = 0;
  for (size_t input = 0; input < request.op.inputs.size(); ++input) {
    if (!backward.needs(input)) continue;
    gradients |= int64_t{1} << input;
    if (input > 0) parameters.push_back(input);
  }
  if (gradients == 0) return backward.done();
  Attributes attributes = backward.attributes();
  attributes.set("gradients", gradients);
  backward.emit_parameters("mlp_gradient", "gradient", std::move(inputs), std::move(attributes), parameters,
                           backward.needs(0) ? std::optional<size_t>(0) : std::nullopt);
  return backward.done();
}

std::vector<TensorId> gradient_of_dropout(GradientRequest& request) {
  Backward backward(request);
  if (backward.needs(0))
    backward.set(0, backward.emit("dropout", "dx", {backward.only_d_output(), backward.input(1)},
                                  backward.attributes(), {backward.gradient_name(0)})[0]);
  return backward.done();
}

std::vector<TensorId> gradient_of_head_loss(GradientRequest& request) {
  Backward backward(request);
  require_loss(backward, request.op.name);
  const bool dweight = backward.needs(1);
  const bool accumulate = dweight && request.partial[1].valid();
  Attributes attributes = backward.attributes();
  attributes.set("dweight", int64_t{dweight});
  attributes.set("accumulate", int64_t{accumulate});
  std::vector<TensorId> inputs = request.op.inputs;
  if (accumulate) inputs.push_back(request.partial[1]);
  std::vector<std::string> names{"", backward.gradient_name(0)};
  if (dweight) names.push_back(backward.gradient_name(1));
  const std::vector<TensorId> made =
      backward.emit("head_loss_gradient", "gradient", std::move(inputs), std::move(attributes),
                    std::move(names), Category::kActivations, {backward.output(0)});
  backward.set(0, made[1]);
  if (dweight) {
    request.graph.tensor(made[2]).category = Category::kGradients;
    backward.set(1, made[2]);
  }
  request.replaces_forward = true;
  return backward.done();
}

std::vector<TensorId> gradient_of_cross_entropy(GradientRequest& request) {
  Backward backward(request);
  require_loss(backward, request.op.name);
  if (backward.needs(0))
    backward.set(0, backward.emit("cross_entropy_backward", "dlogits", request.op.inputs, {},
                                  {backward.gradient_name(0)})[0]);
  return backward.done();
}

}  // namespace snug
