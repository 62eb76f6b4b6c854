#include "ir/graph.h"

#include <algorithm>
#include <array>

#include "base/errors.h"

namespace snug {
namespace {

constexpr std::array<std::string_view, 4> kStorageNames = {"state", "input", "carried", "value"};
constexpr std::array<std::string_view, 7> kCategoryNames = {
    "weights", "master_weights", "gradients", "optimizer_state", "activations", "scratch", "data"};
constexpr std::array<std::string_view, 6> kPartNames = {"forward", "recompute", "backward",
                                                        "update",  "load",      "save"};

template <typename Enum, size_t N>
std::optional<Enum> parse_enum(const std::array<std::string_view, N>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

}  // namespace

std::string_view storage_name(Storage storage) { return kStorageNames.at(static_cast<size_t>(storage)); }
std::string_view category_name(Category category) { return kCategoryNames.at(static_cast<size_t>(category)); }
std::string_view part_name(Part part) { return kPartNames.at(static_cast<size_t>(part)); }

std::optional<Storage> parse_storage(std::string_view name) {
  return parse_enum<Storage>(kStorageNames, name);
}
std::optional<Category> parse_category(std::string_view name) {
  return parse_enum<Category>(kCategoryNames, name);
}
std::optional<Part> parse_part(std::string_view name) { return parse_enum<Part>(kPartNames, name); }

bool is_graph_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
}

void NameIndex::clear() {
  positions_.clear();
  indexed_ = 0;
}

void NameIndex::catch_up(const std::vector<Tensor>& tensors) {
  if (indexed_ > tensors.size()) clear();
  for (; indexed_ < tensors.size(); ++indexed_)
    positions_.emplace(tensors[indexed_].name, static_cast<int32_t>(indexed_));
}

TensorId NameIndex::find(const std::vector<Tensor>& tensors, std::string_view name) {
  catch_up(tensors);
  auto found = positions_.find(name);
  const auto holds = [&] { return tensors[static_cast<size_t>(found->second)].name == name; };
  if (found != positions_.end() && !holds()) {  // tensors were moved since: begin anew
    clear();
    catch_up(tensors);
    found = positions_.find(name);
  }
  return found == positions_.end() ? TensorId() : TensorId(found->second);
}

void NameIndex::rename(const std::vector<Tensor>& tensors, TensorId id, std::string_view name) {
  catch_up(tensors);
  if (const auto old = positions_.find(tensors[id.index()].name); old != positions_.end())
    positions_.erase(old);
  positions_.insert_or_assign(std::string(name), id.value);
}

TensorId Graph::add_tensor(Tensor tensor) {
  require(is_graph_name(tensor.name), "graph {}: \"{}\" is not a tensor name", name, tensor.name);
  require(!find(tensor.name).valid(), "graph {}: tensor %{} exists already", name, tensor.name);
  tensors.push_back(std::move(tensor));
  return TensorId(tensors.size() - 1);
}

void Graph::rename(TensorId id, std::string_view tensor_name) {
  if (tensor(id).name == tensor_name) return;
  require(is_graph_name(tensor_name), "graph {}: \"{}\" is not a tensor name", name, tensor_name);
  require(!find(tensor_name).valid(), "graph {}: tensor %{} exists already", name, tensor_name);
  name_index.rename(tensors, id, tensor_name);
  tensor(id).name = tensor_name;
}

TensorId Graph::find(std::string_view tensor_name) const { return name_index.find(tensors, tensor_name); }

std::string Graph::unique_name(std::string_view stem) const {
  std::string candidate(stem);
  for (int64_t i = 1; find(candidate).valid(); ++i) candidate = fmt::format("{}.{}", stem, i);
  return candidate;
}

std::vector<TensorId> canonicalize(Graph& graph) {
  std::vector<TensorId> moved(graph.tensors.size());
  std::vector<Tensor> ordered;
  ordered.reserve(graph.tensors.size());
  const auto take = [&](TensorId id) {
    if (moved.at(id.index()).valid()) return;
    moved[id.index()] = TensorId(ordered.size());
    ordered.push_back(std::move(graph.tensors[id.index()]));
  };
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (graph.tensors[i].storage != Storage::kValue) take(TensorId(i));
  for (const Op& op : graph.ops)
    for (TensorId id : op.outputs) take(id);
  // Mentioned but defined by nobody: wrong, but the verifier's business.
  for (const Op& op : graph.ops)
    for (TensorId id : op.inputs) take(id);
  for (TensorId id : graph.results) take(id);

  graph.tensors = std::move(ordered);
  graph.name_index.clear();
  const auto renumber = [&](std::vector<TensorId>& ids) {
    for (TensorId& id : ids) id = moved[id.index()];
  };
  for (Op& op : graph.ops) {
    renumber(op.inputs);
    renumber(op.outputs);
  }
  renumber(graph.results);
  return moved;
}

}  // namespace snug
