// formats/chat_template/value.h — what a template computes with: Python's values, as far as chat templates see them
//
// Values are immutable, as in transformers' sandbox; only namespaces, loops and iterators change. What a render holds is counted: an
// Account has a limit of bytes and of steps, and who exceeds one is stopped by a Failure. One render's values belong to one thread and
// die before its Account.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace snug::jinja {

// What stops a render; the interpreter adds the template's name and line.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args);

// What one render may use.
class Account {
 public:
  Account(size_t bytes, int64_t steps) : bytes_left_(bytes), steps_left_(steps) {}

  // Work of `count` simple operations.
  void step(int64_t count = 1) {
    steps_left_ -= count;
    if (steps_left_ < 0) stop_steps();
  }
  // Work on a text of so many bytes.
  void scan(size_t bytes) { step(1 + static_cast<int64_t>(bytes / 16)); }
  // Throws unless so many bytes more may be held: asked before they are made.
  void require_room(size_t bytes) const {
    if (bytes > bytes_left_) stop_bytes();
  }
  void take(size_t bytes) {
    require_room(bytes);
    bytes_left_ -= bytes;
  }
  void give(size_t bytes) noexcept { bytes_left_ += bytes; }
  // Another render with the same values.
  void restart(int64_t steps) { steps_left_ = steps; }

 private:
  [[noreturn]] static void stop_steps();
  [[noreturn]] static void stop_bytes();

  size_t bytes_left_;
  int64_t steps_left_;
};

// Something that values share. `depth`: containers inside one another; at most kMaxDepth.
class Object {
 public:
  static constexpr int kMaxDepth = 100;

  // `bytes` beyond the object itself. Throws Failure where the account or the depth does not allow it.
  Object(Account& account, size_t bytes, int depth = 1);
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  int depth() const { return depth_; }
  uint32_t references() const { return references_; }

 private:
  template <typename T>
  friend class Ref;
  Account& account_;
  size_t bytes_;
  uint32_t references_ = 0;
  int depth_;
};

// A counted pointer for one thread.
template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) { acquire(); }
  Ref(const Ref& other) : object_(other.object_) { acquire(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  // To a base, as pointers convert.
  template <typename U>
  Ref(const Ref<U>& other) : object_(other.get()) {  // NOLINT(google-explicit-constructor)
    acquire();
  }
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr && --static_cast<Object*>(object_)->references_ == 0) delete object_;
  }

  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  void acquire() {
    if (object_ != nullptr) ++static_cast<Object*>(object_)->references_;
  }
  T* object_ = nullptr;
};

template <typename T, typename... Args>
Ref<T> make(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInteger,
  kReal,
  kText,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,      // items(), keys(), values() of a dict
  kIterator,  // what map, select and their kin give: can be read once
  kNamespace,
  kLoop,
  kMacro,
  kFunction,  // range, namespace, dict, raise_exception, strftime_now
  kMethod,    // "…".strip
};

class List;
class Dict;
struct Range;
class View;
class Iterator;
class Namespace;

class Value {
 public:
  Value() = default;  // undefined
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value) {
    Value made(Kind::kBool);
    made.integer_ = value ? 1 : 0;
    return made;
  }
  static Value integer(int64_t value) {
    Value made(Kind::kInteger);
    made.integer_ = value;
    return made;
  }
  static Value real(double value) {
    Value made(Kind::kReal);
    made.real_ = value;
    return made;
  }
  // Text that lives in `owner`, or outlives the render without one. `safe`: marked by the filter `safe` or `escape` (a Markup).
  static Value text(std::string_view text, Ref<Object> owner = {}, bool safe = false) {
    Value made(Kind::kText);
    made.data_ = text.data();
    made.size_ = text.size();
    made.flag_ = safe;
    made.object_ = std::move(owner);
    return made;
  }
  static Value text(Account& account, std::string text, bool safe = false);
  // `name` is what messages call it. `is_unsafe`: something that the sandbox forbids, and not only something missing.
  static Value undefined(std::string_view name, Ref<Object> owner = {}, bool is_unsafe = false) {
    Value made = text(name, std::move(owner), is_unsafe);
    made.kind_ = Kind::kUndefined;
    return made;
  }
  static Value object(Kind kind, Ref<Object> object) {
    Value made(kind);
    made.object_ = std::move(object);
    return made;
  }
  static Value list(Account& account, std::vector<Value> items);
  static Value tuple(Account& account, std::vector<Value> items);
  static Value iterator(Account& account, std::vector<Value> items);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_text() const { return kind_ == Kind::kText; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  // bool is an int in Python.
  bool is_integer() const { return kind_ == Kind::kInteger || kind_ == Kind::kBool; }
  bool is_number() const { return is_integer() || kind_ == Kind::kReal; }
  bool is_safe() const { return kind_ == Kind::kText && flag_; }

  int64_t as_integer() const { return integer_; }
  double as_real() const { return kind_ == Kind::kReal ? real_ : static_cast<double>(integer_); }
  std::string_view as_text() const { return {data_, size_}; }
  const List& as_list() const;  // of a list or tuple
  const Dict& as_dict() const;
  Object* object() const { return object_.get(); }
  const Ref<Object>& owner() const { return object_; }
  // A part of this text.
  Value part(std::string_view text) const { return Value::text(text, object_, flag_); }
  // What an undefined value is called.
  [[noreturn]] void fail_undefined() const;
  int depth() const { return object_ ? object_->depth() : 0; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  bool flag_ = false;
  union {
    int64_t integer_;
    double real_;
    const char* data_ = "value";
  };
  size_t size_ = 5;
  Ref<Object> object_;
};

class List : public Object {
 public:
  List(Account& account, std::vector<Value> items);
  const std::vector<Value>& items() const { return items_; }

 private:
  std::vector<Value> items_;
};

// Keys in the order in which they came first.
class Dict : public Object {
 public:
  using Entry = std::pair<Value, Value>;

  // Of entries with the same key the first keeps its place and the last gives the value. Throws Failure for a key that cannot be one.
  Dict(Account& account, std::vector<Entry> entries);

  const std::vector<Entry>& entries() const { return entries_; }
  // Null where there is none. Throws Failure for a key that cannot be one.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;

 private:
  uint32_t& slot(const Value& key, size_t hash);

  Account& account_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // 1 + place of an entry, at its key's hash or behind; empty for few entries
};

struct Range : public Object {
  Range(Account& account, int64_t from, int64_t to, int64_t by);
  const int64_t first, end, step;
  int64_t size;
};

class View : public Object {
 public:
  enum class What : uint8_t { kItems, kKeys, kValues };
  View(Account& account, Ref<Dict> dict, What what);
  const Dict& dict() const { return *dict_; }
  What what() const { return what_; }

 private:
  Ref<Dict> dict_;
  What what_;
};

class Iterator : public Object {
 public:
  Iterator(Account& account, std::vector<Value> items);
  bool next(Value& item);
  std::vector<Value> rest();

 private:
  std::vector<Value> items_;
  size_t next_ = 0;
};

class Namespace : public Object {
 public:
  explicit Namespace(Account& account) : Object(account, 0), account_(account) {}
  const std::vector<std::pair<std::string, Value>>& items() const { return items_; }
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
  void clear() { items_.clear(); }

 private:
  Account& account_;
  std::vector<std::pair<std::string, Value>> items_;
};

// Which of Python's types it is: "str", "dict".
std::string_view type_name(const Value& value);

// A JSON value as Python's json would load it. Texts stay where they are: `json` outlives the value. Throws Failure for an integer beyond
// 64 bits.
Value from_json(Account& account, const Json& json);

// bool(value). Throws Failure for an undefined one that the sandbox forbids.
bool truth(const Value& value);
// str(value) and repr(value).
std::string to_text(Account& account, const Value& value);
std::string to_repr(Account& account, const Value& value);
// The text itself without a copy where the value is one, else str(value) as a new value.
Value as_text(Account& account, const Value& value);

// ==, and < <= > >= by the sign of −1, 0, 1; throws Failure for types that have no order.
bool equal(Account& account, const Value& a, const Value& b);
bool less(Account& account, const Value& a, const Value& b, std::string_view op = "<");
// `item in container`.
bool contains(Account& account, const Value& container, const Value& item);
// len(value); Failure for what has none.
int64_t length(const Account& account, const Value& value);
// The items one gets by iterating: of a text its characters, of a dict its keys. Reads an iterator to its end. Throws Failure for what cannot
// be iterated.
std::vector<Value> iterate(Account& account, const Value& value);
bool can_iterate(const Value& value);

struct JsonStyle {
  bool ascii = false, sort_keys = false, has_indent = false;
  std::string indent = {};
  std::string item_separator = ", ", key_separator = ": ";
};
// json.dumps.
std::string to_json(Account& account, const Value& value, const JsonStyle& style);

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace snug::jinja
