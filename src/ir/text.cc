#include "ir/text.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/errors.h"
#include "ir/operand_reader.h"

namespace snug {
namespace {

// ---- printing ----

std::string quoted_unless_plain(const std::string& text) {
  if (is_graph_name(text)) return text;
  std::string quoted = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      quoted += fmt::format("\\{}", c);
    else if (byte < 0x20 || byte == 0x7f)
      quoted += fmt::format("\\x{:02x}", byte);
    else
      quoted += c;
  }
  return quoted + '"';
}

std::string declaration(const Tensor& tensor) {
  std::string text = fmt::format("%{} : {} {}", tensor.name, type_text({tensor.dtype, tensor.shape}),
                                 category_name(tensor.category));
  if (!tensor.parameter.empty()) text += " parameter=" + quoted_unless_plain(tensor.parameter);
  if (tensor.trainable) text += " trainable";
  if (tensor.decay) text += " decay";
  return text;
}

std::string name_list(const Graph& graph, const std::vector<TensorId>& ids) {
  std::string text;
  for (TensorId id : ids) {
    if (!text.empty()) text += ", ";
    text += "%" + graph.tensor(id).name;
  }
  return text;
}

// Values that an operation's line declares: those first mentioned as an output.
std::vector<bool> declared_by_definition(const Graph& graph) {
  std::vector<bool> mentioned(graph.tensors.size()), by_definition(graph.tensors.size());
  for (const Op& op : graph.ops) {
    for (TensorId id : op.inputs) mentioned.at(id.index()) = true;
    for (TensorId id : op.outputs) {
      if (!mentioned.at(id.index()) && graph.tensor(id).storage == Storage::kValue)
        by_definition[id.index()] = true;
      mentioned[id.index()] = true;
    }
  }
  return by_definition;
}

void print_op(std::string& text, const Graph& graph, const Op& op, std::vector<bool>& declared,
              std::vector<TensorId>& order) {
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const TensorId id = op.outputs[i];
    const Tensor& tensor = graph.tensor(id);
    if (i > 0) text += ", ";
    if (declared[id.index()]) {
      text += "%" + tensor.name;
    } else {
      text += declaration(tensor);
      declared[id.index()] = true;
      order.push_back(id);
    }
  }
  if (!op.outputs.empty()) text += " = ";
  text += fmt::format("{}({})", op.kind, name_list(graph, op.inputs));
  if (!op.attributes.empty()) text += " " + to_string(op.attributes);
  text += fmt::format(" @{}", part_name(op.part));
  if (op.block != -1) text += fmt::format(" block={}", op.block);
  text += " name=" + op.name;
  for (size_t i = 0; i < op.aliases.size(); ++i)
    text += fmt::format("{}{}:{}", i == 0 ? " alias=" : ",", op.aliases[i].output, op.aliases[i].input);
  text += "\n";
}

// ---- parsing ----

// One line and a position in it. Every failure names file, line and column.
class Line {
 public:
  Line(std::string_view file, size_t number, std::string_view text)
      : file_(file), number_(number), text_(text) {}

  [[noreturn]] void fail(size_t position, std::string_view message) const {
    throw_user(ExitCode::kBadFile, "{}:{}:{}: {}", file_, number_, position + 1, message);
  }
  [[noreturn]] void fail_expected(std::string_view expected) const {
    const std::string_view rest = text_.substr(position_, 20);
    fail(position_,
         fmt::format("found {}, expected {}",
                     rest.empty() ? std::string("the end of the line") : fmt::format("\"{}\"", rest),
                     expected));
  }

  size_t position() const { return position_; }
  void skip_spaces() {
    while (position_ < text_.size() &&
           (text_[position_] == ' ' || text_[position_] == '\t' || text_[position_] == '\r'))
      ++position_;
  }
  bool at_end() {
    skip_spaces();
    return position_ == text_.size() || text_[position_] == '#';
  }
  void expect_end() {
    if (!at_end()) fail_expected("the end of the line");
  }
  char peek() {
    skip_spaces();
    return position_ < text_.size() ? text_[position_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++position_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail_expected(fmt::format("\"{}\"", c));
  }
  // The longest run of [A-Za-z0-9_.] here; `expected` names what is missing otherwise.
  std::string_view name(std::string_view expected) {
    skip_spaces();
    size_t end = position_;
    while (end < text_.size() && is_graph_name(text_.substr(end, 1))) ++end;
    if (end == position_) fail_expected(expected);
    const std::string_view found = text_.substr(position_, end - position_);
    position_ = end;
    return found;
  }
  std::string_view tensor_name() {
    expect('%');
    if (position_ < text_.size() && text_[position_] == ' ') fail_expected("a tensor's name");
    return name("a tensor's name");
  }
  // `key=` right here?
  bool accept_key(std::string_view key) {
    skip_spaces();
    const std::string_view rest = text_.substr(position_);
    if (!rest.starts_with(key) || rest.size() <= key.size() || rest[key.size()] != '=') return false;
    position_ += key.size() + 1;
    return true;
  }
  bool accept_word(std::string_view word) {
    skip_spaces();
    const std::string_view rest = text_.substr(position_);
    if (!rest.starts_with(word) || (rest.size() > word.size() && is_graph_name(rest.substr(word.size(), 1))))
      return false;
    position_ += word.size();
    return true;
  }
  int64_t integer(std::string_view expected, int64_t lowest, int64_t highest) {
    skip_spaces();
    int64_t value = 0;
    const char* begin = text_.data() + position_;
    const auto parsed = std::from_chars(begin, text_.data() + text_.size(), value);
    if (parsed.ec != std::errc() || value < lowest || value > highest) fail_expected(expected);
    position_ += static_cast<size_t>(parsed.ptr - begin);
    return value;
  }
  std::string word_or_quoted() {
    if (position_ >= text_.size() || text_[position_] != '"') return std::string(name("a name"));
    const size_t begin = position_++;
    std::string value;
    while (position_ < text_.size() && text_[position_] != '"') {
      if (text_[position_] != '\\') {
        value += text_[position_++];
        continue;
      }
      const std::string_view escape = text_.substr(position_ + 1);
      unsigned byte = 0;
      if (escape.starts_with('"') || escape.starts_with('\\')) {
        value += escape[0];
        position_ += 2;
      } else if (escape.size() >= 3 && escape[0] == 'x' &&
                 std::from_chars(escape.data() + 1, escape.data() + 3, byte, 16).ptr == escape.data() + 3) {
        value += static_cast<char>(byte);
        position_ += 4;
      } else {
        fail_expected("\\\", \\\\ or \\xNN");
      }
    }
    if (position_ >= text_.size()) fail(begin, "the quoted name has no end");
    ++position_;
    return value;
  }
  Attributes attributes() {
    const size_t begin = position_;
    const size_t end = text_.find('}', begin);
    if (end == std::string_view::npos) fail(begin, "the attributes have no \"}\"");
    position_ = end + 1;
    try {
      return parse_attributes(text_.substr(begin, end + 1 - begin));
    } catch (const UserError& error) {
      fail(begin, error.what());
    }
  }

 private:
  std::string_view file_;
  size_t number_;
  std::string_view text_;
  size_t position_ = 0;
};

class GraphParser {
 public:
  explicit GraphParser(std::string_view name) { graph_.name = name; }

  void parse_line(Line& line) {
    if (line.peek() == '%') return parse_op(line);
    for (Storage storage : {Storage::kState, Storage::kInput, Storage::kCarried, Storage::kValue}) {
      if (!line.accept_word(storage_name(storage))) continue;
      declare(line, storage);
      return line.expect_end();
    }
    if (line.accept_word("results")) return parse_results(line);
    if (line.accept_word("tensors")) return parse_order(line);
    parse_op(line);
  }

  Graph finish() {
    if (!order_.empty()) {
      std::vector<Tensor> tensors;
      std::vector<TensorId> moved(graph_.tensors.size());
      for (TensorId id : order_) {
        moved[id.index()] = TensorId(tensors.size());
        tensors.push_back(std::move(graph_.tensors[id.index()]));
      }
      graph_.tensors = std::move(tensors);
      graph_.name_index.clear();
      const auto renumber = [&](std::vector<TensorId>& ids) {
        for (TensorId& id : ids) id = moved[id.index()];
      };
      for (Op& op : graph_.ops) {
        renumber(op.inputs);
        renumber(op.outputs);
      }
      renumber(graph_.results);
    }
    return std::move(graph_);
  }

 private:
  // %name : dtype[dims] category [parameter=…] [trainable] [decay]
  TensorId declare(Line& line, Storage storage) {
    line.skip_spaces();
    const size_t begin = line.position();
    Tensor tensor;
    tensor.storage = storage;
    tensor.name = line.tensor_name();
    if (graph_.find(tensor.name).valid())
      line.fail(begin, fmt::format("%{} is declared already", tensor.name));
    line.expect(':');
    return declare_rest(line, std::move(tensor));
  }

  TensorId declare_rest(Line& line, Tensor tensor) {
    line.skip_spaces();
    const size_t begin = line.position();
    if (!order_.empty()) line.fail(begin, "a tensor is declared after the order of tensors");
    const std::string_view dtype = line.name("an element type");
    const auto known = parse_dtype(dtype);
    if (!known) line.fail(begin, fmt::format("\"{}\" is not an element type", dtype));
    tensor.dtype = *known;
    tensor.shape = shape(line, tensor.dtype, begin);
    line.skip_spaces();
    const size_t category_begin = line.position();
    const std::string_view category = line.name("a category");
    const auto known_category = parse_category(category);
    if (!known_category) line.fail(category_begin, fmt::format("\"{}\" is not a category", category));
    tensor.category = *known_category;
    if (line.accept_key("parameter")) tensor.parameter = line.word_or_quoted();
    tensor.trainable = line.accept_word("trainable");
    tensor.decay = line.accept_word("decay");
    return graph_.add_tensor(std::move(tensor));
  }

  static Shape shape(Line& line, DType dtype, size_t begin) {
    std::vector<int64_t> dims;
    line.expect('[');
    if (!line.accept(']')) {
      do dims.push_back(line.integer("a dimension from 1", 1, std::numeric_limits<int64_t>::max()));
      while (line.accept(','));
      line.expect(']');
    }
    Shape result(std::move(dims));
    try {
      (void)result.bytes(dtype);
    } catch (const UserError& error) {
      line.fail(begin, error.what());
    }
    return result;
  }

  TensorId known_tensor(Line& line) {
    line.skip_spaces();
    const size_t begin = line.position();
    const std::string_view name = line.tensor_name();
    const TensorId id = graph_.find(name);
    if (!id.valid()) line.fail(begin, fmt::format("%{} is not declared", name));
    return id;
  }

  void parse_op(Line& line) {
    Op op;
    if (line.peek() == '%') {
      do op.outputs.push_back(parse_output(line));
      while (line.accept(','));
      line.expect('=');
    }
    op.kind = line.name("an operation");
    line.expect('(');
    if (!line.accept(')')) {
      do op.inputs.push_back(known_tensor(line));
      while (line.accept(','));
      line.expect(')');
    }
    if (line.peek() == '{') op.attributes = line.attributes();
    line.expect('@');
    const size_t begin = line.position();
    const std::string_view part = line.name("a part");
    const auto known = parse_part(part);
    if (!known) line.fail(begin, fmt::format("\"{}\" is not a part of a step", part));
    op.part = *known;
    constexpr int64_t kHighest = std::numeric_limits<int32_t>::max();
    if (line.accept_key("block"))
      op.block = static_cast<int32_t>(
          line.integer("a block's number", std::numeric_limits<int32_t>::min(), kHighest));
    if (!line.accept_key("name")) line.fail_expected("name=");
    op.name = line.name("the operation's name");
    if (line.accept_key("alias")) {
      do {
        const auto output = static_cast<int32_t>(line.integer("an output's position", 0, kHighest));
        line.expect(':');
        const auto input = static_cast<int32_t>(line.integer("an input's position", 0, kHighest));
        op.aliases.push_back({output, input});
      } while (line.accept(','));
    }
    line.expect_end();
    graph_.ops.push_back(std::move(op));
  }

  // `%name : type …` declares a value, `%name` names a declared tensor.
  TensorId parse_output(Line& line) {
    line.skip_spaces();
    const size_t begin = line.position();
    const std::string name(line.tensor_name());
    const TensorId found = graph_.find(name);
    if (!line.accept(':')) {
      if (!found.valid()) line.fail(begin, fmt::format("%{} is not declared: its type is missing", name));
      return found;
    }
    if (found.valid()) line.fail(begin, fmt::format("%{} is declared already", name));
    Tensor tensor;
    tensor.name = name;
    return declare_rest(line, std::move(tensor));
  }

  void parse_results(Line& line) {
    if (!graph_.results.empty()) line.fail(0, "the results are given twice");
    do graph_.results.push_back(known_tensor(line));
    while (line.accept(','));
    line.expect_end();
  }

  // All tensors of the graph, each once.
  void parse_order(Line& line) {
    if (!order_.empty()) line.fail(0, "the order of tensors is given twice");
    std::vector<bool> seen(graph_.tensors.size());
    do {
      line.skip_spaces();
      const size_t begin = line.position();
      const TensorId id = known_tensor(line);
      if (seen[id.index()]) line.fail(begin, fmt::format("%{} is listed twice", graph_.tensor(id).name));
      seen[id.index()] = true;
      order_.push_back(id);
    } while (line.accept(','));
    line.expect_end();
    if (order_.size() != graph_.tensors.size())
      line.fail(0, fmt::format("found {} tensors, expected all {}", order_.size(), graph_.tensors.size()));
  }

  Graph graph_;
  std::vector<TensorId> order_;
};

}  // namespace

std::string print(const Graph& graph) {
  std::string text = fmt::format("graph {}\n", graph.name);
  const std::vector<bool> by_definition = declared_by_definition(graph);
  std::vector<bool> declared(graph.tensors.size());
  std::vector<TensorId> order;  // as the text declares them
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    if (by_definition[i]) continue;
    text += fmt::format("{} {}\n", storage_name(graph.tensors[i].storage), declaration(graph.tensors[i]));
    declared[i] = true;
    order.push_back(TensorId(i));
  }
  for (const Op& op : graph.ops) print_op(text, graph, op, declared, order);
  if (!graph.results.empty()) text += fmt::format("results {}\n", name_list(graph, graph.results));
  if (!std::is_sorted(order.begin(), order.end())) {
    std::vector<TensorId> all;
    for (size_t i = 0; i < graph.tensors.size(); ++i) all.push_back(TensorId(i));
    text += fmt::format("tensors {}\n", name_list(graph, all));
  }
  return text;
}

std::string print(const Program& program) {
  std::string text;
  for (const Phase& phase : program.phases)
    text +=
        fmt::format("{}phase repeats={}\n{}", text.empty() ? "" : "\n", phase.repeats, print(phase.graph));
  return text;
}

Program parse_program(std::string_view text, std::string_view file) {
  Program program;
  std::optional<GraphParser> parser;
  std::optional<int64_t> repeats;
  size_t number = 0;
  const auto finish = [&](const Line& line) {
    if (repeats && !parser) line.fail(0, "a phase without a graph");
    if (!parser) return;
    program.phases.push_back({parser->finish(), repeats.value_or(1)});
    parser.reset();
    repeats.reset();
  };
  while (!text.empty()) {
    const size_t end = text.find('\n');
    Line line(file, ++number, text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (line.at_end()) continue;
    if (line.accept_word("phase")) {
      finish(line);
      if (!line.accept_key("repeats")) line.fail_expected("repeats=");
      repeats = line.integer("a number of repeats from 0", 0, std::numeric_limits<int64_t>::max());
      line.expect_end();
    } else if (line.accept_word("graph")) {
      if (parser) finish(line);
      parser.emplace(line.name("the graph's name"));
      line.expect_end();
    } else if (parser) {
      parser->parse_line(line);
    } else {
      line.fail_expected("graph NAME");
    }
  }
  finish(Line(file, number + 1, {}));
  return program;
}

Graph parse_graph(std::string_view text, std::string_view file) {
  Program program = parse_program(text, file);
  if (program.phases.size() != 1)
    throw_user(ExitCode::kBadFile, "{}: found {} graphs, expected one", file, program.phases.size());
  return std::move(program.phases[0].graph);
}

}  // namespace snug
