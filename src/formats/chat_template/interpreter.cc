#include "formats/chat_template/interpreter.h"

#include <algorithm>
#include <array>

#include "base/errors.h"
#include "formats/chat_template/filters.h"
#include "formats/chat_template/operations.h"
#include "formats/chat_template/scope.h"

namespace snug::jinja {
namespace {

// Names that every template sees. Some are functions that chat templates have no use for.
constexpr std::array<std::string_view, 9> kGlobals = {
    "range", "namespace", "dict", "raise_exception", "strftime_now", "lipsum", "cycler", "joiner", "self"};

}  // namespace

Interpreter::Interpreter(const Template& source, const std::string& file, Account& account,
                         size_t most_output, std::string_view date,
                         std::unordered_map<const Object*, size_t> messages)
    : source_(source),
      file_(file),
      account_(account),
      most_output_(most_output),
      date_(date),
      messages_(std::move(messages)),
      output_(&rendered_.text) {}

Interpreter::~Interpreter() {
  // Namespaces and scopes may hold themselves, and long chains of one another: while the lists hold all of them, none dies inside another.
  scope_ = {};
  for (const Ref<Namespace>& made : namespaces_) made->clear();
  for (const Ref<Scope>& scope : kept_scopes_) {
    scope->variables.clear();
    scope->parent = {};
  }
}

Rendered Interpreter::render(const std::vector<std::pair<std::string_view, Value>>& variables) {
  try {
    scope_ = make<Scope>(account_, Ref<Scope>());
    for (size_t id = 0; id < source_.names.size(); ++id) {
      const std::string& name = source_.names[id];
      const auto given = std::find_if(variables.rbegin(), variables.rend(),
                                      [&](const auto& variable) { return variable.first == name; });
      if (given != variables.rend())
        set(static_cast<NameId>(id), given->second);
      else if (std::find(kGlobals.begin(), kGlobals.end(), name) != kGlobals.end())
        set(static_cast<NameId>(id), Value::object(Kind::kFunction, make<GlobalFunction>(account_, name)));
    }
    // What the template sets is seen before these.
    scope_ = make<Scope>(account_, scope_);
    run(source_.body);
  } catch (const Failure& failure) {
    throw_user(ExitCode::kBadFile, "{}:{}: {}", file_, line_, failure.what());
  }
  return std::move(rendered_);
}

// --- Variables

void Interpreter::set(NameId name, Value value) {
  for (auto& [known, held] : scope_->variables)
    if (known == name) {
      held = std::move(value);
      return;
    }
  account_.step();
  scope_->variables.emplace_back(name, std::move(value));
}

const Value* Interpreter::find(NameId name) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get())
    for (const auto& [known, held] : scope->variables)
      if (known == name) return &held;
  return nullptr;
}

void Interpreter::assign(const Expr& target, const Value& value) {
  line_ = target.line;
  if (target.kind == ExprKind::kName) {
    set(target.name, value);
  } else if (target.kind == ExprKind::kNamespaceItem) {
    const Value* found = find(target.name);
    if (found == nullptr || !found->is(Kind::kNamespace))
      fail("cannot assign attribute on non-namespace object '{}'",
           source_.names[static_cast<size_t>(target.name)]);
    static_cast<Namespace&>(*found->object()).set(target.text, value);
  } else {
    if (value.is_undefined()) value.fail_undefined();
    const std::vector<Value> items = iterate(account_, value);
    if (items.size() != target.children.size())
      fail("{} values to unpack (expected {})",
           items.size() < target.children.size() ? fmt::format("not enough, {},", items.size()) : "too many",
           target.children.size());
    for (size_t i = 0; i < items.size(); ++i) assign(*target.children[i], items[i]);
  }
}

void Interpreter::write(std::string_view text) {
  if (text.size() > most_output_ - std::min(output_->size(), most_output_))
    fail("the template writes more than {} bytes for a conversation of this size", most_output_);
  account_.scan(text.size());
  output_->append(text);
}

// --- Statements

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const auto& statement : body)
    if (const Flow flow = run(*statement); flow != Flow::kNormal) return flow;
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const Statement& statement) {
  const Nested nested(*this, statement.line);
  switch (statement.kind) {
    case StatementKind::kText:
      write(statement.text);
      break;
    case StatementKind::kPrint: {
      const Value value = eval(*statement.expressions[0]);
      if (value.is_text())
        write(value.as_text());
      else if (!value.is_undefined())
        write(to_text(account_, value));
      break;
    }
    case StatementKind::kIf:
      for (size_t i = 0; i < statement.expressions.size(); ++i)
        if (truth(eval(*statement.expressions[i]))) return run(statement.bodies[i]);
      if (statement.bodies.size() > statement.expressions.size()) return run(statement.bodies.back());
      break;
    case StatementKind::kFor:
      run_loop(statement, eval(*statement.expressions[1]), scope_, 0);
      break;
    case StatementKind::kSet:
      assign(*statement.expressions[0], eval(*statement.expressions[1]));
      break;
    case StatementKind::kSetBlock:
      assign(*statement.expressions[0],
             block_value(captured(statement.bodies[0]), statement.expressions[1].get()));
      break;
    case StatementKind::kFilterBlock:
      write(to_text(account_, block_value(captured(statement.bodies[0]), statement.expressions[0].get())));
      break;
    case StatementKind::kWith:
      run_with(statement);
      break;
    case StatementKind::kMacro:
      set(statement.name, make_macro(statement));
      break;
    case StatementKind::kCall: {
      const Value caller = make_macro(statement);
      const Expr& call_expr = *statement.expressions.back();
      const Value function = eval(*call_expr.children[0]);
      Arguments arguments = eval_arguments(call_expr);
      arguments.named.emplace_back("caller", caller);
      line_ = statement.line;
      write(to_text(account_, call(function, arguments)));
      break;
    }
    case StatementKind::kGeneration:
      run_generation(statement);
      break;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

void Interpreter::run_with(const Statement& statement) {
  // All values are those of outside.
  std::vector<Value> values;
  for (size_t i = 1; i < statement.expressions.size(); i += 2)
    values.push_back(eval(*statement.expressions[i]));
  const Ref<Scope> outer = scope_;
  scope_ = make<Scope>(account_, outer);
  for (size_t i = 0; i < values.size(); ++i) assign(*statement.expressions[2 * i], values[i]);
  run(statement.bodies[0]);
  scope_ = outer;
}

void Interpreter::run_generation(const Statement& statement) {
  const Ref<Scope> outer = scope_;
  scope_ = make<Scope>(account_, outer);
  const size_t begin = output_->size();
  run(statement.bodies[0]);
  if (captures_ > 0)
    rendered_.generation_is_hidden = true;
  else if (output_->size() > begin)
    rendered_.generation.push_back({begin, output_->size()});
  scope_ = outer;
}

std::string Interpreter::captured(const Body& body) {
  return captured_in(make<Scope>(account_, scope_), body);
}

std::string Interpreter::captured_in(Ref<Scope> scope, const Body& body) {
  return capture(std::move(scope), [&] { run(body); });
}

Value Interpreter::block_value(std::string text, const Expr* filter) {
  const Value value = this->text(std::move(text));
  return filter == nullptr ? value : eval_filter(*filter, &value);
}

// --- Expressions

Value Interpreter::eval(const Expr& expr) {
  const Nested nested(*this, expr.line);
  const auto child = [&](size_t i) { return eval(*expr.children[i]); };
  switch (expr.kind) {
    case ExprKind::kText:
      return Value::text(expr.text);
    case ExprKind::kInteger:
      return Value::integer(expr.integer);
    case ExprKind::kReal:
      return Value::real(expr.real);
    case ExprKind::kBool:
      return Value::boolean(expr.integer != 0);
    case ExprKind::kNone:
      return Value::none();
    case ExprKind::kName:
      return eval_name(expr);
    case ExprKind::kTuple:
    case ExprKind::kList: {
      std::vector<Value> items;
      items.reserve(expr.children.size());
      for (const ExprPtr& item : expr.children) items.push_back(eval(*item));
      return expr.kind == ExprKind::kList ? Value::list(account_, std::move(items))
                                          : Value::tuple(account_, std::move(items));
    }
    case ExprKind::kDict: {
      std::vector<Dict::Entry> entries;
      for (size_t i = 0; i < expr.children.size(); i += 2) {
        Value key = child(i);
        entries.emplace_back(std::move(key), child(i + 1));
      }
      return Value::object(Kind::kDict, make<Dict>(account_, std::move(entries)));
    }
    case ExprKind::kNot:
      return Value::boolean(!truth(child(0)));
    case ExprKind::kNegate:
      return negate(child(0));
    case ExprKind::kPlus:
      return unary_plus(child(0));
    case ExprKind::kAnd: {
      Value left = child(0);
      return truth(left) ? child(1) : left;
    }
    case ExprKind::kOr: {
      Value left = child(0);
      return truth(left) ? left : child(1);
    }
    case ExprKind::kAdd:
    case ExprKind::kSubtract:
    case ExprKind::kMultiply:
    case ExprKind::kDivide:
    case ExprKind::kFloorDivide:
    case ExprKind::kModulo:
    case ExprKind::kPower: {
      const Value left = child(0), right = child(1);
      line_ = expr.line;
      return arithmetic(account_, expr.kind, left, right);
    }
    case ExprKind::kConcat:
      return eval_concat(expr);
    case ExprKind::kCompare:
      return eval_compare(expr);
    case ExprKind::kConditional:
      if (truth(child(1))) return child(0);
      return expr.children[2] ? child(2) : Value::undefined("the inline if-expression without else");
    case ExprKind::kAttribute: {
      const Value object = child(0);
      line_ = expr.line;
      return attribute(object, expr.text);
    }
    case ExprKind::kItem: {
      const Value object = child(0), key = child(1);
      line_ = expr.line;
      return item(object, key);
    }
    case ExprKind::kSlice: {
      const Value object = child(0);
      std::array<Value, 3> bounds;
      std::array<const Value*, 3> given{};
      for (size_t i = 0; i < 3; ++i)
        if (expr.children[i + 1]) {
          bounds[i] = child(i + 1);
          given[i] = &bounds[i];
        }
      line_ = expr.line;
      return slice(account_, object, given[0], given[1], given[2]);
    }
    case ExprKind::kCall: {
      const Value function = child(0);
      const Arguments arguments = eval_arguments(expr);
      line_ = expr.line;
      return call(function, arguments);
    }
    case ExprKind::kFilter:
      return eval_filter(expr, nullptr);
    case ExprKind::kTest: {
      const Value value = child(0);
      const Arguments arguments = eval_arguments(expr);
      line_ = expr.line;
      return expr.function(*this, value, arguments);
    }
    case ExprKind::kNamespaceItem:
      break;
  }
  throw_internal("a chat template's expression of kind {}", static_cast<int>(expr.kind));
}

Value Interpreter::eval_name(const Expr& expr) {
  const Value* found = find(expr.name);
  const std::string& name = source_.names[static_cast<size_t>(expr.name)];
  if (found == nullptr) return Value::undefined(name);
  return *found;
}

Value Interpreter::eval_compare(const Expr& expr) {
  Value left = eval(*expr.children[0]);
  for (size_t i = 0; i < expr.compares.size(); ++i) {
    Value right = eval(*expr.children[i + 1]);
    line_ = expr.line;
    if (!compare(account_, expr.compares[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::eval_concat(const Expr& expr) {
  std::string text;
  for (const ExprPtr& part : expr.children) {
    const Value value = eval(*part);
    const Value as = as_text(account_, value);
    account_.require_room(text.size() + as.as_text().size());
    text += as.as_text();
  }
  return this->text(std::move(text));
}

Value Interpreter::eval_filter(const Expr& expr, const Value* input) {
  const Nested nested(*this, expr.line);
  // In {% filter a|b %} the innermost filter has the block's text as its value.
  const Expr* child = expr.children[0].get();
  const Value value = child == nullptr                   ? *input
                      : child->kind == ExprKind::kFilter ? eval_filter(*child, input)
                                                         : eval(*child);
  const Arguments arguments = eval_arguments(expr);
  line_ = expr.line;
  return expr.function(*this, value, arguments);
}

Arguments Interpreter::eval_arguments(const Expr& expr) {
  Arguments arguments;
  for (const Argument& argument : expr.arguments) {
    Value value = eval(*argument.value);
    switch (argument.kind) {
      case Argument::Kind::kPositional:
        arguments.positional.push_back(std::move(value));
        break;
      case Argument::Kind::kKeyword:
        arguments.named.emplace_back(argument.keyword, std::move(value));
        break;
      case Argument::Kind::kList:
        for (Value& item : iterate(account_, value)) arguments.positional.push_back(std::move(item));
        break;
      case Argument::Kind::kDict:
        if (!value.is(Kind::kDict)) fail("argument after ** must be a mapping, not {}", type_name(value));
        for (const auto& [key, item] : value.as_dict().entries()) {
          if (!key.is_text()) fail("keywords must be strings");
          arguments.named.emplace_back(key.as_text(), item);
        }
        arguments.owners.push_back(std::move(value));
        break;
    }
  }
  return arguments;
}

}  // namespace snug::jinja
