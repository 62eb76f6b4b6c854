#include "observe/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <tuple>

#include "base/errors.h"
#include "base/json.h"
#include "base/wrapped.h"

namespace snug {
namespace {

Bytes bytes_of(const PlanTensor& tensor) { return tensor.shape.bytes(tensor.dtype); }

// The tensors of a plan's first memory that share storage, over all their moments.
struct Buffer {
  std::vector<size_t> tensors;  // in order of their first moment
  Bytes bytes;                  // of the largest
};

std::vector<Buffer> buffers_of_first_memory(const Plan& plan) {
  std::map<int64_t, Buffer> by_number;  // tensors without a number get one of their own below 0
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlanTensor& tensor = plan.tensors[i];
    if (tensor.place.memory.value != 0) continue;
    Buffer& buffer = by_number[tensor.buffer >= 0 ? tensor.buffer : -1 - static_cast<int64_t>(i)];
    buffer.tensors.push_back(i);
    buffer.bytes = std::max(buffer.bytes, bytes_of(tensor));
  }
  std::vector<Buffer> buffers;
  for (auto& [number, buffer] : by_number) {
    std::sort(buffer.tensors.begin(), buffer.tensors.end(),
              [&](size_t a, size_t b) { return plan.tensors[a].first < plan.tensors[b].first; });
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

std::string percent(Bytes part, Bytes whole) {
  if (whole.value <= 0) return "-";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part.value) / static_cast<double>(whole.value));
}

// "1,234,567"
std::string grouped(int64_t number) {
  const std::string digits = fmt::format("{}", number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-') text += ',';
    text += digits[i];
  }
  return text;
}

std::string bar(Bytes part, Bytes whole) {
  constexpr int64_t kCells = 30;
  if (whole.value <= 0) return "";
  const double share = static_cast<double>(part.value) / static_cast<double>(whole.value);
  auto cells = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * kCells + 0.5);
  if (cells == 0 && part.value > 0) cells = 1;
  return std::string(cells, '#');
}

// "h.3.attn.c_proj.recompute" and "h.3.attn.c_proj.encode" of block 3 are "attn.c_proj".
std::string name_in_block(const PlanOp& op) {
  std::string name = op.name;
  if (const size_t mark = name.find(".recompute"); mark != std::string::npos) name.erase(mark);
  if (name.ends_with(".encode")) name.erase(name.size() - std::string_view(".encode").size());
  const std::string number = fmt::format(".{}.", op.block);
  if (const size_t prefix = name.find(number); prefix != std::string::npos)
    name.erase(0, prefix + number.size());
  return name;
}

// `sentence` in lines of at most `columns` characters, the later ones set in.
std::string paragraph(const std::string& sentence, size_t columns) {
  constexpr size_t kIndent = 2;
  const std::vector<std::string> lines = wrapped(sentence, std::max(columns, 2 * kIndent) - kIndent);
  return fmt::format("{}\n", fmt::join(lines, "\n" + std::string(kIndent, ' ')));
}

// A row of a table: the text of each cell is broken into lines of its column's width.
struct Cell {
  std::string text;
  size_t width;
  bool right = false;
};
std::string row_of(std::span<const Cell> cells) {
  std::vector<std::vector<std::string>> columns;
  size_t height = 0;
  for (const Cell& cell : cells) {
    columns.push_back(wrapped(cell.text, cell.width));
    height = std::max(height, columns.back().size());
  }
  std::string text;
  for (size_t line = 0; line < height; ++line) {
    std::string row;
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string part = line < columns[c].size() ? columns[c][line] : "";
      const size_t used = characters(part);
      const std::string padding(cells[c].width > used ? cells[c].width - used : 0, ' ');
      row += "  " + (cells[c].right ? padding + part : part + padding);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + '\n';
  }
  return text;
}

// Blocks that do the same.
struct EqualBlocks {
  std::vector<int32_t> numbers;
  const PlanSummary::Block* block;  // the first of them
};

bool do_the_same(const PlanSummary::Block& a, const PlanSummary::Block& b) {
  const auto key = [](const PlanSummary::Block& block) {
    const auto set = [](const std::vector<std::string>& names) {
      return std::set<std::string>(names.begin(), names.end());
    };
    return std::tuple(block.kept.value, block.compressed.value, block.recomputed.value, set(block.keeps),
                      set(block.compresses), set(block.recomputes));
  };
  return key(a) == key(b);
}

std::vector<EqualBlocks> equal_blocks(const std::vector<PlanSummary::Block>& blocks) {
  std::vector<EqualBlocks> groups;
  for (const PlanSummary::Block& block : blocks) {
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const EqualBlocks& g) { return do_the_same(*g.block, block); });
    if (group == groups.end()) group = groups.insert(group, {{}, &block});
    group->numbers.push_back(block.block);
  }
  return groups;
}

// "0–6, 8, 10–13" of rising numbers.
std::string ranges(const std::vector<int32_t>& numbers) {
  std::string text;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[first]);
    if (last > first) text += fmt::format("–{}", numbers[last]);
    first = last + 1;
  }
  return text;
}

std::string part_of(const std::string& operation) { return operation.substr(0, operation.find('.')); }

// The operations that a block keeps or computes again, by the part of the block ("attn") that they belong to.
std::map<std::string, std::set<std::string>> operations_by_part(const std::vector<PlanSummary::Block>& blocks) {
  std::map<std::string, std::set<std::string>> parts;
  for (const PlanSummary::Block& block : blocks)
    for (const auto* names : {&block.keeps, &block.compresses, &block.recomputes})
      for (const std::string& name : *names) parts[part_of(name)].insert(name);
  return parts;
}

// "attn.* ln_1": parts of which all operations are named stand for them.
std::string names_of(const std::vector<std::string>& operations,
                     const std::map<std::string, std::set<std::string>>& parts) {
  const std::set<std::string> named(operations.begin(), operations.end());
  std::vector<std::string> words;
  for (const std::string& name : operations) {
    const std::set<std::string>& part = parts.at(part_of(name));
    const bool is_whole = part.size() > 1 && std::includes(named.begin(), named.end(), part.begin(), part.end());
    const std::string word = is_whole ? part_of(name) + ".*" : name;
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  return words.empty() ? "nothing" : fmt::format("{}", fmt::join(words, " "));
}

}  // namespace

PlanPeak plan_peak(const Plan& plan) {
  int64_t moments = 0;
  for (const PlanPhase& phase : plan.phases) moments += static_cast<int64_t>(phase.ops.size());
  const std::vector<Buffer> buffers = buffers_of_first_memory(plan);

  std::vector<int64_t> live(static_cast<size_t>(moments) + 1, 0);
  for (const Buffer& buffer : buffers) {
    int64_t counted_to = 0;
    for (size_t i : buffer.tensors) {
      const int64_t first = std::max(plan.tensors[i].first, counted_to);
      const int64_t last = plan.tensors[i].last;
      if (first >= last) continue;
      live.at(static_cast<size_t>(first)) += buffer.bytes.value;
      live.at(static_cast<size_t>(last)) -= buffer.bytes.value;
      counted_to = last;
    }
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  const int64_t peak = std::max_element(live.begin(), live.end()) - live.begin();

  PlanPeak found;
  for (const PlanPhase& phase : plan.phases) {
    const int64_t i = peak - phase.first_moment;
    if (i < 0 || i >= static_cast<int64_t>(phase.ops.size())) continue;
    found.phase = phase.name;
    found.operation = phase.ops[static_cast<size_t>(i)].name;
  }
  for (const Buffer& buffer : buffers) {
    const auto holder = std::find_if(buffer.tensors.begin(), buffer.tensors.end(), [&](size_t i) {
      return plan.tensors[i].first <= peak && peak < plan.tensors[i].last;
    });
    if (holder == buffer.tensors.end() || buffer.bytes.value == 0) continue;
    const std::string& name = plan.tensors[*holder].category;
    auto category = std::find_if(found.categories.begin(), found.categories.end(),
                                 [&](const PlanSummary::Category& c) { return c.name == name; });
    if (category == found.categories.end())
      category = found.categories.insert(category, PlanSummary::Category{name, Bytes(0)});
    category->bytes += buffer.bytes;
    found.live += buffer.bytes;
  }
  return found;
}

std::vector<PlanSummary::Block> block_choices(const Plan& plan) {
  const PlanPhase* phase = plan.phase("micro_step");
  if (phase == nullptr) return {};
  // What is still held when the first operation that is no forward runs is held for the backward.
  const auto turn = std::find_if(phase->ops.begin(), phase->ops.end(),
                                 [](const PlanOp& op) { return op.part != "forward"; });
  if (turn == phase->ops.end()) return {};
  const int64_t backward = phase->first_moment + (turn - phase->ops.begin());

  std::map<int32_t, PlanSummary::Block> blocks;
  std::set<int32_t> counted;  // buffers
  for (const PlanOp& op : phase->ops) {
    if (op.block < 0) continue;
    PlanSummary::Block& block = blocks[op.block];
    block.block = op.block;
    if (op.part == "recompute") {
      // Of two backward passes the one for the norm repeats what the other one does; it is no choice of a block's.
      const bool is_for_norm = op.name.ends_with(".norm"), decodes = op.op == "fp8_decode";
      if (is_for_norm && !decodes && op.name.find(".recompute") == std::string::npos) continue;
      block.recompute_seconds += op.seconds;
      if (is_for_norm || decodes) continue;
      const std::string name = name_in_block(op);
      if (std::find(block.recomputes.begin(), block.recomputes.end(), name) == block.recomputes.end())
        block.recomputes.push_back(name);
      for (PlanTensorId output : op.outputs) block.recomputed += bytes_of(plan.tensor(output));
    } else if (op.part == "forward") {
      Bytes kept;
      for (PlanTensorId output : op.outputs) {
        const PlanTensor& tensor = plan.tensor(output);
        if (tensor.last <= backward || (tensor.buffer >= 0 && !counted.insert(tensor.buffer).second))
          continue;
        kept += bytes_of(tensor);
      }
      const bool compresses = op.op == "fp8_encode";
      (compresses ? block.compressed : block.kept) += kept;
      if (kept > Bytes()) (compresses ? block.compresses : block.keeps).push_back(name_in_block(op));
    }
  }
  std::vector<PlanSummary::Block> rows;
  for (auto& [number, block] : blocks) rows.push_back(std::move(block));
  return rows;
}

PlanSummary summarize(const Plan& plan, const Reserve& reserve, Bytes budget, int64_t tokens_per_step,
                      int64_t parameters) {
  require(!plan.memories.empty(), "summarize: the plan has no memory");
  PlanSummary summary;
  const PlanMemory& ram = plan.memories[0];
  summary.budget = budget;
  summary.arena = ram.arena_bytes;
  summary.lower_bound = ram.lower_bound_bytes;
  summary.peak = planned_process_peak(ram.arena_bytes, reserve);
  summary.reserve = summary.peak - summary.arena;
  summary.fits = summary.peak <= budget;
  summary.memories.push_back({ram.name, budget, summary.peak, ram.arena_bytes});
  for (size_t m = 1; m < plan.memories.size(); ++m)
    summary.memories.push_back({plan.memories[m].name, plan.memories[m].arena_bytes,
                                plan.memories[m].arena_bytes, plan.memories[m].arena_bytes});

  const PlanPeak peak = plan_peak(plan);
  summary.categories = peak.categories;
  summary.categories.push_back({"unused", summary.arena - peak.live});
  summary.categories.push_back({"reserve", summary.reserve});
  summary.peak_phase = peak.phase;
  summary.peak_operation = peak.operation;

  for (const PlanPhase& phase : plan.phases) {
    summary.phases.push_back({phase.name, phase.repeats, phase.peak_bytes});
    for (const PlanOp& op : phase.ops)
      if (op.part != "load" && op.part != "save")
        summary.step_seconds += static_cast<double>(phase.repeats) * op.seconds;
  }
  summary.tokens_per_step = tokens_per_step;
  summary.parameters = parameters;
  summary.blocks = block_choices(plan);
  const PlanPhase* micro_step = plan.phase("micro_step");
  if (micro_step != nullptr && micro_step->repeats > 1)
    for (const PlanTensor& tensor : plan.tensors)
      if (tensor.storage == "carried" && tensor.category == "gradients")
        summary.carried_gradients += bytes_of(tensor);
  return summary;
}

Json plan_json(const PlanSummary& summary) {
  Json memories = Json::array(), phases = Json::array();
  Json categories = Json::object();
  for (const PlanSummary::Memory& memory : summary.memories)
    memories.push_back(Json{{"name", memory.name},
                            {"budget_bytes", memory.budget.value},
                            {"peak_bytes", memory.peak.value},
                            {"arena_bytes", memory.arena.value}});
  for (const PlanSummary::Category& category : summary.categories)
    categories[category.name] = category.bytes.value;
  for (const PlanSummary::Phase& phase : summary.phases)
    phases.push_back(
        Json{{"name", phase.name}, {"repeats", phase.repeats}, {"peak_bytes", phase.peak.value}});
  Json choices = Json::array(), policies = Json::array();
  for (const PlanSummary::Block& block : summary.blocks)
    choices.push_back(Json{{"block", block.block},
                           {"kept_bytes", block.kept.value},
                           {"compressed_bytes", block.compressed.value},
                           {"recomputed_bytes", block.recomputed.value},
                           {"recompute_seconds", block.recompute_seconds},
                           {"kept", block.keeps},
                           {"compressed", block.compresses},
                           {"recomputed", block.recomputes}});
  for (const PlanSummary::Policy& policy : summary.policies)
    policies.push_back(Json{
        {"name", policy.name}, {"peak_bytes", policy.peak.value}, {"step_seconds", policy.step_seconds}});
  const Json none = nullptr;
  const PlanSummary::Chosen& chosen = summary.chosen;
  Json json{{"format", 1},
            {"fits", summary.fits},
            {"budget_bytes", summary.budget.value},
            {"peak_bytes", summary.peak.value},
            {"arena_bytes", summary.arena.value},
            {"reserve_bytes", summary.reserve.value},
            {"lower_bound_bytes", summary.lower_bound.value},
            {"memories", std::move(memories)},
            {"categories", std::move(categories)},
            {"phases", std::move(phases)},
            {"peak", Json{{"phase", summary.peak_phase}, {"operation", summary.peak_operation}}},
            {"step_seconds", summary.step_seconds},
            {"tokens_per_step", summary.tokens_per_step},
            {"parameters", summary.parameters},
            {"recompute", summary.recompute},
            {"choices", std::move(choices)},
            {"slowdown", summary.slowdown},
            {"gap", summary.gap ? Json(*summary.gap) : none},
            {"smallest_budget_bytes", summary.smallest_budget ? Json(summary.smallest_budget->value) : none},
            {"policies", std::move(policies)},
            {"chosen", Json{{"update_placement", chosen.update_placement},
                            {"backward_passes", chosen.backward_passes},
                            {"micro_batch", chosen.micro_batch},
                            {"accumulation", chosen.accumulation},
                            {"head_chunk_rows", chosen.head_chunk_rows},
                            {"mlp_chunk_rows", chosen.mlp_chunk_rows},
                            {"forms", chosen.forms},
                            {"planned", chosen.planned},
                            {"because", chosen.because}}},
            {"carried_gradient_bytes", summary.carried_gradients.value}};
  if (!summary.alternatives) return json;
  Json alternatives = Json::array();
  for (const PlanSummary::Alternative& alternative : *summary.alternatives) {
    Json terms = Json::object();
    for (const PlanSummary::Category& term : alternative.terms) terms[term.name] = term.bytes.value;
    alternatives.push_back(Json{{"option", alternative.option},
                                {"terms", std::move(terms)},
                                {"peak_bytes", alternative.peak.value},
                                {"step_seconds", alternative.step_seconds},
                                {"fits", alternative.fits},
                                {"estimated", true}});
  }
  json["alternatives"] = std::move(alternatives);
  return json;
}

std::string plan_table(const PlanSummary& summary, size_t columns) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "Memory at the peak (phase {}, operation {})\n", summary.peak_phase,
                 summary.peak_operation);
  for (const PlanSummary::Category& category : summary.categories)
    fmt::format_to(out, "  {:<16} {:>10} {:>7}  {}\n", category.name, format_bytes(category.bytes),
                   percent(category.bytes, summary.peak), bar(category.bytes, summary.peak));
  fmt::format_to(out, "  {:<16} {:>10}\n", "process peak", format_bytes(summary.peak));
  fmt::format_to(out, "  {:<16} {:>10}\n", "budget", format_bytes(summary.budget));
  if (summary.fits)
    fmt::format_to(out, "  {:<16} {:>10}\n", "left", format_bytes(summary.budget - summary.peak));
  else
    fmt::format_to(out, "  {:<16} {:>10}  does not fit: {} bytes more are needed\n", "missing",
                   format_bytes(summary.peak - summary.budget),
                   grouped((summary.peak - summary.budget).value));
  fmt::format_to(out, "Arena {} bytes, {} above the lower bound\n", grouped(summary.arena.value),
                 percent(summary.arena - summary.lower_bound, summary.lower_bound));
  fmt::format_to(out, "Phases            repeats   live bytes\n");
  for (const PlanSummary::Phase& phase : summary.phases)
    fmt::format_to(out, "  {:<16} {:>6} {:>12}  {}\n", phase.name,
                   phase.repeats == 0 ? "-" : std::to_string(phase.repeats), format_bytes(phase.peak),
                   bar(phase.peak, summary.arena));
  fmt::format_to(out, "{} parameters; estimated {:.3g} s an update of {} tokens\n",
                 grouped(summary.parameters), summary.step_seconds, grouped(summary.tokens_per_step));
  if (!summary.chosen.update_placement.empty())
    text += paragraph(fmt::format("Chosen: {}, because {}", describe(summary.chosen), summary.chosen.because), columns);
  for (const PlanSummary::Phase& phase : summary.phases)
    if (phase.name == "micro_step" && summary.carried_gradients > Bytes())
      fmt::format_to(out, "{} micro-steps an update: all gradients ({}) are held through each of them\n",
                     phase.repeats, format_bytes(summary.carried_gradients));
  return text;
}

std::string choices_table(const PlanSummary& summary, size_t columns) {
  if (summary.blocks.empty()) return "";
  Bytes widest;
  bool compresses = false;
  for (const PlanSummary::Block& block : summary.blocks) {
    widest = std::max(widest, block.kept + block.compressed + block.recomputed);
    compresses = compresses || block.compressed > Bytes();
  }
  constexpr size_t kCells = 16, kBytes = 10, kMostOfNumbers = 18, kLeastOfNames = 16;
  const std::vector<EqualBlocks> groups = equal_blocks(summary.blocks);
  size_t numbers = std::string_view("block").size();
  for (const EqualBlocks& group : groups)
    numbers = std::max(numbers, std::min(kMostOfNumbers, characters(ranges(group.numbers))));
  // Each cell has two spaces before it; the column of what is held in 8 bits is there where something is, the bars where there is room.
  size_t used = 2 + numbers + 2 * (2 + kBytes) + (compresses ? 2 + kBytes : 0) + 2;
  const bool has_bars = used + 2 + kCells + kLeastOfNames <= columns;
  if (has_bars) used += 2 + kCells;
  const size_t names = std::max(kLeastOfNames, columns > used ? columns - used : 0);
  const auto row = [&](const std::string& number, const std::string& bars, const std::string& kept,
                       const std::string& compressed, const std::string& recomputed, const std::string& operations) {
    std::vector<Cell> cells = {{number, numbers}};
    if (has_bars) cells.push_back({bars, kCells});
    cells.push_back({kept, kBytes, true});
    if (compresses) cells.push_back({compressed, kBytes, true});
    cells.push_back({recomputed, kBytes, true});
    cells.push_back({operations, names});
    return row_of(cells);
  };
  std::string text = fmt::format("Blocks (policy {}): # kept, {}. recomputed\n", summary.recompute,
                                 compresses ? "+ in 8 bits, " : "");
  const auto out = std::back_inserter(text);
  text += row("block", "", "kept", "8 bits", "recomputed", compresses ? "in 8 bits; computed again" : "computed again");
  const auto parts = operations_by_part(summary.blocks);
  for (const auto& [blocks, block] : groups) {
    const auto cells = [&](Bytes part) {
      return widest.value == 0
                 ? size_t{0}
                 : static_cast<size_t>(static_cast<double>(kCells) * static_cast<double>(part.value) /
                                           static_cast<double>(widest.value) +
                                       0.5);
    };
    std::string operations = names_of(block->recomputes, parts);
    if (compresses) operations = names_of(block->compresses, parts) + "; " + operations;
    text += row(ranges(blocks),
                std::string(cells(block->kept), '#') + std::string(cells(block->compressed), '+') +
                    std::string(cells(block->recomputed), '.'),
                format_bytes(block->kept), format_bytes(block->compressed), format_bytes(block->recomputed), operations);
  }
  std::string speed = fmt::format("Slowdown against keeping everything: {:.2f} %", 100 * summary.slowdown);
  if (summary.gap)
    speed += fmt::format("; no plan of these techniques can be more than {:.2f} % faster at these costs",
                         100 * *summary.gap);
  text += paragraph(speed, columns);
  if (summary.smallest_budget)
    fmt::format_to(out, "Smallest budget that works: {} ({} bytes)\n", format_bytes(*summary.smallest_budget),
                   summary.smallest_budget->value);
  if (!summary.policies.empty()) {
    text += "Policies                        memory  s/update\n";
    for (const PlanSummary::Policy& policy : summary.policies)
      fmt::format_to(out, "  {:<26} {:>10} {:>9.3g}{}\n", policy.name, format_bytes(policy.peak),
                     policy.step_seconds, policy.peak <= summary.budget ? "" : "  does not fit");
  }
  return text;
}

std::string describe(const PlanSummary::Chosen& chosen) {
  std::string text = chosen.update_placement == "after"
                         ? "update after the backward"
                         : fmt::format("update {} ({})", chosen.update_placement,
                                       chosen.backward_passes == 2 ? "two passes" : "one pass");
  text += fmt::format(", micro-batch {} × {}", chosen.micro_batch, chosen.accumulation);
  for (const std::string& form : chosen.forms) {
    if (form != "reassociation") {
      text += ", " + form;
      continue;
    }
    text += fmt::format(", head of {} rows", chosen.head_chunk_rows);
    if (chosen.mlp_chunk_rows > 0) text += fmt::format(", MLP of {} rows", chosen.mlp_chunk_rows);
  }
  return text;
}

std::string alternatives_table(const PlanSummary& summary, size_t columns) {
  if (!summary.alternatives || summary.alternatives->empty()) return "";
  constexpr size_t kMostOfOption = 32, kBytes = 10, kSeconds = 8, kFits = 4, kLeastOfTerms = 26;
  size_t option = 0;
  for (const PlanSummary::Alternative& row : *summary.alternatives)
    option = std::max(option, std::min(kMostOfOption, row.option.size()));
  const size_t used = 2 + option + 2 + kBytes + 2 + kSeconds + 2 + kFits + 2;
  const size_t terms = std::max(kLeastOfTerms, columns > used ? columns - used : 0);
  const auto row_for = [&](const std::string& name, const std::string& peak, const std::string& seconds,
                           const std::string& fits, const std::string& changes) {
    return row_of(std::vector<Cell>{{name, option},
                                    {peak, kBytes, true},
                                    {seconds, kSeconds, true},
                                    {fits, kFits},
                                    {changes, terms}});
  };
  std::string text = paragraph(
      "What one more option would change, estimated: in this budget, and of the most that each term "
      "holds with everything kept",
      columns);
  text += row_for("option", "peak", "s/update", "fits", "terms");
  for (const PlanSummary::Alternative& row : *summary.alternatives) {
    std::vector<std::string> changes;
    for (const PlanSummary::Category& term : row.terms)
      changes.push_back(fmt::format("{} {}{}", term.name, term.bytes < Bytes() ? "-" : "+",
                                    format_bytes(term.bytes < Bytes() ? Bytes() - term.bytes : term.bytes)));
    text += row_for(row.option, format_bytes(row.peak), fmt::format("{:.3g}", row.step_seconds),
                    row.fits ? "yes" : "no",
                    changes.empty() ? "no term changes" : fmt::format("{}", fmt::join(changes, ", ")));
  }
  return text;
}

}  // namespace snug
