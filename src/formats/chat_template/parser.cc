#include "formats/chat_template/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <unordered_map>
#include <utility>

#include "base/errors.h"
#include "formats/chat_template/filters.h"
#include "formats/chat_template/lexer.h"

namespace snug::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& file) : tokens_(std::move(tokens)), file_(file) {}

  Template run() {
    result_.body = body({});
    return std::move(result_);
  }

 private:
  // Counts what is open around the construct that is read.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting)
        parser_.fail("brackets and blocks are nested more than {} deep", kMaxNesting);
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_at(now().line, fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void fail_at(int line, const std::string& message) const {
    throw_user(ExitCode::kBadFile, "{}:{}: {}", file_, line, message);
  }

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool skip(std::string_view op) {
    if (!now().is(op)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!now().is_name(name)) return false;
    take();
    return true;
  }
  void expect(std::string_view op) {
    if (!skip(op)) fail("expected '{}', found {}", op, describe(now()));
  }
  void expect(TokenKind kind) {
    if (now().kind != kind) fail("expected {}, found {}", describe(Token(kind)), describe(now()));
    take();
  }
  const Token& expect_name() {
    if (now().kind != TokenKind::kName) fail("expected a name, found {}", describe(now()));
    return take();
  }
  bool is_any_name(Names names) const {
    return now().kind == TokenKind::kName && std::find(names.begin(), names.end(), now().text) != names.end();
  }

  NameId name_id(const std::string& name) {
    const auto [found, is_new] = name_ids_.emplace(name, static_cast<NameId>(result_.names.size()));
    if (is_new) result_.names.push_back(name);
    return found->second;
  }

  // --- Nodes

  static std::unique_ptr<Expr> node(ExprKind kind, int line) {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = line;
    return expr;
  }
  void add_child(Expr& expr, ExprPtr child) {
    if (child) expr.depth = std::max(expr.depth, child->depth + 1);
    if (expr.depth > kMaxExprDepth) fail("an expression is more than {} operations deep", kMaxExprDepth);
    expr.children.push_back(std::move(child));
  }
  template <typename... Children>
  ExprPtr node(ExprKind kind, int line, Children... children) {
    std::unique_ptr<Expr> expr = node(kind, line);
    (add_child(*expr, std::move(children)), ...);
    return expr;
  }
  static std::unique_ptr<Statement> statement(StatementKind kind, int line) {
    auto made = std::make_unique<Statement>();
    made->kind = kind;
    made->line = line;
    return made;
  }

  // --- Statements

  // Up to the tag that one of `ends` begins, which is taken up to its name; without ends to the end of the template.
  Body body(Names ends) {
    Body list;
    while (true) {
      switch (now().kind) {
        case TokenKind::kData: {
          auto text = statement(StatementKind::kText, now().line);
          text->text = take().text;
          list.push_back(std::move(text));
          break;
        }
        case TokenKind::kVariableBegin: {
          auto print = statement(StatementKind::kPrint, take().line);
          print->expressions.push_back(tuple());
          expect(TokenKind::kVariableEnd);
          list.push_back(std::move(print));
          break;
        }
        case TokenKind::kBlockBegin:
          take();
          if (is_any_name(ends)) return list;
          one_statement(list);
          expect(TokenKind::kBlockEnd);
          break;
        default:
          if (ends.size() == 0 && now().kind == TokenKind::kEnd) return list;
          fail("the template ends inside {{% {} %}}; expected {{% {} %}}", open_.empty() ? "" : open_.back(),
               fmt::join(ends.begin(), ends.end(), " %} or {% "));
      }
    }
  }
  // The same behind a statement's head.
  Body block(Names ends) {
    skip(":");
    expect(TokenKind::kBlockEnd);
    return body(ends);
  }
  Body whole_block(std::string_view end) {
    Body list = block({end});
    take();
    return list;
  }

  void one_statement(Body& list) {
    const Nesting nesting(*this);
    const int line = now().line;
    if (now().kind != TokenKind::kName) fail("expected a statement behind '{{%', found {}", describe(now()));
    const std::string name = take().text;
    open_.push_back(name);
    if (name == "if") {
      list.push_back(if_statement(line));
    } else if (name == "for") {
      list.push_back(for_statement(line));
    } else if (name == "set") {
      list.push_back(set_statement(line));
    } else if (name == "with") {
      list.push_back(with_statement(line));
    } else if (name == "macro") {
      list.push_back(macro_statement(line));
    } else if (name == "call") {
      list.push_back(call_statement(line));
    } else if (name == "filter") {
      auto made = statement(StatementKind::kFilterBlock, line);
      made->expressions.push_back(filter(nullptr, true));
      made->bodies.push_back(whole_block("endfilter"));
      list.push_back(std::move(made));
    } else if (name == "generation") {
      auto made = statement(StatementKind::kGeneration, line);
      const int loops = std::exchange(loops_, 0);
      made->bodies.push_back(whole_block("endgeneration"));
      loops_ = loops;
      result_.has_generation = true;
      list.push_back(std::move(made));
    } else if (name == "print") {
      while (now().kind != TokenKind::kBlockEnd) {
        auto print = statement(StatementKind::kPrint, line);
        print->expressions.push_back(expression());
        list.push_back(std::move(print));
        if (now().kind != TokenKind::kBlockEnd) expect(",");
      }
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) fail_at(line, fmt::format("{{% {} %}} stands outside a loop", name));
      list.push_back(statement(name == "break" ? StatementKind::kBreak : StatementKind::kContinue, line));
    } else {
      refuse_statement(name, line);
    }
    open_.pop_back();
  }

  [[noreturn]] void refuse_statement(const std::string& name, int line) {
    static constexpr std::array<std::string_view, 9> kOther = {
        "include", "import", "from", "extends", "block", "do", "autoescape", "trans", "debug"};
    if (std::find(kOther.begin(), kOther.end(), name) != kOther.end())
      fail_at(line, fmt::format("found {{% {} %}}: Snug's chat templates are one file without it", name));
    open_.pop_back();
    fail_at(line, open_.empty() ? fmt::format("found {{% {} %}}, which is no statement", name)
                                : fmt::format("found {{% {} %}} inside {{% {} %}}; expected its end", name,
                                              open_.back()));
  }

  std::unique_ptr<Statement> if_statement(int line) {
    auto made = statement(StatementKind::kIf, line);
    while (true) {
      made->expressions.push_back(tuple(false));
      made->bodies.push_back(block({"elif", "else", "endif"}));
      const std::string end = take().text;
      if (end == "elif") continue;
      if (end == "else") made->bodies.push_back(whole_block("endif"));
      return made;
    }
  }

  std::unique_ptr<Statement> for_statement(int line) {
    auto made = statement(StatementKind::kFor, line);
    made->expressions.push_back(target({"in"}));
    if (!skip_name("in")) fail("expected 'in', found {}", describe(now()));
    made->expressions.push_back(tuple(false, {"recursive"}));
    made->expressions.push_back(skip_name("if") ? expression() : nullptr);
    made->recursive = skip_name("recursive");
    ++loops_;
    made->bodies.push_back(block({"endfor", "else"}));
    --loops_;
    if (take().text == "else") made->bodies.push_back(whole_block("endfor"));
    return made;
  }

  std::unique_ptr<Statement> set_statement(int line) {
    ExprPtr to = target({}, true);
    if (skip("=")) {
      auto made = statement(StatementKind::kSet, line);
      made->expressions.push_back(std::move(to));
      made->expressions.push_back(tuple());
      return made;
    }
    auto made = statement(StatementKind::kSetBlock, line);
    made->expressions.push_back(std::move(to));
    made->expressions.push_back(now().is("|") ? filter(nullptr, false) : nullptr);
    made->bodies.push_back(whole_block("endset"));
    return made;
  }

  std::unique_ptr<Statement> with_statement(int line) {
    auto made = statement(StatementKind::kWith, line);
    while (now().kind != TokenKind::kBlockEnd) {
      if (!made->expressions.empty()) expect(",");
      made->expressions.push_back(target({}));
      expect("=");
      made->expressions.push_back(expression());
    }
    made->bodies.push_back(whole_block("endwith"));
    return made;
  }

  void parameters(Statement& made) {
    expect("(");
    while (!now().is(")")) {
      if (!made.parameters.empty()) expect(",");
      made.parameters.push_back(name_id(expect_name().text));
      if (skip("="))
        made.expressions.push_back(expression());
      else if (!made.expressions.empty())
        fail("a parameter without a default stands behind one with a default");
    }
    expect(")");
  }

  // The body of a macro or call, which may ask for what its caller gave.
  void macro_body(Statement& made, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    const auto outer = std::exchange(used_, {});
    made.bodies.push_back(whole_block(end));
    made.uses_varargs = used_[0];
    made.uses_kwargs = used_[1];
    made.uses_caller = used_[2];
    used_ = outer;
    loops_ = loops;
  }

  std::unique_ptr<Statement> macro_statement(int line) {
    auto made = statement(StatementKind::kMacro, line);
    made->name = name_id(expect_name().text);
    parameters(*made);
    macro_body(*made, "endmacro");
    return made;
  }

  std::unique_ptr<Statement> call_statement(int line) {
    auto made = statement(StatementKind::kCall, line);
    made->name = name_id("caller");
    if (now().is("(")) parameters(*made);
    ExprPtr call = expression();
    if (call->kind != ExprKind::kCall) fail_at(line, "expected a call behind {% call %}");
    macro_body(*made, "endcall");
    made->expressions.push_back(std::move(call));
    return made;
  }

  // --- Expressions

  ExprPtr target(Names ends, bool with_namespace = false) {
    const int line = now().line;
    std::vector<ExprPtr> parts;
    bool is_tuple = false;
    while (true) {
      if (!parts.empty() && is_tuple_end(ends)) break;
      parts.push_back(target_part(with_namespace));
      if (!skip(",")) break;
      is_tuple = true;
    }
    if (!is_tuple) return std::move(parts.front());
    std::unique_ptr<Expr> made = node(ExprKind::kTuple, line);
    for (ExprPtr& part : parts) add_child(*made, std::move(part));
    return made;
  }
  ExprPtr target_part(bool with_namespace) {
    const Nesting nesting(*this);
    const int line = now().line;
    if (skip("(")) {
      ExprPtr inner = target({}, with_namespace);
      expect(")");
      return inner;
    }
    const std::string name = expect_name().text;
    if (is_constant(name)) fail_at(line, fmt::format("'{}' cannot be assigned to", name));
    const bool is_item = with_namespace && skip(".");
    std::unique_ptr<Expr> made = node(is_item ? ExprKind::kNamespaceItem : ExprKind::kName, line);
    made->name = name_id(name);
    if (is_item) made->text = expect_name().text;
    return made;
  }

  static bool is_constant(std::string_view name) {
    return name == "true" || name == "false" || name == "True" || name == "False" || name == "none" ||
           name == "None";
  }
  bool is_tuple_end(Names ends) const {
    return now().kind == TokenKind::kVariableEnd || now().kind == TokenKind::kBlockEnd || now().is(")") ||
           is_any_name(ends);
  }

  ExprPtr tuple(bool with_conditional = true, Names ends = {}, bool in_parentheses = false) {
    const int line = now().line;
    std::vector<ExprPtr> parts;
    bool is_tuple = false;
    while (true) {
      if (!parts.empty()) expect(",");
      if (is_tuple_end(ends)) break;
      parts.push_back(with_conditional ? expression() : either());
      if (!now().is(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && !parts.empty()) return std::move(parts.front());
    if (!is_tuple && !in_parentheses) fail("expected an expression, found {}", describe(now()));
    std::unique_ptr<Expr> made = node(ExprKind::kTuple, line);
    for (ExprPtr& part : parts) add_child(*made, std::move(part));
    return made;
  }

  ExprPtr expression() {
    const Nesting nesting(*this);
    ExprPtr value = either();
    while (now().is_name("if")) {
      const int line = take().line;
      ExprPtr condition = either();
      ExprPtr other = skip_name("else") ? expression() : nullptr;
      value = node(ExprKind::kConditional, line, std::move(value), std::move(condition), std::move(other));
    }
    return value;
  }

  ExprPtr either() {
    ExprPtr left = both();
    while (now().is_name("or")) {
      const int line = take().line;
      left = node(ExprKind::kOr, line, std::move(left), both());
    }
    return left;
  }

  ExprPtr both() {
    ExprPtr left = negation();
    while (now().is_name("and")) {
      const int line = take().line;
      left = node(ExprKind::kAnd, line, std::move(left), negation());
    }
    return left;
  }

  ExprPtr negation() {
    if (!now().is_name("not")) return comparison();
    const Nesting nesting(*this);
    const int line = take().line;
    return node(ExprKind::kNot, line, negation());
  }

  ExprPtr comparison() {
    const int line = now().line;
    ExprPtr first = sum();
    std::unique_ptr<Expr> made;
    while (true) {
      CompareKind kind = CompareKind::kEqual;
      if (now().is("=="))
        kind = CompareKind::kEqual;
      else if (now().is("!="))
        kind = CompareKind::kNotEqual;
      else if (now().is("<"))
        kind = CompareKind::kLess;
      else if (now().is("<="))
        kind = CompareKind::kLessEqual;
      else if (now().is(">"))
        kind = CompareKind::kGreater;
      else if (now().is(">="))
        kind = CompareKind::kGreaterEqual;
      else if (now().is_name("in"))
        kind = CompareKind::kIn;
      else if (now().is_name("not") && ahead().is_name("in"))
        kind = CompareKind::kNotIn;
      else
        break;
      take();
      if (kind == CompareKind::kNotIn) take();
      if (!made) {
        made = node(ExprKind::kCompare, line);
        add_child(*made, std::move(first));
      }
      made->compares.push_back(kind);
      add_child(*made, sum());
    }
    if (made) return made;
    return first;
  }

  ExprPtr sum() {
    ExprPtr left = concatenation();
    while (now().is("+") || now().is("-")) {
      const int line = now().line;
      const ExprKind kind = take().text == "+" ? ExprKind::kAdd : ExprKind::kSubtract;
      left = node(kind, line, std::move(left), concatenation());
    }
    return left;
  }

  ExprPtr concatenation() {
    const int line = now().line;
    ExprPtr first = product();
    if (!now().is("~")) return first;
    std::unique_ptr<Expr> made = node(ExprKind::kConcat, line);
    add_child(*made, std::move(first));
    while (skip("~")) add_child(*made, product());
    return made;
  }

  ExprPtr product() {
    ExprPtr left = power();
    while (now().is("*") || now().is("/") || now().is("//") || now().is("%")) {
      const int line = now().line;
      const std::string op = take().text;
      const ExprKind kind = op == "*"    ? ExprKind::kMultiply
                            : op == "/"  ? ExprKind::kDivide
                            : op == "//" ? ExprKind::kFloorDivide
                                         : ExprKind::kModulo;
      left = node(kind, line, std::move(left), power());
    }
    return left;
  }

  ExprPtr power() {
    ExprPtr left = unary(true);
    while (now().is("**")) {
      const int line = take().line;
      left = node(ExprKind::kPower, line, std::move(left), unary(true));
    }
    return left;
  }

  ExprPtr unary(bool with_filter) {
    const int line = now().line;
    ExprPtr made;
    if (now().is("-") || now().is("+")) {
      const Nesting nesting(*this);
      const ExprKind kind = take().text == "-" ? ExprKind::kNegate : ExprKind::kPlus;
      made = node(kind, line, unary(false));
    } else {
      made = primary();
    }
    made = postfix(std::move(made));
    if (with_filter) return filters_and_tests(std::move(made));
    return made;
  }

  ExprPtr primary() {
    const Token& token = now();
    switch (token.kind) {
      case TokenKind::kName:
        return name_or_constant();
      case TokenKind::kString: {
        std::unique_ptr<Expr> made = node(ExprKind::kText, token.line);
        while (now().kind == TokenKind::kString) made->text += take().text;
        return made;
      }
      case TokenKind::kInteger:
      case TokenKind::kReal: {
        std::unique_ptr<Expr> made =
            node(token.kind == TokenKind::kReal ? ExprKind::kReal : ExprKind::kInteger, token.line);
        made->integer = token.integer;
        made->real = token.real;
        take();
        return made;
      }
      default:
        break;
    }
    if (skip("(")) {
      ExprPtr made = tuple(true, {}, true);
      expect(")");
      return made;
    }
    if (token.is("[")) return list();
    if (token.is("{")) return dict();
    fail("expected an expression, found {}", describe(token));
  }

  ExprPtr name_or_constant() {
    const Token& token = take();
    const std::string& name = token.text;
    if (name == "none" || name == "None") return node(ExprKind::kNone, token.line);
    if (is_constant(name)) {
      std::unique_ptr<Expr> made = node(ExprKind::kBool, token.line);
      made->integer = name == "true" || name == "True" ? 1 : 0;
      return made;
    }
    if (name == "varargs") used_[0] = true;
    if (name == "kwargs") used_[1] = true;
    if (name == "caller") used_[2] = true;
    std::unique_ptr<Expr> made = node(ExprKind::kName, token.line);
    made->name = name_id(name);
    return made;
  }

  ExprPtr list() {
    std::unique_ptr<Expr> made = node(ExprKind::kList, take().line);
    while (!now().is("]")) {
      if (!made->children.empty()) expect(",");
      if (now().is("]")) break;
      add_child(*made, expression());
    }
    expect("]");
    return made;
  }

  ExprPtr dict() {
    std::unique_ptr<Expr> made = node(ExprKind::kDict, take().line);
    while (!now().is("}")) {
      if (!made->children.empty()) expect(",");
      if (now().is("}")) break;
      add_child(*made, expression());
      expect(":");
      add_child(*made, expression());
    }
    expect("}");
    return made;
  }

  ExprPtr postfix(ExprPtr value) {
    while (true) {
      if (now().is(".") || now().is("["))
        value = subscript(std::move(value));
      else if (now().is("("))
        value = call(std::move(value));
      else
        return value;
    }
  }

  ExprPtr filters_and_tests(ExprPtr value) {
    while (true) {
      if (now().is("|"))
        value = filter(std::move(value), false);
      else if (now().is_name("is"))
        value = test(std::move(value));
      else if (now().is("("))
        value = call(std::move(value));
      else
        return value;
    }
  }

  ExprPtr subscript(ExprPtr value) {
    const int line = now().line;
    if (skip(".")) {
      const Token& token = take();
      if (token.kind == TokenKind::kName) {
        std::unique_ptr<Expr> made = node(ExprKind::kAttribute, line);
        add_child(*made, std::move(value));
        made->text = token.text;
        return made;
      }
      if (token.kind != TokenKind::kInteger)
        fail_at(token.line, fmt::format("expected a name or number behind '.', found {}", describe(token)));
      std::unique_ptr<Expr> key = node(ExprKind::kInteger, token.line);
      key->integer = token.integer;
      return node(ExprKind::kItem, line, std::move(value), ExprPtr(std::move(key)));
    }
    expect("[");
    if (now().is("]")) fail("expected an expression, found ']'");
    ExprPtr begin = now().is(":") ? nullptr : expression();
    ExprPtr made;
    if (skip(":")) {
      ExprPtr end = now().is(":") || now().is("]") ? nullptr : expression();
      ExprPtr step = skip(":") && !now().is("]") ? expression() : nullptr;
      made =
          node(ExprKind::kSlice, line, std::move(value), std::move(begin), std::move(end), std::move(step));
    } else if (now().is(",")) {
      std::unique_ptr<Expr> key = node(ExprKind::kTuple, line);
      add_child(*key, std::move(begin));
      while (skip(",")) {
        if (now().is("]")) break;
        add_child(*key, expression());
      }
      made = node(ExprKind::kItem, line, std::move(value), ExprPtr(std::move(key)));
    } else {
      made = node(ExprKind::kItem, line, std::move(value), std::move(begin));
    }
    expect("]");
    return made;
  }

  void arguments(Expr& expr) {
    const int line = now().line;
    expect("(");
    while (!now().is(")")) {
      if (!expr.arguments.empty()) {
        expect(",");
        if (now().is(")")) break;
      }
      Argument argument;
      const auto last = expr.arguments.empty() ? Argument::Kind::kPositional : expr.arguments.back().kind;
      if (skip("*")) {
        argument.kind = Argument::Kind::kList;
      } else if (skip("**")) {
        argument.kind = Argument::Kind::kDict;
      } else if (now().kind == TokenKind::kName && ahead().is("=")) {
        argument.kind = Argument::Kind::kKeyword;
        argument.keyword = take().text;
        take();
      }
      const bool is_ordered = argument.kind == Argument::Kind::kPositional
                                  ? last == Argument::Kind::kPositional
                              : argument.kind == Argument::Kind::kList
                                  ? last == Argument::Kind::kPositional || last == Argument::Kind::kKeyword
                                  : last != Argument::Kind::kDict;
      if (!is_ordered) fail_at(line, "the arguments of a call are in no order that Jinja has");
      argument.value = expression();
      expr.depth = std::max(expr.depth, argument.value->depth + 1);
      expr.arguments.push_back(std::move(argument));
    }
    expect(")");
    if (expr.depth > kMaxExprDepth) fail("an expression is more than {} operations deep", kMaxExprDepth);
  }

  ExprPtr call(ExprPtr value) {
    std::unique_ptr<Expr> made = node(ExprKind::kCall, now().line);
    add_child(*made, std::move(value));
    arguments(*made);
    return made;
  }

  std::string dotted_name() {
    std::string name = expect_name().text;
    while (skip(".")) name += "." + expect_name().text;
    return name;
  }

  // One filter behind a value, or as many as there are where it has none ({% filter %}, {% set %}); `inline_first`: without its bar.
  ExprPtr filter(ExprPtr value, bool inline_first) {
    const bool is_block = value == nullptr;
    do {
      if (!std::exchange(inline_first, false)) expect("|");
      std::unique_ptr<Expr> made = node(ExprKind::kFilter, now().line);
      made->text = dotted_name();
      made->function = find_filter(made->text);
      if (made->function == nullptr)
        fail_at(made->line,
                fmt::format("found the filter '{}', which Snug's chat templates do not have", made->text));
      add_child(*made, std::move(value));
      if (now().is("(")) arguments(*made);
      value = std::move(made);
    } while (is_block && now().is("|"));
    return value;
  }

  ExprPtr test(ExprPtr value) {
    const int line = take().line;
    const bool negated = skip_name("not");
    std::unique_ptr<Expr> made = node(ExprKind::kTest, line);
    made->text = dotted_name();
    made->function = find_test(made->text);
    if (made->function == nullptr)
      fail_at(line,
              fmt::format("found the test 'is {}', which Snug's chat templates do not have", made->text));
    add_child(*made, std::move(value));
    const Token& next = now();
    if (next.is("(")) {
      arguments(*made);
    } else if ((next.kind == TokenKind::kName || next.kind == TokenKind::kString ||
                next.kind == TokenKind::kInteger || next.kind == TokenKind::kReal || next.is("[") ||
                next.is("{")) &&
               !is_any_name({"else", "or", "and"})) {
      if (next.is_name("is")) fail("tests with 'is' cannot be chained");
      Argument argument;
      argument.value = postfix(primary());
      made->depth = std::max(made->depth, argument.value->depth + 1);
      made->arguments.push_back(std::move(argument));
    }
    if (negated) return node(ExprKind::kNot, line, ExprPtr(std::move(made)));
    return made;
  }

  const std::vector<Token> tokens_;
  const std::string& file_;
  size_t at_ = 0;
  int nesting_ = 0, loops_ = 0;
  std::array<bool, 3> used_{};     // varargs, kwargs, caller in the macro that is read
  std::vector<std::string> open_;  // statements that wait for their ends
  std::unordered_map<std::string, NameId> name_ids_;
  Template result_;
};

}  // namespace

Template parse_template(std::string_view source, const std::string& file) {
  if (source.size() > kMaxTemplateBytes)
    throw_user(ExitCode::kBadFile, "{}: has {} bytes; expected a chat template of at most {}", file,
               source.size(), kMaxTemplateBytes);
  std::vector<Token> tokens = tokenize(source, file);
  if (tokens.size() > kMaxTokens)
    throw_user(ExitCode::kBadFile, "{}: has {} words and signs; expected a chat template of at most {}", file,
               tokens.size(), kMaxTokens);
  return Parser(std::move(tokens), file).run();
}

}  // namespace snug::jinja
