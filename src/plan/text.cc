#include "plan/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/errors.h"

namespace snug {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '-' || c == '/';
}

// A name as it stands in the text: bare when it is made of plain characters, otherwise a JSON string.
std::string word_text(const std::string& word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  return nlohmann::json(word).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string names_text(const Plan& plan, const std::vector<PlanTensorId>& ids, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) text += separator;
    text += word_text(plan.tensor(ids[i]).name);
  }
  return text;
}

void check_references(const Plan& plan) {
  std::unordered_map<std::string_view, size_t> seen, memories;
  for (const PlanMemory& memory : plan.memories)
    require(memories.emplace(memory.name, memories.size()).second, "plan: two memories are named {}",
            memory.name);
  for (const PlanTensor& tensor : plan.tensors) {
    require(seen.emplace(tensor.name, seen.size()).second, "plan: two tensors are named {}", tensor.name);
    require(tensor.place.memory.valid() && tensor.place.memory.index() < plan.memories.size(),
            "plan: tensor {} lies in memory {} of {}", tensor.name, tensor.place.memory.value,
            plan.memories.size());
  }
  const auto check = [&](const std::vector<PlanTensorId>& ids, const std::string& where) {
    for (PlanTensorId id : ids)
      require(id.valid() && id.index() < plan.tensors.size(), "plan: {} refers to tensor {} of {}", where,
              id.value, plan.tensors.size());
  };
  for (const PlanPhase& phase : plan.phases) {
    check(phase.inputs, phase.name);
    check(phase.results, phase.name);
    for (const PlanOp& op : phase.ops) {
      check(op.inputs, op.name);
      check(op.outputs, op.name);
      if (op.scratch.valid()) check({op.scratch}, op.name);
    }
  }
}

// Reads one line from left to right; every failure names the line.
class Line {
 public:
  Line(std::string_view text, std::string_view source, size_t number)
      : whole_(text), rest_(text), source_(source), number_(number) {}

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw_user(ExitCode::kBadFile, "{}:{}: {}, in \"{}\"", source_, number_,
               fmt::format(format, std::forward<Args>(args)...), whole_);
  }

  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }
  void expect_end() {
    if (!at_end()) fail("found \"{}\" after the end", rest_);
  }

  // Takes `token` if the line goes on with it.
  bool accept(std::string_view token) {
    skip_spaces();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("expected \"{}\" at \"{}\"", token, rest_);
  }

  std::string word() {
    skip_spaces();
    if (rest_.starts_with('"')) return quoted();
    size_t size = 0;
    while (size < rest_.size() && is_plain(rest_[size])) ++size;
    if (size == 0) fail("expected a name at \"{}\"", rest_);
    std::string found(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return found;
  }

  template <typename T>
  T number() {
    skip_spaces();
    T value{};
    const auto parsed = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (parsed.ec != std::errc()) fail("expected a number at \"{}\"", rest_);
    rest_.remove_prefix(static_cast<size_t>(parsed.ptr - rest_.data()));
    return value;
  }
  // "key=number"
  template <typename T>
  T number(std::string_view key) {
    expect(key);
    expect("=");
    return number<T>();
  }

  // "{…}": no attribute contains a brace.
  Attributes attributes() {
    skip_spaces();
    const size_t end = rest_.find('}');
    if (!rest_.starts_with('{') || end == std::string_view::npos)
      fail("expected attributes in braces at \"{}\"", rest_);
    const std::string_view text = rest_.substr(0, end + 1);
    rest_.remove_prefix(end + 1);
    try {
      return parse_attributes(text);
    } catch (const UserError& error) {
      fail("{}", error.what());
    }
  }

  Shape shape() {
    std::vector<int64_t> dims;
    expect("[");
    if (accept("]")) return Shape();
    do dims.push_back(number<int64_t>());
    while (accept(","));
    expect("]");
    for (int64_t dim : dims)
      if (dim < 0) fail("dimension {} is negative", dim);
    return Shape(std::move(dims));
  }

 private:
  void skip_spaces() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t' || rest_.front() == '\r'))
      rest_.remove_prefix(1);
  }

  std::string quoted() {
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) fail("a quoted name does not end");
    const auto value = nlohmann::json::parse(rest_.substr(0, end + 1), nullptr, false);
    if (!value.is_string()) fail("{} is not a quoted name", rest_.substr(0, end + 1));
    rest_.remove_prefix(end + 1);
    return value.get<std::string>();
  }

  std::string_view whole_, rest_, source_;
  size_t number_;
};

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  void read(std::string_view text) {
    size_t number = 0;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      Line line(text.substr(0, end), source_, ++number);
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
      if (line.at_end() || line.accept("#")) continue;
      read_line(line);
      line.expect_end();
    }
    if (!header_seen_) throw_user(ExitCode::kBadFile, "{}: expected a plan, found an empty text", source_);
  }

  Plan plan;

 private:
  void read_line(Line& line) {
    const std::string kind = line.word();
    if (!header_seen_) {
      if (kind != "snug_plan") line.fail("expected \"snug_plan 1\"");
      plan.format = line.number<int64_t>();
      if (plan.format != 1) line.fail("plan format is {}, expected 1", plan.format);
      header_seen_ = true;
    } else if (kind == "target") {
      plan.target = line.word();
    } else if (kind == "memory") {
      read_memory(line);
    } else if (kind == "tensor") {
      read_tensor(line);
    } else if (kind == "phase") {
      read_phase(line);
    } else if (kind == "inputs") {
      read_list(line, open_phase(line).inputs);
    } else if (kind == "results") {
      read_list(line, open_phase(line).results);
    } else if (kind == "op") {
      read_op(line);
    } else {
      line.fail("\"{}\" is none of target, memory, tensor, phase, inputs, results, op", kind);
    }
  }

  void read_memory(Line& line) {
    PlanMemory memory;
    memory.name = line.word();
    memory.arena_bytes = Bytes(line.number<int64_t>("arena"));
    memory.lower_bound_bytes = Bytes(line.number<int64_t>("lower_bound"));
    plan.memories.push_back(std::move(memory));
  }

  void read_tensor(Line& line) {
    PlanTensor tensor;
    tensor.name = line.word();
    const std::string dtype = line.word();
    const auto parsed = parse_dtype(dtype);
    if (!parsed) line.fail("\"{}\" is not an element type", dtype);
    tensor.dtype = *parsed;
    tensor.shape = line.shape();
    tensor.category = line.word();
    tensor.storage = line.word();
    line.expect("at=");
    const std::string memory = line.word();
    for (size_t i = 0; i < plan.memories.size(); ++i)
      if (plan.memories[i].name == memory) tensor.place.memory = MemoryId(i);
    if (!tensor.place.memory.valid()) line.fail("memory \"{}\" is not declared above", memory);
    line.expect("+");
    tensor.place.offset = Bytes(line.number<int64_t>());
    line.expect("moments=[");
    tensor.first = line.number<int64_t>();
    line.expect(",");
    tensor.last = line.number<int64_t>();
    line.expect(")");
    tensor.buffer = line.number<int32_t>("buffer");
    if (line.accept("parameter=")) tensor.parameter = line.word();
    if (!ids_.emplace(tensor.name, PlanTensorId(plan.tensors.size())).second)
      line.fail("tensor \"{}\" is declared twice", tensor.name);
    plan.tensors.push_back(std::move(tensor));
  }

  void read_phase(Line& line) {
    PlanPhase phase;
    phase.name = line.word();
    phase.repeats = line.number<int64_t>("repeats");
    phase.first_moment = line.number<int64_t>("first");
    phase.peak_bytes = Bytes(line.number<int64_t>("peak"));
    plan.phases.push_back(std::move(phase));
  }

  void read_list(Line& line, std::vector<PlanTensorId>& ids) {
    while (!line.at_end()) ids.push_back(read_reference(line));
  }

  void read_op(Line& line) {
    PlanPhase& phase = open_phase(line);
    PlanOp op;
    op.op = line.word();
    op.name = line.word();
    op.part = line.word();
    op.block = line.number<int32_t>("block");
    op.inputs = read_operands(line);
    line.expect("->");
    op.outputs = read_operands(line);
    if (line.accept("scratch=")) op.scratch = read_reference(line);
    op.attributes = line.attributes();
    op.flops = line.number<double>("flops");
    op.seconds = line.number<double>("seconds");
    phase.ops.push_back(std::move(op));
  }

  std::vector<PlanTensorId> read_operands(Line& line) {
    std::vector<PlanTensorId> ids;
    line.expect("(");
    if (line.accept(")")) return ids;
    do ids.push_back(read_reference(line));
    while (line.accept(","));
    line.expect(")");
    return ids;
  }

  PlanTensorId read_reference(Line& line) {
    const std::string name = line.word();
    const auto found = ids_.find(name);
    if (found == ids_.end()) line.fail("tensor \"{}\" is not declared above", name);
    return found->second;
  }

  PlanPhase& open_phase(Line& line) {
    if (plan.phases.empty()) line.fail("no phase is declared above");
    return plan.phases.back();
  }

  std::string_view source_;
  bool header_seen_ = false;
  std::unordered_map<std::string, PlanTensorId> ids_;
};

}  // namespace

std::string to_string(const Plan& plan) {
  check_references(plan);
  std::string text = fmt::format("snug_plan {}\ntarget {}\n", plan.format, word_text(plan.target));
  const auto out = std::back_inserter(text);
  for (const PlanMemory& memory : plan.memories)
    fmt::format_to(out, "memory {} arena={} lower_bound={}\n", word_text(memory.name),
                   memory.arena_bytes.value, memory.lower_bound_bytes.value);
  for (const PlanTensor& tensor : plan.tensors) {
    fmt::format_to(out, "tensor {} {}{} {} {} at={}+{} moments=[{},{}) buffer={}", word_text(tensor.name),
                   dtype_name(tensor.dtype), to_string(tensor.shape), word_text(tensor.category),
                   word_text(tensor.storage), word_text(plan.memories[tensor.place.memory.index()].name),
                   tensor.place.offset.value, tensor.first, tensor.last, tensor.buffer);
    if (!tensor.parameter.empty()) fmt::format_to(out, " parameter={}", word_text(tensor.parameter));
    text += '\n';
  }
  for (const PlanPhase& phase : plan.phases) {
    fmt::format_to(out, "phase {} repeats={} first={} peak={}\n", word_text(phase.name), phase.repeats,
                   phase.first_moment, phase.peak_bytes.value);
    if (!phase.inputs.empty()) fmt::format_to(out, "inputs {}\n", names_text(plan, phase.inputs, " "));
    if (!phase.results.empty()) fmt::format_to(out, "results {}\n", names_text(plan, phase.results, " "));
    for (const PlanOp& op : phase.ops) {
      fmt::format_to(out, "op {} {} {} block={} ({}) -> ({})", word_text(op.op), word_text(op.name),
                     word_text(op.part), op.block, names_text(plan, op.inputs, ", "),
                     names_text(plan, op.outputs, ", "));
      if (op.scratch.valid()) fmt::format_to(out, " scratch={}", word_text(plan.tensor(op.scratch).name));
      fmt::format_to(out, " {} flops={} seconds={}\n", to_string(op.attributes), op.flops, op.seconds);
    }
  }
  return text;
}

Plan parse_plan(std::string_view text, std::string_view source) {
  Reader reader(source);
  reader.read(text);
  return std::move(reader.plan);
}

}  // namespace snug
