// Named policies of passes/recompute.h: their text form and the retentions that they stand for.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/errors.h"
#include "passes/recompute.h"
#include "passes/uses.h"

namespace snug {
namespace {

using Kind = RecomputePolicy::Kind;

// In the order in which messages list them.
constexpr std::array<std::pair<std::string_view, Kind>, 9> kNames = {{{"none", Kind::kNone},
                                                                      {"block", Kind::kBlock},
                                                                      {"uniform", Kind::kUniform},
                                                                      {"selective", Kind::kSelective},
                                                                      {"compress", Kind::kCompress},
                                                                      {"compress_e5m2", Kind::kCompressWide},
                                                                      {"memory", Kind::kMemory},
                                                                      {"heuristic", Kind::kHeuristic},
                                                                      {"optimal", Kind::kOptimal}}};

// Which operations make the values of a group. Products belong to one of two groups by what reads them.
struct GroupMember {
  enum class Feeds : uint8_t { kAnything, kActivation, kNoActivation };
  std::string_view group, kind;
  Feeds feeds = Feeds::kAnything;
};
constexpr std::array<GroupMember, 11> kMembers = {{
    {"attention", "attention"},
    {"attention", "attention_qkv"},
    {"norm", "layer_norm"},
    {"norm", "rms_norm"},
    {"activation", "gelu"},
    {"activation", "swiglu"},
    {"mlp", "linear", GroupMember::Feeds::kActivation},
    {"mlp", "gelu"},
    {"mlp", "swiglu"},
    {"projection", "linear", GroupMember::Feeds::kNoActivation},
    {"projection", "rotary"},
}};

bool is_activation(const Op& op) {
  return std::any_of(kMembers.begin(), kMembers.end(), [&](const GroupMember& member) {
    return member.group == "activation" && member.kind == op.kind;
  });
}

std::string_view name_of(Kind kind) {
  const auto* const name =
      std::find_if(kNames.begin(), kNames.end(), [&](const auto& each) { return each.second == kind; });
  require(name != kNames.end(), "recompute: a policy without a name");
  return name->first;
}

void check(const RecomputePolicy& policy) {
  if (policy.kind == Kind::kUniform && policy.every < 1)
    throw_user(ExitCode::kUsage, "found uniform:{}; expected uniform:K with K at least 1", policy.every);
  if (policy.kind != Kind::kSelective && !changes_gradients(policy)) return;
  const std::vector<std::string_view> known = recompute_groups();
  if (policy.groups.empty() && policy.kind == Kind::kSelective)
    throw_user(ExitCode::kUsage, "found selective without a group; expected selective:LIST with some of {}",
               fmt::join(known, ", "));
  for (const std::string& group : policy.groups)
    if (std::find(known.begin(), known.end(), group) == known.end())
      throw_user(ExitCode::kUsage,
                 "found group \"{}\" in {}; expected some of {}, separated by commas", group,
                 name_of(policy.kind), fmt::join(known, ", "));
}

const Op* producer_in_block(const Graph& graph, const std::vector<int32_t>& producer, TensorId tensor) {
  const int32_t op_idx = producer[tensor.index()];
  if (op_idx < 0) return nullptr;
  const Op& op = graph.ops[static_cast<size_t>(op_idx)];
  return op.part == Part::kForward && op.block >= 0 ? &op : nullptr;
}

// Per tensor: whether it is made in a block and leaves its segment of `every` blocks, or the phase.
std::vector<bool> leaves_segment(const Graph& graph, int64_t every) {
  std::vector<bool> leaves(graph.tensors.size(), false);
  const std::vector<int32_t> producer = producers(graph);
  for (const Op& reader : graph.ops)
    for (TensorId input : reader.inputs)
      if (const Op* maker = producer_in_block(graph, producer, input))
        if (reader.block < 0 || reader.block / every != maker->block / every) leaves[input.index()] = true;
  for (TensorId result : graph.results) leaves[result.index()] = true;
  return leaves;
}

Retentions uniform(const Graph& graph, int64_t every) {
  Retentions chosen(graph.tensors.size(), Retention::kKeep);
  const std::vector<bool> kept = leaves_segment(graph, every);
  for (const Op& op : graph.ops)
    if (op.part == Part::kForward && op.block >= 0)
      for (TensorId output : op.outputs)
        if (!kept[output.index()]) chosen[output.index()] = Retention::kRecompute;
  return chosen;
}

// What operations of `groups` (all if there are none) make inside blocks gets `retention`.
Retentions selective(const Graph& graph, const std::vector<std::string>& groups, Retention retention) {
  Retentions chosen(graph.tensors.size(), Retention::kKeep);
  const std::vector<bool> kept = leaves_segment(graph, 1);
  std::vector<bool> feeds_activation(graph.tensors.size(), false);
  for (const Op& op : graph.ops)
    if (op.part == Part::kForward && is_activation(op))
      for (TensorId input : op.inputs) feeds_activation[input.index()] = true;

  const auto belongs = [&](const Op& op) {
    return groups.empty() || std::any_of(kMembers.begin(), kMembers.end(), [&](const GroupMember& member) {
      if (member.kind != op.kind || std::find(groups.begin(), groups.end(), member.group) == groups.end())
        return false;
      return member.feeds == GroupMember::Feeds::kAnything ||
             feeds_activation[op.outputs.at(0).index()] == (member.feeds == GroupMember::Feeds::kActivation);
    });
  };
  for (const Op& op : graph.ops)
    if (op.part == Part::kForward && op.block >= 0 && belongs(op))
      for (size_t output = 0; output < op.outputs.size(); ++output)
        if (!kept[op.outputs[output].index()] &&
            (retention == Retention::kRecompute || compressible(graph, op, output)))
          chosen[op.outputs[output].index()] = retention;
  return chosen;
}

}  // namespace

std::string to_string(const RecomputePolicy& policy) {
  const std::string_view name = name_of(policy.kind);
  if (policy.kind == Kind::kUniform) return fmt::format("{}:{}", name, policy.every);
  if (!policy.groups.empty()) return fmt::format("{}:{}", name, fmt::join(policy.groups, ","));
  return std::string(name);
}

RecomputePolicy parse_recompute_policy(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  const std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  const auto* const name =
      std::find_if(kNames.begin(), kNames.end(), [&](const auto& each) { return each.first == word; });
  RecomputePolicy policy;
  bool understood = name != kNames.end();
  if (understood) policy.kind = name->second;
  if (understood && policy.kind == Kind::kUniform) {
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), policy.every);
    understood = parsed.ec == std::errc() && parsed.ptr == rest.data() + rest.size();
  } else if (understood && (policy.kind == Kind::kSelective || changes_gradients(policy))) {
    understood = policy.kind == Kind::kSelective || colon == std::string_view::npos || !rest.empty();
    for (size_t begin = 0; !rest.empty() && begin <= rest.size();) {
      const size_t comma = std::min(rest.find(',', begin), rest.size());
      policy.groups.emplace_back(rest.substr(begin, comma - begin));
      begin = comma + 1;
    }
  } else {
    understood = understood && colon == std::string_view::npos;
  }
  if (!understood)
    throw_user(ExitCode::kUsage,
               "found \"{}\"; expected one of none, block, uniform:K (K at least 1), selective:LIST (of {}), "
               "compress, compress:LIST, compress_e5m2, compress_e5m2:LIST, memory, heuristic, optimal",
               text, fmt::join(recompute_groups(), ", "));
  check(policy);
  return policy;
}

std::vector<std::string_view> recompute_groups() {
  std::vector<std::string_view> groups;
  for (const GroupMember& member : kMembers)
    if (groups.empty() || groups.back() != member.group) groups.push_back(member.group);
  return groups;
}

bool changes_gradients(const RecomputePolicy& policy) {
  return policy.kind == Kind::kCompress || policy.kind == Kind::kCompressWide;
}

bool needs_budget(const RecomputePolicy& policy) {
  return policy.kind == Kind::kMemory || policy.kind == Kind::kHeuristic || policy.kind == Kind::kOptimal;
}

Retentions retentions(const Graph& graph, const RecomputePolicy& policy) {
  check(policy);
  switch (policy.kind) {
    case Kind::kNone:
      return Retentions(graph.tensors.size(), Retention::kKeep);
    case Kind::kUniform:
      return uniform(graph, policy.every);
    case Kind::kBlock:
      return uniform(graph, 1);
    case Kind::kSelective:
      return selective(graph, policy.groups, Retention::kRecompute);
    case Kind::kCompress:
      return selective(graph, policy.groups, Retention::kCompress);
    case Kind::kCompressWide:
      return selective(graph, policy.groups, Retention::kCompressWide);
    case Kind::kMemory:
    case Kind::kHeuristic:
    case Kind::kOptimal:
      break;
  }
  throw_internal("recompute: the planner chooses what '{}' drops", to_string(policy));
}

}  // namespace snug
