// Loops, macros, attributes, and the functions that every template sees.
#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>

#include "formats/chat_template/filters.h"
#include "formats/chat_template/interpreter.h"
#include "formats/chat_template/operations.h"
#include "formats/chat_template/scope.h"

namespace snug::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // jinja2.sandbox.MAX_RANGE

template <size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
constexpr std::array<std::string_view, 6> kDictMethods = {"get",    "items", "keys",
                                                          "values", "copy",  "fromkeys"};
constexpr std::array<std::string_view, 5> kDictChanges = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 3> kListMethods = {"count", "index", "copy"};
constexpr std::array<std::string_view, 8> kListChanges = {"append", "clear",  "extend",  "insert",
                                                          "pop",    "remove", "reverse", "sort"};

template <typename T>
T& as(const Value& value) {
  return static_cast<T&>(*value.object());
}

}  // namespace

// --- Parameters

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names)
    : function_(function), names_(names), values_(names.size()) {
  if (arguments.positional.size() > names_.size())
    fail("{}() takes at most {} arguments, found {}", function, names_.size(), arguments.positional.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(names_.begin(), names_.end(), name);
    if (place == names_.end()) fail("{}() got an unexpected keyword argument '{}'", function, name);
    const Value*& slot = values_[static_cast<size_t>(place - names_.begin())];
    if (slot != nullptr) fail("{}() got two values for '{}'", function, name);
    slot = &value;
  }
}

const Value& Parameters::at(size_t index) const {
  if (values_[index] == nullptr) fail("{}() needs an argument '{}'", function_, names_[index]);
  return *values_[index];
}

std::optional<std::string_view> Parameters::text(size_t index) const {
  const Value* value = values_[index];
  if (value == nullptr || value->is(Kind::kNone)) return std::nullopt;
  if (value->is_undefined()) value->fail_undefined();
  if (!value->is_text())
    fail("{}(): '{}' is of type {}; expected a text", function_, names_[index], type_name(*value));
  return value->as_text();
}

int64_t Parameters::integer(size_t index, int64_t otherwise) const {
  const Value* value = values_[index];
  if (value == nullptr) return otherwise;
  if (value->is_undefined()) value->fail_undefined();
  if (!value->is_integer())
    fail("{}(): '{}' is of type {}; expected an integer", function_, names_[index], type_name(*value));
  return value->as_integer();
}

// --- Loops

void Interpreter::run_loop(const Statement& statement, Value iterated, const Ref<Scope>& scope, int depth0) {
  const auto loop = make<Loop>(account_, statement, std::move(iterated), scope, depth0);
  // An iterator is read as the loop goes: what a break leaves is there for the next one.
  if (!loop->iterated.is(Kind::kIterator)) loop->items = iterate(account_, loop->iterated);
  account_.take(loop->items.capacity() * sizeof(Value));
  const bool ran = loop_over(statement, loop);
  account_.give(loop->items.capacity() * sizeof(Value));
  // Someone may have kept the loop: it must not keep what it ran in.
  loop->scope = {};
  loop->changed.reset();
  loop->after.reset();
  if (!ran && statement.bodies.size() > 1) {
    scope_ = make<Scope>(account_, scope);
    run(statement.bodies[1]);
  }
  scope_ = scope;
}

bool Interpreter::loop_over(const Statement& statement, const Ref<Loop>& loop) {
  const auto loop_name = std::find(source_.names.begin(), source_.names.end(), "loop");
  const auto loop_id =
      static_cast<NameId>(loop_name == source_.names.end() ? -1 : loop_name - source_.names.begin());
  const Ref<Scope> outer = loop->scope;
  Ref<Scope> inner;
  bool ran = false;
  while (true) {
    Value item;
    if (loop->after)
      item = *std::exchange(loop->after, std::nullopt);
    else if (!pull(*loop, item))
      break;
    ran = true;
    ++loop->index0;
    loop->before = std::move(loop->current);
    loop->current = item;
    // A macro or another value may have kept the scope of the iteration before.
    if (inner && inner->references() == 1)
      inner->variables.clear();
    else
      inner = make<Scope>(account_, outer);
    scope_ = inner;
    if (loop_id >= 0) set(loop_id, Value::object(Kind::kLoop, loop));
    assign(*statement.expressions[0], item);

    const auto message = in_message_ || captures_ > 0 || item.object() == nullptr
                             ? messages_.end()
                             : messages_.find(item.object());
    const size_t begin = output_->size();
    if (message != messages_.end()) in_message_ = true;
    const Flow flow = run(statement.bodies[0]);
    scope_ = outer;
    if (message != messages_.end()) {
      in_message_ = false;
      if (output_->size() > begin) rendered_.turns.push_back({message->second, {begin, output_->size()}});
    }
    if (flow == Flow::kBreak) break;
  }
  return ran;
}

bool Interpreter::pull(Loop& loop, Value& item) {
  const Expr* condition = loop.statement.expressions[2].get();
  while (true) {
    account_.step();
    if (!loop.ahead.empty()) {
      // Counted before: the condition has let it pass.
      item = std::move(loop.ahead.back());
      loop.ahead.pop_back();
      return true;
    }
    if (loop.iterated.is(Kind::kIterator)) {
      if (!as<Iterator>(loop.iterated).next(item)) return false;
    } else {
      if (loop.next == loop.items.size()) return false;
      item = loop.items[loop.next++];
    }
    if (condition == nullptr) return true;
    const Ref<Scope> back = scope_;
    scope_ = make<Scope>(account_, loop.scope);
    assign(*loop.statement.expressions[0], item);
    const bool passes = truth(eval(*condition));
    scope_ = back;
    if (passes) return true;
  }
}

bool Interpreter::peek(Loop& loop) {
  if (loop.after) return true;
  if (!loop.scope) return false;  // it has ended
  Value item;
  if (!pull(loop, item)) return false;
  loop.after = std::move(item);
  return true;
}

int64_t Interpreter::loop_length(Loop& loop) {
  if (loop.length) return *loop.length;
  if (!loop.iterated.is(Kind::kIterator) && loop.statement.expressions[2] == nullptr) {
    loop.length = jinja::length(account_, loop.iterated);
    return *loop.length;
  }
  // The rest is read to be counted.
  std::vector<Value> rest;
  if (loop.scope)
    for (Value item; pull(loop, item);) rest.push_back(item);
  loop.length = static_cast<int64_t>(rest.size()) + loop.index0 + 1 + (loop.after ? 1 : 0);
  std::reverse(rest.begin(), rest.end());
  loop.ahead = std::move(rest);
  return *loop.length;
}

Value Interpreter::loop_attribute(const Ref<Loop>& loop, std::string_view name) {
  if (name == "index0") return Value::integer(loop->index0);
  if (name == "index") return Value::integer(loop->index0 + 1);
  if (name == "first") return Value::boolean(loop->index0 == 0);
  if (name == "last") return Value::boolean(!peek(*loop));
  if (name == "length") return Value::integer(loop_length(*loop));
  if (name == "revindex") return Value::integer(loop_length(*loop) - loop->index0);
  if (name == "revindex0") return Value::integer(loop_length(*loop) - loop->index0 - 1);
  if (name == "depth0") return Value::integer(loop->depth0);
  if (name == "depth") return Value::integer(loop->depth0 + 1);
  if (name == "previtem") return loop->index0 == 0 ? Value::undefined("previtem") : loop->before;
  if (name == "nextitem") return peek(*loop) ? *loop->after : Value::undefined("nextitem");
  if (name == "cycle" || name == "changed")
    return Value::object(Kind::kMethod,
                         make<Method>(account_, Value::object(Kind::kLoop, loop), std::string(name)));
  return Value::undefined("loop attribute");
}

Value Interpreter::call_loop(const Loop& loop, const Arguments& arguments) {
  if (!loop.statement.recursive || !loop.scope)
    fail("the loop must have the 'recursive' marker to be called recursively");
  const Parameters given("loop", arguments, {"iterable"});
  return this->text(
      capture(scope_, [&] { run_loop(loop.statement, given.at(0), loop.scope, loop.depth0 + 1); }));
}

// --- Macros

Value Interpreter::make_macro(const Statement& statement) {
  if (kept_scopes_.empty() || kept_scopes_.back().get() != scope_.get()) {
    account_.take(sizeof(Ref<Scope>));
    kept_scopes_.push_back(scope_);
  }
  const size_t defaults = statement.expressions.size() - (statement.kind == StatementKind::kCall ? 1 : 0);
  return Value::object(
      Kind::kMacro,
      make<Macro>(account_, statement, source_.names[static_cast<size_t>(statement.name)], defaults, scope_));
}

Value Interpreter::call_macro(const Macro& macro, const Arguments& arguments) {
  const Statement& statement = macro.statement;
  const auto scope = make<Scope>(account_, macro.scope);
  const Ref<Scope> outer = std::exchange(scope_, scope);
  const auto set_named = [&](std::string_view name, Value value) {
    const auto found = std::find(source_.names.begin(), source_.names.end(), name);
    if (found != source_.names.end())
      set(static_cast<NameId>(found - source_.names.begin()), std::move(value));
  };
  std::vector<bool> used(arguments.named.size());
  const auto take_named = [&](std::string_view name) -> const Value* {
    for (size_t i = 0; i < arguments.named.size(); ++i)
      if (arguments.named[i].first == name && !used[i]) {
        used[i] = true;
        return &arguments.named[i].second;
      }
    return nullptr;
  };
  const size_t count = statement.parameters.size();
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = source_.names[static_cast<size_t>(statement.parameters[i])];
    Value value = Value::undefined(name);
    if (i < arguments.positional.size())
      value = arguments.positional[i];
    else if (const Value* given = take_named(name))
      value = *given;
    else if (i >= count - macro.defaults)
      value = eval(*statement.expressions[i - (count - macro.defaults)]);
    set(statement.parameters[i], std::move(value));
  }
  if (statement.uses_caller) {
    const Value* caller = take_named("caller");
    set_named("caller", caller != nullptr && !caller->is(Kind::kNone) ? *caller : Value::undefined("caller"));
  }
  std::vector<Dict::Entry> rest;
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i]) {
      if (!statement.uses_kwargs)
        fail("macro '{}' takes no keyword argument '{}'", macro.name, arguments.named[i].first);
      rest.emplace_back(text(std::string(arguments.named[i].first)), arguments.named[i].second);
    }
  if (statement.uses_kwargs)
    set_named("kwargs", Value::object(Kind::kDict, make<Dict>(account_, std::move(rest))));
  if (arguments.positional.size() > count && !statement.uses_varargs)
    fail("macro '{}' takes not more than {} argument(s)", macro.name, count);
  if (statement.uses_varargs) {
    const auto begin =
        arguments.positional.begin() + static_cast<ptrdiff_t>(std::min(count, arguments.positional.size()));
    set_named("varargs", Value::tuple(account_, std::vector<Value>(begin, arguments.positional.end())));
  }
  std::string text = captured_in(scope, statement.bodies[0]);
  scope_ = outer;
  return this->text(std::move(text));
}

// --- Attributes

Value Interpreter::own_attribute(const Value& object, std::string_view name) {
  if (name.starts_with("__") && name.ends_with("__"))
    return Value::undefined("an attribute of Python's own", {}, true);
  const auto method = [&] {
    return Value::object(Kind::kMethod, make<Method>(account_, object, std::string(name)));
  };
  const auto unsafe = [&] {
    const Value kept = text(std::string(name));
    return Value::undefined(kept.as_text(), kept.owner(), true);
  };
  switch (object.kind()) {
    case Kind::kText:
      if (find_text_method(name) != nullptr) return method();
      break;
    case Kind::kDict:
      if (is_one_of(name, kDictMethods)) return method();
      if (is_one_of(name, kDictChanges)) return unsafe();
      break;
    case Kind::kList:
      if (is_one_of(name, kListMethods)) return method();
      if (is_one_of(name, kListChanges)) return unsafe();
      break;
    case Kind::kTuple:
      if (name == "count" || name == "index") return method();
      break;
    case Kind::kNamespace:
      if (const Value* found = as<Namespace>(object).find(name)) return *found;
      break;
    case Kind::kLoop:
      return loop_attribute(Ref<Loop>(&as<Loop>(object)), name);
    case Kind::kRange:
      if (name == "start") return Value::integer(as<Range>(object).first);
      if (name == "stop") return Value::integer(as<Range>(object).end);
      if (name == "step") return Value::integer(as<Range>(object).step);
      break;
    case Kind::kMacro:
      if (name == "name") return Value::text(as<Macro>(object).name);
      break;
    case Kind::kFunction:
      if (name == "fromkeys" && as<GlobalFunction>(object).name == "dict") return method();
      break;
    default:
      break;
  }
  if (is_other_attribute(object.kind(), name))
    fail("found '{}' of a {}, which Snug's chat templates do not have", name, type_name(object));
  const Value kept = text(std::string(name));
  return Value::undefined(kept.as_text(), kept.owner());
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) object.fail_undefined();
  if (object.is(Kind::kDict) && !is_one_of(name, kDictMethods) && !is_one_of(name, kDictChanges)) {
    // The usual case, without a text made for the name.
    if (const Value* found = object.as_dict().find(name)) return *found;
  }
  return own_attribute(object, name);
}

Value Interpreter::item(const Value& object, const Value& key) {
  Value found;
  if (find_item(account_, object, key, found)) return found;
  if (key.is_text()) return own_attribute(object, key.as_text());
  return Value::undefined("an item");
}

// --- Calls

Value Interpreter::call(const Value& function, const Arguments& arguments) {
  const Nested nested(*this, line_);
  switch (function.kind()) {
    case Kind::kMethod:
      return call_method(function, arguments);
    case Kind::kFunction:
      return call_function(function, arguments);
    case Kind::kMacro:
      return call_macro(as<Macro>(function), arguments);
    case Kind::kLoop:
      return call_loop(as<Loop>(function), arguments);
    case Kind::kUndefined:
      function.fail_undefined();
    default:
      fail("'{}' object is not callable", type_name(function));
  }
}

Value Interpreter::call_method(const Value& value, const Arguments& arguments) {
  const auto& method = as<Method>(value);
  const Value& self = method.self;
  const std::string_view name = method.name;
  if (self.is_safe()) fail("methods of a text marked safe are not supported");
  if (self.is_text()) return find_text_method(name)(*this, self, arguments);
  if (self.is(Kind::kLoop)) {
    auto& loop = as<Loop>(self);
    if (name == "cycle") {
      if (arguments.positional.empty()) fail("no items for cycling given");
      return arguments.positional[static_cast<size_t>(loop.index0) % arguments.positional.size()];
    }
    const std::vector<Value>& now = arguments.positional;
    const bool same = loop.changed && loop.changed->size() == now.size() &&
                      std::equal(now.begin(), now.end(), loop.changed->begin(),
                                 [&](const Value& a, const Value& b) { return equal(account_, a, b); });
    if (!same) loop.changed = now;
    return Value::boolean(!same);
  }
  if (self.is(Kind::kDict)) {
    const auto view = [&](View::What what) {
      const Parameters none(name, arguments, {});
      return Value::object(Kind::kView, make<View>(account_, Ref<Dict>(&as<Dict>(self)), what));
    };
    if (name == "items") return view(View::What::kItems);
    if (name == "keys") return view(View::What::kKeys);
    if (name == "values") return view(View::What::kValues);
    if (name == "get") {
      const Parameters given("get", arguments, {"key", "default"});
      if (const Value* found = self.as_dict().find(given.at(0))) return *found;
      return given[1] != nullptr ? *given[1] : Value::none();
    }
    if (name == "copy") return Value::object(Kind::kDict, make<Dict>(account_, self.as_dict().entries()));
  }
  if (name == "fromkeys") {
    const Parameters given("fromkeys", arguments, {"iterable", "value"});
    std::vector<Dict::Entry> entries;
    for (Value& key : iterate(account_, given.at(0)))
      entries.emplace_back(std::move(key), given[1] != nullptr ? *given[1] : Value::none());
    return Value::object(Kind::kDict, make<Dict>(account_, std::move(entries)));
  }
  const std::vector<Value>& items = self.as_list().items();
  if (name == "copy") return Value::list(account_, items);
  const Parameters given(name, arguments, {"value"});
  const Value& wanted = given.at(0);
  int64_t count = 0;
  for (size_t i = 0; i < items.size(); ++i)
    if (equal(account_, items[i], wanted)) {
      if (name == "index") return Value::integer(static_cast<int64_t>(i));
      ++count;
    }
  if (name == "index") fail("the value is not in the list");
  return Value::integer(count);
}

Ref<Dict> Interpreter::make_dict(std::string_view function, const Arguments& arguments) {
  if (arguments.positional.size() > 1)
    fail("{} expected at most 1 argument, got {}", function, arguments.positional.size());
  std::vector<Dict::Entry> entries;
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.is_undefined()) from.fail_undefined();
    if (from.is(Kind::kDict))
      entries = from.as_dict().entries();
    else
      for (const Value& pair : iterate(account_, from)) {
        std::vector<Value> two = iterate(account_, pair);
        if (two.size() != 2) fail("{}: an entry has {} values; 2 are required", function, two.size());
        entries.emplace_back(std::move(two[0]), std::move(two[1]));
      }
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(text(std::string(name)), value);
  return make<Dict>(account_, std::move(entries));
}

Value Interpreter::call_function(const Value& function, const Arguments& arguments) {
  const std::string_view name = as<GlobalFunction>(function).name;
  if (name == "raise_exception") {
    const Parameters given(name, arguments, {"message"});
    fail("the template refuses the conversation: {}", to_text(account_, given.at(0)));
  }
  if (name == "strftime_now") {
    const Parameters given(name, arguments, {"format"});
    return text(format_date(date_, std::string(given.text(0).value_or(""))));
  }
  if (name == "dict") return Value::object(Kind::kDict, make_dict(name, arguments));
  if (name == "namespace") {
    const Ref<Dict> values = make_dict(name, arguments);
    const auto made = make<Namespace>(account_);
    namespaces_.push_back(made);
    for (const auto& [key, value] : values->entries()) {
      if (!key.is_text()) fail("keywords must be strings");
      made->set(key.as_text(), value);
    }
    return Value::object(Kind::kNamespace, made);
  }
  if (name == "range") {
    if (!arguments.named.empty()) fail("range() takes no keyword arguments");
    const Parameters given(name, arguments, {"start", "stop", "step"});
    given.at(0);
    const int64_t first = given.integer(0, 0), second = given.integer(1, 0), step = given.integer(2, 1);
    if (step == 0) fail("range() arg 3 must not be zero");
    const auto range =
        given[1] == nullptr ? make<Range>(account_, 0, first, 1) : make<Range>(account_, first, second, step);
    if (range->size > kMaxRange)
      fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
    return Value::object(Kind::kRange, range);
  }
  fail("found '{}', which Snug's chat templates do not have", name);
}

std::string format_date(std::string_view date, const std::string& format) {
  std::tm day{};
  const auto number = [&](size_t at, size_t digits, int& value) {
    const auto read = std::from_chars(date.data() + at, date.data() + at + digits, value);
    return read.ec == std::errc() && read.ptr == date.data() + at + digits;
  };
  if (date.size() != 10 || date[4] != '-' || date[7] != '-' || !number(0, 4, day.tm_year) ||
      !number(5, 2, day.tm_mon) || !number(8, 2, day.tm_mday) || day.tm_mon < 1 || day.tm_mon > 12 ||
      day.tm_mday < 1 || day.tm_mday > 31)
    fail("the date is \"{}\"; expected YYYY-MM-DD", date);
  day.tm_year -= 1900;
  day.tm_mon -= 1;
  timegm(&day);  // fills in the day of the week and of the year
  if (format.empty()) return "";
  // strftime cannot tell a text that is too long from one that is empty: one more character makes it never empty.
  std::array<char, 1024> buffer;
  const size_t size = std::strftime(buffer.data(), buffer.size(), (format + "x").c_str(), &day);
  if (size == 0) fail("strftime_now writes more than {} bytes", buffer.size());
  return std::string(buffer.data(), size - 1);
}

}  // namespace snug::jinja
