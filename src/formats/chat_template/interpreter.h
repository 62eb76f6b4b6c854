// formats/chat_template/interpreter.h — a template's tree and variables → text, within bounds
//
// Bounds, for n bytes of template and conversation (each value of which counts 32): 4 million + 64·n steps, 8 MiB + 32·n bytes held at a time,
// 1 MiB + 16·n bytes of text, kMaxDepth calls and blocks inside one another. A step is the work of about one node of the tree or of
// 16 bytes of text. Whoever exceeds one gets an error; what is allowed takes seconds at most.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/chat_template/chat_template.h"
#include "formats/chat_template/scope.h"
#include "formats/chat_template/syntax.h"
#include "formats/chat_template/value.h"

namespace snug::jinja {

// The values of a call, filter or test. Names lie in the template or in one of `owners`.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
  std::vector<Value> owners;
};

// Arguments by the names of a function's parameters.
class Parameters {
 public:
  // Throws Failure for an argument too many or of another name.
  Parameters(std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names);

  // Null for one that was not given.
  const Value* operator[](size_t index) const { return values_[index]; }
  const Value& at(size_t index) const;  // Failure when it was not given
  // `none` is as if it were not given.
  std::optional<std::string_view> text(size_t index) const;
  int64_t integer(size_t index, int64_t otherwise) const;
  bool flag(size_t index) const { return values_[index] != nullptr && truth(*values_[index]); }

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

// What a loop over the messages wrote while one of them was its item.
struct Turn {
  size_t message = 0;
  TextSpan text;
};

struct Rendered {
  std::string text;
  std::vector<TextSpan> generation;  // of {% generation %} blocks
  // A generation block wrote into a macro, a {% set %} or a filter: where its text went is not known.
  bool generation_is_hidden = false;
  std::vector<Turn> turns;  // in the order of the text
};

// One render. Used once.
class Interpreter {
 public:
  static constexpr int kMaxDepth = 600;

  // Everything given outlives it. `messages`: the dicts whose turns are wanted, by their place among the messages.
  Interpreter(const Template& source, const std::string& file, Account& account, size_t most_output,
              std::string_view date, std::unordered_map<const Object*, size_t> messages);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws UserError(kBadFile) with file and line.
  Rendered render(const std::vector<std::pair<std::string_view, Value>>& variables);

  // What filters and methods need. They throw Failure.
  Account& account() { return account_; }
  Value text(std::string text) { return Value::text(account_, std::move(text)); }
  Value attribute(const Value& object, std::string_view name);      // object.name
  Value item(const Value& object, const Value& key);                // object[key]
  Value own_attribute(const Value& object, std::string_view name);  // what Python's getattr finds
  Value call(const Value& function, const Arguments& arguments);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  // Counts one level, and remembers the line for messages.
  class Nested {
   public:
    Nested(Interpreter& run, int line) : run_(run) {
      run_.line_ = line;
      run_.account_.step();
      if (run_.depth_ == kMaxDepth) fail("calls and blocks are nested more than {} deep", kMaxDepth);
      ++run_.depth_;
    }
    ~Nested() { --run_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Interpreter& run_;
  };

  Flow run(const Body& body);
  Flow run(const Statement& statement);
  void run_with(const Statement& statement);
  void run_generation(const Statement& statement);
  // Runs a body in a scope of its own and gives its text.
  std::string captured(const Body& body);
  // The same in `scope`.
  std::string captured_in(Ref<Scope> scope, const Body& body);
  // What `write()` writes in `scope`, instead of writing it. Where it throws the render is over, and only the output is put back.
  template <typename Write>
  std::string capture(Ref<Scope> scope, const Write& write) {
    const Ref<Scope> outer_scope = std::exchange(scope_, std::move(scope));
    std::string text;
    std::string* const outer_output = std::exchange(output_, &text);
    ++captures_;
    try {
      write();
    } catch (...) {
      output_ = outer_output;
      throw;
    }
    --captures_;
    output_ = outer_output;
    scope_ = outer_scope;
    return text;
  }
  Value block_value(std::string text, const Expr* filter);
  // Runs the body for every item; false: there was none.
  bool loop_over(const Statement& statement, const Ref<Loop>& loop);
  void run_loop(const Statement& statement, Value iterated, const Ref<Scope>& scope, int depth0);
  bool pull(Loop& loop, Value& item);  // the next item that the loop's condition lets pass
  bool peek(Loop& loop);
  Value loop_attribute(const Ref<Loop>& loop, std::string_view name);
  int64_t loop_length(Loop& loop);
  Value call_loop(const Loop& loop, const Arguments& arguments);

  void assign(const Expr& target, const Value& value);
  void set(NameId name, Value value);
  const Value* find(NameId name) const;
  Value make_macro(const Statement& statement);
  Value call_macro(const Macro& macro, const Arguments& arguments);
  Value call_function(const Value& function, const Arguments& arguments);
  Value call_method(const Value& method, const Arguments& arguments);
  Ref<Dict> make_dict(std::string_view function, const Arguments& arguments);

  Value eval(const Expr& expr);
  Value eval_name(const Expr& expr);
  Value eval_compare(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_filter(const Expr& expr, const Value* input);
  Arguments eval_arguments(const Expr& expr);
  void write(std::string_view text);

  const Template& source_;
  const std::string& file_;
  Account& account_;
  const size_t most_output_;
  const std::string_view date_;
  const std::unordered_map<const Object*, size_t> messages_;

  Ref<Scope> scope_;
  Rendered rendered_;
  std::string* output_;
  int captures_ = 0;  // outputs that are not the text itself
  int depth_ = 0;
  int line_ = 1;
  bool in_message_ = false;  // inside an iteration over the messages
  // What may hold itself: emptied at the end.
  std::vector<Ref<Namespace>> namespaces_;
  std::vector<Ref<Scope>> kept_scopes_;
};

// Formats `date` (YYYY-MM-DD, midnight) as strftime does. Throws Failure for a date that is none.
std::string format_date(std::string_view date, const std::string& format);

}  // namespace snug::jinja
