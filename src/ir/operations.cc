#include "ir/operations.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/errors.h"
#include "ir/operand_reader.h"
#include "ir/operation_rules.h"

namespace snug {
namespace {

struct Table {
  std::vector<OperationInfo> entries;
  std::unordered_map<std::string_view, size_t> positions;

  Table() {
    for (const auto list : {forward_operations(), backward_operations(), update_operations()})
      entries.insert(entries.end(), list.begin(), list.end());
    for (size_t i = 0; i < entries.size(); ++i) positions.emplace(entries[i].kind, i);
  }
};

const Table& table() {
  static const Table table;
  return table;
}

// Levenshtein distance: the fewest insertions, deletions and replacements of a letter.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string_view type_name(AttributeSpec::Type type) {
  switch (type) {
    case AttributeSpec::Type::kInteger:
      return "an integer";
    case AttributeSpec::Type::kReal:
      return "a real (1.0, not 1)";
    case AttributeSpec::Type::kFlag:
      return "0 or 1";
    case AttributeSpec::Type::kWord:
      return "a word";
  }
  return "?";
}

bool is_choice(std::string_view choices, std::string_view word) {
  while (true) {
    const size_t bar = choices.find('|');
    if (choices.substr(0, bar) == word) return true;
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

bool fits(const AttributeSpec& spec, const Attributes::Value& value) {
  switch (spec.type) {
    case AttributeSpec::Type::kInteger:
      return std::holds_alternative<int64_t>(value);
    case AttributeSpec::Type::kReal:
      return std::holds_alternative<double>(value) && std::isfinite(std::get<double>(value));
    case AttributeSpec::Type::kFlag:
      return std::holds_alternative<int64_t>(value) && (std::get<int64_t>(value) | 1) == 1;
    case AttributeSpec::Type::kWord:
      return std::holds_alternative<std::string>(value) &&
             is_choice(spec.choices, std::get<std::string>(value));
  }
  return false;
}

}  // namespace

std::span<const OperationInfo> all_operations() { return table().entries; }

const OperationInfo& operation(std::string_view kind) {
  const Table& all = table();
  if (const auto found = all.positions.find(kind); found != all.positions.end())
    return all.entries[found->second];
  const auto nearest = std::min_element(all.entries.begin(), all.entries.end(),
                                        [&](const OperationInfo& a, const OperationInfo& b) {
                                          return edit_distance(kind, a.kind) < edit_distance(kind, b.kind);
                                        });
  throw_user(ExitCode::kBadFile, "unknown operation \"{}\"; did you mean {}?", kind, nearest->kind);
}

void check_attributes(const OperationInfo& info, const Attributes& attributes) {
  for (const auto& [name, value] : attributes.entries()) {
    const auto spec = std::find_if(info.attributes.begin(), info.attributes.end(),
                                   [&, &wanted = name](const AttributeSpec& s) { return s.name == wanted; });
    if (spec == info.attributes.end())
      throw_user(ExitCode::kBadFile, "{}: unknown attribute {} in {}", info.kind, name,
                 to_string(attributes));
    if (!fits(*spec, value))
      throw_user(ExitCode::kBadFile, "{}: attribute {} in {}: expected {}", info.kind, name,
                 to_string(attributes), spec->choices.empty() ? type_name(spec->type) : spec->choices);
  }
  for (const AttributeSpec& spec : info.attributes)
    if (spec.required && !attributes.has(spec.name))
      throw_user(ExitCode::kBadFile, "{}: attribute {} is missing in {}", info.kind, spec.name,
                 to_string(attributes));
}

std::vector<OperandType> operand_types(const Graph& graph, std::span<const TensorId> tensors) {
  std::vector<OperandType> types;
  types.reserve(tensors.size());
  for (TensorId id : tensors) types.push_back({graph.tensor(id).dtype, graph.tensor(id).shape});
  return types;
}

std::vector<TensorId> append(Graph& graph, std::string_view kind, std::string_view name,
                             std::vector<TensorId> inputs, Attributes attributes,
                             const AppendOptions& options) {
  const std::vector<OperandType> input_types = operand_types(graph, inputs);
  const OperationInfo& info = operation(kind);
  std::vector<OperandType> output_types;
  try {
    output_types = info.infer(attributes, input_types);
  } catch (const UserError& error) {
    throw_user(error.code(), "operation {}: {}", name, error.what());
  }
  const std::vector<TensorId>& given = options.existing_outputs;
  if (info.outputs_given) {
    require(!given.empty() && given[0].valid() && given.back().valid(),
            "operation {}: {} defines existing tensors", name, kind);
    output_types = operand_types(graph, given);
  }
  require(given.size() <= output_types.size() && options.output_names.size() <= output_types.size(),
          "operation {}: {} has {} outputs", name, kind, output_types.size());

  Op op{.kind = std::string(kind),
        .name = std::string(name),
        .inputs = std::move(inputs),
        .outputs = {},
        .attributes = std::move(attributes),
        .part = options.part,
        .block = options.block,
        .aliases = {}};
  for (const AliasRule& rule : info.aliases(op.attributes, input_types))
    if (rule.must) op.aliases.push_back({rule.output, rule.input});

  for (size_t i = 0; i < output_types.size(); ++i) {
    if (i < given.size() && given[i].valid()) {
      const OperandType found = operand_types(graph, {&given[i], 1}).front();
      require(found == output_types[i], "operation {}: output %{} is {}, expected {}", name,
              graph.tensor(given[i]).name, type_text(found), type_text(output_types[i]));
      op.outputs.push_back(given[i]);
      continue;
    }
    Tensor tensor;
    const bool named = i < options.output_names.size() && !options.output_names[i].empty();
    tensor.name = graph.unique_name(named ? options.output_names[i] : op.name);
    tensor.dtype = output_types[i].dtype;
    tensor.shape = std::move(output_types[i].shape);
    tensor.category = options.category;
    for (const Op::Alias& alias : op.aliases)
      if (alias.output == static_cast<int32_t>(i))
        tensor.category = graph.tensor(op.inputs[static_cast<size_t>(alias.input)]).category;
    op.outputs.push_back(graph.add_tensor(std::move(tensor)));
  }
  graph.ops.push_back(std::move(op));
  return graph.ops.back().outputs;
}

}  // namespace snug
