// planner/example_test.h — what the planner's tests share: a described target, small models, the passes after
// recompute, and the peak by analysis/liveness, which shares no code with the planner
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "analysis/liveness.h"
#include "analysis/peak.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "passes/accumulate.h"
#include "passes/differentiate.h"
#include "passes/fuse.h"
#include "passes/in_place.h"
#include "passes/recompute.h"
#include "plan/target.h"
#include "planner/price.h"

namespace snug::planner {

// A roofline, with a chunk of logits as the head's scratch and a row of floats as every product's.
class DescribedTarget : public Target {
 public:
  std::string name() const override { return "described"; }
  std::optional<std::string> refusal(const OpQuery&) const override { return std::nullopt; }
  Bytes alignment() const override { return Bytes(64); }
  Bytes scratch_bytes(const OpQuery& query) const override {
    if (query.attributes.has("chunk"))
      return Bytes(query.attributes.integer("chunk") * query.inputs[1].shape.dim(0) * 4);
    return query.op.starts_with("linear") ? Bytes(query.inputs[0].shape.last() * 4) : Bytes(0);
  }
  double seconds(const OpQuery&, const OpCost& cost) const override {
    return std::max(cost.flops / 1e11, cost.bytes / 1e10) + 1e-6;
  }
};

inline Model gpt2_example(int64_t layers, int64_t hidden, double dropout = 0, bool tied = true) {
  Gpt2Config config;
  config.layers = layers;
  config.hidden = hidden;
  config.inner = 4 * hidden;
  config.heads = hidden / 16;
  config.vocab_size = 257;
  config.tie_word_embeddings = tied;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = dropout;
  return gpt2_model(config);
}

inline Model llama_example(int64_t layers, int64_t hidden, bool tied = true) {
  LlamaConfig config;
  config.vocab_size = 257;
  config.hidden = hidden;
  config.intermediate = 3 * hidden;
  config.layers = layers;
  config.heads = hidden / 16;
  config.kv_heads = hidden / 32;
  config.head_dim = 16;
  config.tie_word_embeddings = tied;
  return llama_model(config);
}

// The micro-step with its backward, as recompute finds it.
inline Graph micro_step(const Model& model, int64_t batch, int64_t length) {
  Graph graph = build_forward(model, Purpose::kTrain, batch, length);
  differentiate(graph);
  return graph;
}

inline Finish finish(bool accumulates = false) {
  return [accumulates](Graph& graph) {
    fuse(graph);
    if (accumulates) accumulate(graph);
    in_place(graph);
  };
}

// The peak of a micro-step with `retentions`, judged by analysis.
inline Bytes true_peak(const Graph& graph, const Retentions& retentions, const Finish& passes) {
  Graph made = graph;
  recompute(made, retentions);
  passes(made);
  Program program;
  program.phases.push_back({.graph = made, .repeats = 1});
  const DescribedTarget target;
  const Timeline timeline = liveness(program, target, Bytes(4096));
  return phase_peaks(program, timeline, target.alignment()).at(0).bytes;
}

}  // namespace snug::planner
