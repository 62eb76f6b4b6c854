#include "passes/chunk_mlp.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "ir/operations.h"
#include "passes/uses.h"

namespace snug {
namespace {

// Operations of one MLP, by index: the products before the activation in the order in which it reads them.
struct Mlp {
  std::vector<size_t> before;
  size_t activation = 0, down = 0;
};

class ChunkMlp {
 public:
  ChunkMlp(Graph& graph, int64_t rows)
      : graph_(graph), rows_(rows), producer_(producers(graph)), uses_(use_counts(graph)) {}

  bool run() {
    std::vector<std::optional<Mlp>> ends_in(graph_.ops.size());
    std::vector<bool> is_inside(graph_.ops.size(), false);
    bool found = false;
    for (size_t op_idx = 0; op_idx < graph_.ops.size(); ++op_idx) {
      ends_in[op_idx] = mlp_behind(op_idx);
      if (!ends_in[op_idx]) continue;
      found = true;
      for (size_t before : ends_in[op_idx]->before) is_inside[before] = true;
      is_inside[ends_in[op_idx]->activation] = true;
    }
    if (!found) return false;
    const std::vector<Op> ops = std::exchange(graph_.ops, {});
    for (size_t op_idx = 0; op_idx < ops.size(); ++op_idx) {
      if (ends_in[op_idx])
        append_mlp(ops, *ends_in[op_idx]);
      else if (!is_inside[op_idx])
        graph_.ops.push_back(ops[op_idx]);
    }
    canonicalize(graph_);
    return true;
  }

 private:
  // The operation that makes `tensor` for one reader alone.
  std::optional<size_t> only_maker(TensorId tensor) const {
    const int32_t op_idx = producer_[tensor.index()];
    if (op_idx < 0 || uses_[tensor.index()] != 1) return std::nullopt;
    return static_cast<size_t>(op_idx);
  }

  static bool is_product(const Op& op) {
    return op.kind == "linear" && !op.attributes.has("out") && op.part == Part::kForward;
  }

  std::optional<Mlp> mlp_behind(size_t down_idx) const {
    const Op& down = graph_.ops[down_idx];
    if (!is_product(down)) return std::nullopt;
    const std::optional<size_t> activation = only_maker(down.inputs.at(0));
    if (!activation) return std::nullopt;
    const Op& bends = graph_.ops[*activation];
    if ((bends.kind != "gelu" && bends.kind != "swiglu") || bends.part != down.part ||
        bends.block != down.block)
      return std::nullopt;
    Mlp mlp{.before = {}, .activation = *activation, .down = down_idx};
    for (TensorId input : bends.inputs) {
      const std::optional<size_t> before = only_maker(input);
      if (!before) return std::nullopt;
      const Op& product = graph_.ops[*before];
      if (!is_product(product) || product.block != down.block || product.attributes != down.attributes)
        return std::nullopt;
      mlp.before.push_back(*before);
    }
    const TensorId x = graph_.ops[mlp.before[0]].inputs.at(0);
    for (size_t before : mlp.before)
      if (graph_.ops[before].inputs.at(0) != x) return std::nullopt;
    if (graph_.tensor(x).shape.rows() <= rows_) return std::nullopt;
    return mlp;
  }

  void append_mlp(const std::vector<Op>& ops, const Mlp& mlp) {
    const Op &bends = ops[mlp.activation], &down = ops[mlp.down];
    std::vector<TensorId> inputs{ops[mlp.before[0]].inputs[0]};
    const auto add_parameters = [&](const Op& product) {
      inputs.insert(inputs.end(), product.inputs.begin() + 1, product.inputs.end());
    };
    for (size_t before : mlp.before) add_parameters(ops[before]);
    add_parameters(down);
    Attributes attributes = down.attributes;
    attributes.set("activation",
                   bends.kind == "swiglu" ? "swiglu" : "gelu_" + bends.attributes.word("approximate"));
    attributes.set("chunk", rows_);
    append(graph_, "mlp", name_of(ops, mlp), std::move(inputs), std::move(attributes),
           {.part = down.part, .block = down.block, .existing_outputs = down.outputs});
  }

  // "h.0.mlp" of h.0.mlp.c_fc, h.0.mlp.act and h.0.mlp.c_proj; the last product's name where they have nothing in common, or
  // another operation has it.
  std::string name_of(const std::vector<Op>& ops, const Mlp& mlp) const {
    const std::string& last = ops[mlp.down].name;
    std::string common = last;
    const auto shorten = [&](const std::string& other) {
      const auto end = std::mismatch(common.begin(), common.end(), other.begin(), other.end()).first;
      common.erase(end, common.end());
    };
    for (size_t before : mlp.before) shorten(ops[before].name);
    shorten(ops[mlp.activation].name);
    const size_t dot = common.rfind('.');
    if (dot == std::string::npos || dot == 0) return last;
    common.erase(dot);
    const auto has_it = [&](const Op& op) { return op.name == common; };
    const bool is_taken = std::any_of(ops.begin(), ops.end(), has_it) ||
                          std::any_of(graph_.ops.begin(), graph_.ops.end(), has_it);
    return is_taken ? last : common;
  }

  Graph& graph_;
  int64_t rows_;
  std::vector<int32_t> producer_, uses_;
};

}  // namespace

bool chunk_mlp(Graph& graph, int64_t rows) {
  require(rows >= 1, "chunk_mlp: chunks of {} rows", rows);
  return ChunkMlp(graph, rows).run();
}

}  // namespace snug
