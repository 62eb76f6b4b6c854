// models/forward_builder.h — what the forward graphs of all families are built with
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/operations.h"
#include "models/model.h"

namespace snug {

class ForwardBuilder {
 public:
  // Makes the graph with all parameters as states. `model` must outlive the builder.
  ForwardBuilder(const Model& model, Purpose purpose, int64_t batch, int64_t length);

  int64_t batch() const { return batch_; }
  int64_t length() const { return length_; }

  // The state of a parameter; InternalError if the model has none of that name.
  TensorId parameter(std::string_view name) const;
  // The input of that name (model.h lists them), made when first asked for.
  TensorId input(std::string_view name);

  // Operations appended from now on belong to this block; -1: to none.
  void set_block(int32_t block) { block_ = block; }

  // Appends an operation; outputs are named after it, further ones with the given suffixes. Returns the first
  // output.
  TensorId add(std::string_view kind, const std::string& name, std::vector<TensorId> inputs,
               Attributes attributes = {}, const std::vector<std::string>& suffixes = {});
  // The same, all outputs.
  std::vector<TensorId> add_all(std::string_view kind, const std::string& name, std::vector<TensorId> inputs,
                                Attributes attributes, const std::vector<std::string>& suffixes);

  // x through dropout, or x itself when the probability is 0 or the graph is not for training.
  TensorId dropout(const std::string& name, TensorId x, double probability);
  // Completes an attention: adds heads, kv_heads, scale and the dropout's attributes, document_starts and
  // randomness.
  TensorId attention(std::string_view kind, const std::string& name, std::vector<TensorId> inputs,
                     int64_t heads, int64_t kv_heads, int64_t head_dim, double dropout);
  // The head on x, `chunk` rows of logits at a time: the result of the graph.
  void head(TensorId x, std::string_view weight, int64_t chunk);

  Graph take() { return std::move(graph_); }

 private:
  const Model& model_;
  Purpose purpose_;
  int64_t batch_, length_;
  int32_t block_ = -1;
  Graph graph_;
};

}  // namespace snug
