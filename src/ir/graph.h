// ir/graph.h — one phase of a training run as static single-assignment operations on tensors of known shape
//
// A Graph is plain data: a list of tensors, a list of operations in execution order (always topological), and
// the tensors that must outlive the phase. Passes are functions from a Graph to a changed Graph. A Program is
// the list of phases. Text form: ir/text.h. What an operation means: docs/operations.md and the table in
// ir/operations.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/attributes.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "base/shape.h"

namespace snug {

using TensorId = Id<struct TensorTag>;
using OpId = Id<struct OpTag>;

// Where a tensor's value comes from and how long it stays.
enum class Storage : uint8_t {
  kState,    // has a value on entry and lives through the whole plan: weights, master weights, moments
  kInput,    // written by the host right before each repetition of the phase: tokens, hyper-parameters
  kCarried,  // produced by an earlier phase or repetition, under the same name: gradients in the update
  kValue,    // the result of an operation of this graph
};
std::string_view storage_name(Storage storage);  // "state", "input", "carried", "value"
std::optional<Storage> parse_storage(std::string_view name);

// What a tensor's bytes are charged to in every report.
enum class Category : uint8_t {
  kWeights,
  kMasterWeights,
  kGradients,
  kOptimizerState,
  kActivations,
  kScratch,
  kData,
};
std::string_view category_name(Category category);  // "weights", "master_weights", "gradients", …
std::optional<Category> parse_category(std::string_view name);

struct Tensor {
  std::string name;  // unique within the graph, [A-Za-z0-9_.]+; state, carried and results are matched across
                     // phases by it
  DType dtype = DType::kF32;
  Shape shape = {};
  Storage storage = Storage::kValue;
  Category category = Category::kActivations;
  // Parameters only (kState of category weights or master_weights, before `cast` the f32 weight itself):
  std::string parameter = {};  // the file's tensor name; empty for everything else
  bool trainable = false;      // differentiate makes a gradient for it
  bool decay = false;          // weight decay applies (matrices and embeddings; not biases and norms)

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// Which part of the micro-step an operation belongs to. `recompute` is forward work repeated for the
// backward.
enum class Part : uint8_t { kForward, kRecompute, kBackward, kUpdate, kLoad, kSave };
std::string_view part_name(Part part);  // "forward", "recompute", "backward", "update", "load", "save"
std::optional<Part> parse_part(std::string_view name);

struct Op {
  std::string kind;  // the operation's name in the table: "linear"
  std::string name;  // logical name, unique within the graph: "h.3.attn.c_proj", "h.3.attn.c_proj.dx"
  std::vector<TensorId> inputs = {};  // in the table's order; optional operands that are absent are left out
  std::vector<TensorId> outputs = {};
  Attributes attributes = {};
  Part part = Part::kForward;
  int32_t block = -1;  // transformer block, or -1 outside every block
  // Outputs that share storage with an input: {output position, input position}. Filled in by the verifier's
  // *must* rules (accumulators, update) at creation and by the pass `in_place` for *may* rules.
  struct Alias {
    int32_t output = 0, input = 0;
    friend bool operator==(Alias, Alias) = default;
  };
  std::vector<Alias> aliases = {};

  friend bool operator==(const Op&, const Op&) = default;
};

// Name → position, so that a graph of thousands of tensors is built in linear time. A cache of Graph's own:
// copies of a graph begin with an empty one, it takes part in no comparison, and what it says is always
// checked against the tensors.
class NameIndex {
 public:
  NameIndex() = default;
  NameIndex(const NameIndex&) {}
  NameIndex(NameIndex&&) noexcept = default;
  NameIndex& operator=(const NameIndex&) {
    clear();
    return *this;
  }
  NameIndex& operator=(NameIndex&&) noexcept = default;
  friend bool operator==(const NameIndex&, const NameIndex&) { return true; }

  TensorId find(const std::vector<Tensor>& tensors, std::string_view name);
  // Tensor `id` is about to be called `name` instead of its present name; constant time.
  void rename(const std::vector<Tensor>& tensors, TensorId id, std::string_view name);
  void clear();

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
  };
  void catch_up(const std::vector<Tensor>& tensors);

  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> positions_;
  size_t indexed_ = 0;  // tensors[0, indexed_) are in positions_
};

struct Graph {
  std::string name;               // the phase: "micro_step", "update", "evaluate", …
  std::vector<Tensor> tensors;    // indexed by TensorId
  std::vector<Op> ops;            // indexed by OpId; execution order
  std::vector<TensorId> results;  // values that outlive the phase: loss, gradients, logits, control

  const Tensor& tensor(TensorId id) const { return tensors.at(id.index()); }
  Tensor& tensor(TensorId id) { return tensors.at(id.index()); }
  const Op& op(OpId id) const { return ops.at(id.index()); }

  // Adds a tensor; InternalError if the name is taken or is not [A-Za-z0-9_.]+.
  TensorId add_tensor(Tensor tensor);
  // Gives a tensor another name; InternalError as above. A name is changed in no other way: find() relies on
  // it.
  void rename(TensorId id, std::string_view tensor_name);
  // The tensor of that name, or an invalid id. Constant time once the graph's names are indexed.
  TensorId find(std::string_view tensor_name) const;
  // `stem` if no tensor has that name, otherwise stem.1, stem.2, …
  std::string unique_name(std::string_view stem) const;

  mutable NameIndex name_index;

  friend bool operator==(const Graph&, const Graph&) = default;
};

// Drops the tensors that no operation and no result mentions and that are kValue, and puts the rest in
// canonical order: state, inputs and carried ones in their old order, then values in the order in which
// operations define them. Returns, per old tensor, its new id (invalid: dropped). Text forms of canonical
// graphs need no list of the tensors' order.
std::vector<TensorId> canonicalize(Graph& graph);

// What a name of a tensor or operation looks like: [A-Za-z0-9_.]+.
bool is_graph_name(std::string_view text);

// One phase of the plan and how often it runs in one update (0 = on demand: evaluate, generate, load, save).
struct Phase {
  Graph graph;
  int64_t repeats = 1;
};

// All phases in the order in which they first run: load, micro_step, update, evaluate, generate_16 …, save.
struct Program {
  std::vector<Phase> phases;
};

}  // namespace snug
