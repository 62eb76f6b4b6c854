// formats/chat_template/scope.h — what the interpreter's values refer to: variables, macros, loops, methods
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/chat_template/syntax.h"
#include "formats/chat_template/value.h"

namespace snug::jinja {

// The variables of one block; names are looked up outwards.
struct Scope : Object {
  Scope(Account& account, Ref<Scope> outer) : Object(account, 128), parent(std::move(outer)) {}
  Ref<Scope> parent;
  std::vector<std::pair<NameId, Value>> variables;
};

struct Macro : Object {
  Macro(Account& account, const Statement& source, std::string_view called, size_t default_count,
        Ref<Scope> outer)
      : Object(account, 0),
        statement(source),
        name(called),
        defaults(default_count),
        scope(std::move(outer)) {}
  const Statement& statement;
  const std::string_view name;
  const size_t defaults;   // of the statement's expressions, the first ones
  const Ref<Scope> scope;  // where it was defined
};

// A loop while it runs, and what is known of it behind its end.
struct Loop : Object {
  Loop(Account& account, const Statement& source, Value over, Ref<Scope> outer, int outer_loops)
      : Object(account, 0, over.depth() + 1),
        statement(source),
        iterated(std::move(over)),
        scope(std::move(outer)),
        depth0(outer_loops) {}

  const Statement& statement;
  const Value iterated;
  Ref<Scope> scope;  // around the loop; none behind its end
  const int depth0;

  std::vector<Value> items;  // unless it reads an iterator
  size_t next = 0;
  std::vector<Value> ahead;  // read from the iterator to count them, in reverse
  std::optional<Value> after;
  Value before, current;
  int64_t index0 = -1;
  std::optional<int64_t> length;
  std::optional<std::vector<Value>> changed;
};

struct Method : Object {
  Method(Account& account, Value of, std::string called)
      : Object(account, called.size(), of.depth() + 1), self(std::move(of)), name(std::move(called)) {}
  const Value self;
  const std::string name;
};

// One of the global functions.
struct GlobalFunction : Object {
  GlobalFunction(Account& account, std::string_view called) : Object(account, 0), name(called) {}
  const std::string_view name;
};

}  // namespace snug::jinja
