#include "formats/chat_template/value.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "formats/chat_template/python_text.h"

namespace snug::jinja {
namespace {

class TextObject : public Object {
 public:
  TextObject(Account& account, std::string held) : Object(account, held.capacity()), text(std::move(held)) {}
  const std::string text;
};

int depth_of(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

int depth_of(const std::vector<Dict::Entry>& entries) {
  int depth = 0;
  for (const auto& [key, value] : entries) depth = std::max({depth, key.depth(), value.depth()});
  return depth + 1;
}

// Few entries are found by looking at all.
constexpr size_t kFewEntries = 8;

size_t hash_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 1;
    case Kind::kNone:
      return 2;
    case Kind::kBool:
    case Kind::kInteger:
      return std::hash<int64_t>()(value.as_integer());
    case Kind::kReal: {
      const double real = value.as_real();
      const bool is_whole = std::floor(real) == real && std::abs(real) < 9e18;
      return is_whole ? std::hash<int64_t>()(static_cast<int64_t>(real)) : std::hash<double>()(real);
    }
    case Kind::kText:
      return std::hash<std::string_view>()(value.as_text());
    case Kind::kTuple: {
      size_t hash = 3;
      for (const Value& item : value.as_list().items()) hash = hash * 1000003 ^ hash_of(item);
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
      fail("unhashable type: '{}'", type_name(value));
    default:
      return std::hash<const void*>()(value.object());
  }
}

// Appends to a text that may grow to what the account allows.
class Writer {
 public:
  explicit Writer(Account& account) : account_(account) {}
  void add(std::string_view text) {
    account_.scan(text.size());
    account_.require_room(text_.size() + text.size());
    text_ += text;
  }
  Account& account() { return account_; }
  std::string take() { return std::move(text_); }

 private:
  Account& account_;
  std::string text_;
};

void write_repr(Writer& out, const Value& value, int depth);

void write_items(Writer& out, const std::vector<Value>& items, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.add(", ");
    write_repr(out, items[i], depth);
  }
}

void write_entries(Writer& out, const std::vector<Dict::Entry>& entries, int depth) {
  out.add("{");
  bool first = true;
  for (const auto& [key, value] : entries) {
    if (!std::exchange(first, false)) out.add(", ");
    write_repr(out, key, depth);
    out.add(": ");
    write_repr(out, value, depth);
  }
  out.add("}");
}

void write_view(Writer& out, const View& view, int depth) {
  static constexpr std::string_view kNames[] = {"dict_items([", "dict_keys([", "dict_values(["};
  out.add(kNames[static_cast<size_t>(view.what())]);
  bool first = true;
  for (const auto& [key, value] : view.dict().entries()) {
    if (!std::exchange(first, false)) out.add(", ");
    if (view.what() == View::What::kItems) out.add("(");
    if (view.what() != View::What::kValues) write_repr(out, key, depth);
    if (view.what() == View::What::kItems) out.add(", ");
    if (view.what() != View::What::kKeys) write_repr(out, value, depth);
    if (view.what() == View::What::kItems) out.add(")");
  }
  out.add("])");
}

void write_repr(Writer& out, const Value& value, int depth) {
  if (depth > 2 * Object::kMaxDepth) fail("a value is nested too deep to be written");
  out.account().step();
  switch (value.kind()) {
    case Kind::kUndefined:
      return out.add("Undefined");
    case Kind::kNone:
      return out.add("None");
    case Kind::kBool:
      return out.add(value.as_integer() != 0 ? "True" : "False");
    case Kind::kInteger:
      return out.add(fmt::format("{}", value.as_integer()));
    case Kind::kReal:
      return out.add(float_text(value.as_real()));
    case Kind::kText:
      out.account().require_room(value.as_text().size());
      return out.add(value.is_safe() ? "Markup(" + repr(value.as_text()) + ")" : repr(value.as_text()));
    case Kind::kList:
      out.add("[");
      write_items(out, value.as_list().items(), depth + 1);
      return out.add("]");
    case Kind::kTuple:
      out.add("(");
      write_items(out, value.as_list().items(), depth + 1);
      return out.add(value.as_list().items().size() == 1 ? ",)" : ")");
    case Kind::kDict:
      return write_entries(out, value.as_dict().entries(), depth + 1);
    case Kind::kRange: {
      const auto& range = static_cast<const Range&>(*value.object());
      return out.add(range.step == 1 ? fmt::format("range({}, {})", range.first, range.end)
                                     : fmt::format("range({}, {}, {})", range.first, range.end, range.step));
    }
    case Kind::kView:
      return write_view(out, static_cast<const View&>(*value.object()), depth + 1);
    case Kind::kNamespace: {
      out.add("<Namespace {");
      bool first = true;
      for (const auto& [name, item] : static_cast<const Namespace&>(*value.object()).items()) {
        out.add(std::exchange(first, false) ? "" : ", ");
        out.add(repr(name));
        out.add(": ");
        write_repr(out, item, depth + 1);
      }
      return out.add("}>");
    }
    case Kind::kIterator:
    case Kind::kLoop:
    case Kind::kMacro:
    case Kind::kFunction:
    case Kind::kMethod:
      fail(
          "a {} has no text that is the same twice; expected a value (an iterator becomes one by the filter "
          "list)",
          type_name(value));
  }
}

// −1, 0, 1; 2 where neither is less nor are they equal (NaN).
int order_numbers(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer())
    return a.as_integer() < b.as_integer() ? -1 : a.as_integer() > b.as_integer() ? 1 : 0;
  const auto wide = [](const Value& v) {
    return v.is_integer() ? static_cast<long double>(v.as_integer()) : static_cast<long double>(v.as_real());
  };
  const long double x = wide(a), y = wide(b);
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

// --- JSON

void write_json_text(Writer& out, std::string_view text, bool ascii) {
  std::string quoted = "\"";
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    const auto code = static_cast<uint32_t>(c.code);
    switch (code) {
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      case '\n':
        quoted += "\\n";
        break;
      case '\r':
        quoted += "\\r";
        break;
      case '\t':
        quoted += "\\t";
        break;
      case '\b':
        quoted += "\\b";
        break;
      case '\f':
        quoted += "\\f";
        break;
      default:
        if (code < 0x20 || (ascii && code == 0x7F))
          quoted += fmt::format("\\u{:04x}", code);
        else if (ascii && code >= 0x10000)
          quoted += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                                0xDC00 + ((code - 0x10000) & 0x3FF));
        else if (ascii && code >= 0x80)
          quoted += fmt::format("\\u{:04x}", code);
        else
          quoted += text.substr(at, c.bytes);
    }
    at += c.bytes;
    if (quoted.size() >= 4096) {
      out.add(quoted);
      quoted.clear();
    }
  }
  out.add(quoted + "\"");
}

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_text(value);
}

void write_json(Writer& out, const Value& value, const JsonStyle& style, int depth);

void new_line(Writer& out, const JsonStyle& style, int depth) {
  if (!style.has_indent) return;
  out.add("\n");
  for (int i = 0; i < depth; ++i) out.add(style.indent);
}

void write_json_key(Writer& out, const Value& key, const JsonStyle& style) {
  switch (key.kind()) {
    case Kind::kText:
      return write_json_text(out, key.as_text(), style.ascii);
    case Kind::kNone:
      return out.add("\"null\"");
    case Kind::kBool:
      return out.add(key.as_integer() != 0 ? "\"true\"" : "\"false\"");
    case Kind::kInteger:
      return out.add(fmt::format("\"{}\"", key.as_integer()));
    case Kind::kReal:
      return out.add("\"" + json_number(key.as_real()) + "\"");
    default:
      fail("tojson: keys must be str, int, float, bool or None, not {}", type_name(key));
  }
}

void write_json_dict(Writer& out, const Dict& dict, const JsonStyle& style, int depth) {
  if (dict.entries().empty()) return out.add("{}");
  std::vector<const Dict::Entry*> entries;
  for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
  if (style.sort_keys)
    std::stable_sort(entries.begin(), entries.end(), [&](const Dict::Entry* a, const Dict::Entry* b) {
      return less(out.account(), a->first, b->first);
    });
  out.add("{");
  bool first = true;
  for (const Dict::Entry* entry : entries) {
    if (!std::exchange(first, false)) out.add(style.item_separator);
    new_line(out, style, depth + 1);
    write_json_key(out, entry->first, style);
    out.add(style.key_separator);
    write_json(out, entry->second, style, depth + 1);
  }
  new_line(out, style, depth);
  out.add("}");
}

void write_json(Writer& out, const Value& value, const JsonStyle& style, int depth) {
  out.account().step();
  switch (value.kind()) {
    case Kind::kNone:
      return out.add("null");
    case Kind::kBool:
      return out.add(value.as_integer() != 0 ? "true" : "false");
    case Kind::kInteger:
      return out.add(fmt::format("{}", value.as_integer()));
    case Kind::kReal:
      return out.add(json_number(value.as_real()));
    case Kind::kText:
      return write_json_text(out, value.as_text(), style.ascii);
    case Kind::kList:
    case Kind::kTuple: {
      const std::vector<Value>& items = value.as_list().items();
      if (items.empty()) return out.add("[]");
      out.add("[");
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out.add(style.item_separator);
        new_line(out, style, depth + 1);
        write_json(out, items[i], style, depth + 1);
      }
      new_line(out, style, depth);
      return out.add("]");
    }
    case Kind::kDict:
      return write_json_dict(out, value.as_dict(), style, depth);
    case Kind::kUndefined:
      value.fail_undefined();
    default:
      fail("tojson: a value of type {} has no JSON", type_name(value));
  }
}

}  // namespace

void Account::stop_steps() { fail("the template takes too many steps for a conversation of this size"); }
void Account::stop_bytes() { fail("the template holds too much memory for a conversation of this size"); }

Object::Object(Account& account, size_t bytes, int depth)
    : account_(account), bytes_(bytes + 64), depth_(depth) {
  if (depth > kMaxDepth) fail("values are nested more than {} deep", kMaxDepth);
  account_.take(bytes_);
}
Object::~Object() { account_.give(bytes_); }

// --- Value

Value Value::text(Account& account, std::string text, bool safe) {
  account.scan(text.size());
  auto object = make<TextObject>(account, std::move(text));
  const std::string_view view = object->text;
  return Value::text(view, object, safe);
}
Value Value::list(Account& account, std::vector<Value> items) {
  return object(Kind::kList, make<List>(account, std::move(items)));
}
Value Value::tuple(Account& account, std::vector<Value> items) {
  return object(Kind::kTuple, make<List>(account, std::move(items)));
}
Value Value::iterator(Account& account, std::vector<Value> items) {
  return object(Kind::kIterator, make<Iterator>(account, std::move(items)));
}
const List& Value::as_list() const { return static_cast<const List&>(*object_); }
const Dict& Value::as_dict() const { return static_cast<const Dict&>(*object_); }

void Value::fail_undefined() const {
  if (flag_) fail("access to '{}' is unsafe", as_text());
  fail("'{}' is undefined", as_text());
}

List::List(Account& account, std::vector<Value> items)
    : Object(account, items.capacity() * sizeof(Value), depth_of(items)), items_(std::move(items)) {
  account.step(static_cast<int64_t>(items_.size() / 4));
}

Dict::Dict(Account& account, std::vector<Entry> entries)
    : Object(account, entries.capacity() * (sizeof(Entry) + 12), depth_of(entries)), account_(account) {
  if (entries.size() > kFewEntries) {
    size_t size = 32;
    while (size < 2 * entries.size()) size *= 2;
    slots_.assign(size, 0);
  }
  entries_.reserve(entries.size());
  for (Entry& entry : entries) {
    account.step();
    const size_t hash = hash_of(entry.first);
    if (slots_.empty()) {
      const auto same = std::find_if(entries_.begin(), entries_.end(),
                                     [&](const Entry& e) { return equal(account, e.first, entry.first); });
      if (same != entries_.end())
        same->second = std::move(entry.second);
      else
        entries_.push_back(std::move(entry));
      continue;
    }
    uint32_t& place = slot(entry.first, hash);
    if (place != 0) {
      entries_[place - 1].second = std::move(entry.second);
    } else {
      entries_.push_back(std::move(entry));
      place = static_cast<uint32_t>(entries_.size());
    }
  }
}

uint32_t& Dict::slot(const Value& key, size_t hash) {
  for (size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    account_.step();
    if (slots_[at] == 0 || equal(account_, entries_[slots_[at] - 1].first, key)) return slots_[at];
  }
}

const Value* Dict::find(const Value& key) const {
  const size_t hash = hash_of(key);
  if (!slots_.empty()) {
    const uint32_t place = const_cast<Dict*>(this)->slot(key, hash);
    return place == 0 ? nullptr : &entries_[place - 1].second;
  }
  for (const Entry& entry : entries_)
    if (equal(account_, entry.first, key)) return &entry.second;
  return nullptr;
}
const Value* Dict::find(std::string_view key) const { return find(Value::text(key)); }

Range::Range(Account& account, int64_t from, int64_t to, int64_t by)
    : Object(account, 32), first(from), end(to), step(by), size(0) {
  // A long double holds the difference of any two.
  const long double items = std::ceil((static_cast<long double>(to) - static_cast<long double>(from)) /
                                      static_cast<long double>(by));
  if (items > 0) size = static_cast<int64_t>(std::min(items, 1e18L));
}

View::View(Account& account, Ref<Dict> dict, What what)
    : Object(account, 0, dict->depth() + 1), dict_(std::move(dict)), what_(what) {}

Iterator::Iterator(Account& account, std::vector<Value> items)
    : Object(account, items.capacity() * sizeof(Value), depth_of(items)), items_(std::move(items)) {}
bool Iterator::next(Value& item) {
  if (next_ == items_.size()) return false;
  item = std::move(items_[next_++]);
  return true;
}
std::vector<Value> Iterator::rest() {
  std::vector<Value> rest(std::make_move_iterator(items_.begin() + static_cast<ptrdiff_t>(next_)),
                          std::make_move_iterator(items_.end()));
  next_ = items_.size();
  return rest;
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [known, value] : items_) {
    account_.step();
    if (known == name) return &value;
  }
  return nullptr;
}
void Namespace::set(std::string_view name, Value value) {
  if (name.starts_with('_'))
    fail("a namespace cannot hold '{}': names that begin with an underscore are refused", name);
  if (const Value* found = find(name)) {
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  account_.require_room(sizeof(items_[0]) * (items_.size() + 1) + name.size());
  items_.emplace_back(name, std::move(value));
}

// --- Functions

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInteger:
      return "int";
    case Kind::kReal:
      return "float";
    case Kind::kText:
      return value.is_safe() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kView:
      return "dict view";
    case Kind::kIterator:
      return "iterator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "loop";
    case Kind::kMacro:
      return "Macro";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "method";
  }
  return "";
}

Value from_json(Account& account, const Json& json) {
  account.step();
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        fail("the conversation holds the number {}; expected integers of 64 bits", json.get<uint64_t>());
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return Value::text(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      account.require_room(json.size() * sizeof(Value));
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(from_json(account, item));
      return Value::list(account, std::move(items));
    }
    case Json::value_t::object: {
      account.require_room(json.size() * sizeof(Dict::Entry));
      std::vector<Dict::Entry> entries;
      entries.reserve(json.size());
      for (const auto& [key, item] : json.get_ref<const Json::object_t&>())
        entries.emplace_back(Value::text(key), from_json(account, item));
      return Value::object(Kind::kDict, make<Dict>(account, std::move(entries)));
    }
    default:
      return Value::none();
  }
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInteger:
      return value.as_integer() != 0;
    case Kind::kReal:
      return value.as_real() != 0;
    case Kind::kText:
      return !value.as_text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.as_list().items().empty();
    case Kind::kDict:
      return !value.as_dict().entries().empty();
    case Kind::kRange:
      return static_cast<const Range&>(*value.object()).size > 0;
    case Kind::kView:
      return !static_cast<const View&>(*value.object()).dict().entries().empty();
    default:
      return true;
  }
}

std::string to_text(Account& account, const Value& value) {
  if (value.is_text()) {
    account.require_room(value.as_text().size());
    return std::string(value.as_text());
  }
  if (value.is_undefined()) return "";
  return to_repr(account, value);
}

std::string to_repr(Account& account, const Value& value) {
  Writer out(account);
  write_repr(out, value, 0);
  return out.take();
}

Value as_text(Account& account, const Value& value) {
  if (value.is_text()) return value;
  if (value.is_undefined()) return Value::text("");
  return Value::text(account, to_text(account, value));
}

bool equal(Account& account, const Value& a, const Value& b) {
  account.step();
  if (a.is_number() && b.is_number()) return order_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      if (a.as_text().size() != b.as_text().size()) return false;
      account.scan(a.as_text().size());
      return a.as_text() == b.as_text();
    case Kind::kList:
    case Kind::kTuple: {
      const std::vector<Value>&x = a.as_list().items(), &y = b.as_list().items();
      if (&x == &y) return true;
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i)
        if (!equal(account, x[i], y[i])) return false;
      return true;
    }
    case Kind::kDict: {
      const Dict &x = a.as_dict(), &y = b.as_dict();
      if (&x == &y) return true;
      if (x.entries().size() != y.entries().size()) return false;
      for (const auto& [key, value] : x.entries()) {
        const Value* other = y.find(key);
        if (other == nullptr || !equal(account, value, *other)) return false;
      }
      return true;
    }
    case Kind::kRange: {
      const auto &x = static_cast<const Range&>(*a.object()), &y = static_cast<const Range&>(*b.object());
      return x.size == y.size && (x.size == 0 || (x.first == y.first && (x.size == 1 || x.step == y.step)));
    }
    default:
      return a.object() == b.object();
  }
}

bool less(Account& account, const Value& a, const Value& b, std::string_view op) {
  account.step();
  if (a.is_number() && b.is_number()) return order_numbers(a, b) == -1;
  if (a.is_text() && b.is_text()) {
    account.scan(std::min(a.as_text().size(), b.as_text().size()));
    return a.as_text() < b.as_text();  // bytes of UTF-8 are ordered as their characters are
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const std::vector<Value>&x = a.as_list().items(), &y = b.as_list().items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!equal(account, x[i], y[i])) return less(account, x[i], y[i], op);
    return x.size() < y.size();
  }
  if (a.is_undefined()) a.fail_undefined();
  if (b.is_undefined()) b.fail_undefined();
  fail("'{}' is not supported between '{}' and '{}'", op, type_name(a), type_name(b));
}

bool contains(Account& account, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kText:
      if (!item.is_text()) fail("'in' a text needs a text on its left, not {}", type_name(item));
      account.scan(container.as_text().size() + item.as_text().size());
      return container.as_text().find(item.as_text()) != std::string_view::npos;
    case Kind::kDict:
      return container.as_dict().find(item) != nullptr;
    case Kind::kRange: {
      const auto& range = static_cast<const Range&>(*container.object());
      if (!item.is_integer()) return false;
      int64_t offset = 0;
      if (__builtin_sub_overflow(item.as_integer(), range.first, &offset)) return false;
      return offset % range.step == 0 && offset / range.step >= 0 && offset / range.step < range.size;
    }
    case Kind::kList:
    case Kind::kTuple:
      for (const Value& other : container.as_list().items())
        if (equal(account, other, item)) return true;
      return false;
    case Kind::kIterator: {
      auto& iterator = static_cast<Iterator&>(*container.object());
      for (Value other; iterator.next(other);)
        if (equal(account, other, item)) return true;
      return false;
    }
    case Kind::kUndefined:
      return false;
    case Kind::kView: {
      for (const Value& other : iterate(account, container))
        if (equal(account, other, item)) return true;
      return false;
    }
    default:
      fail("argument of type '{}' is not iterable", type_name(container));
  }
}

int64_t length(const Account&, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      return static_cast<int64_t>(count_characters(value.as_text()));
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.as_list().items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.as_dict().entries().size());
    case Kind::kRange:
      return static_cast<const Range&>(*value.object()).size;
    case Kind::kView:
      return static_cast<int64_t>(static_cast<const View&>(*value.object()).dict().entries().size());
    default:
      fail("object of type '{}' has no len()", type_name(value));
  }
}

bool can_iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kText:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kView:
    case Kind::kIterator:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

std::vector<Value> iterate(Account& account, const Value& value) {
  std::vector<Value> items;
  const auto room = [&](size_t count) {
    account.step(1 + static_cast<int64_t>(count / 4));
    account.require_room(count * sizeof(Value));
    items.reserve(count);
  };
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kText: {
      const std::string_view text = value.as_text();
      room(count_characters(text));
      for (size_t at = 0; at < text.size();) {
        const size_t bytes = character_at(text, at).bytes;
        items.push_back(Value::text(text.substr(at, bytes), value.owner()));
        at += bytes;
      }
      return items;
    }
    case Kind::kList:
    case Kind::kTuple:
      room(value.as_list().items().size());
      items = value.as_list().items();
      return items;
    case Kind::kDict:
      room(value.as_dict().entries().size());
      for (const auto& [key, item] : value.as_dict().entries()) items.push_back(key);
      return items;
    case Kind::kRange: {
      const auto& range = static_cast<const Range&>(*value.object());
      room(static_cast<size_t>(range.size));
      for (int64_t i = 0; i < range.size; ++i) items.push_back(Value::integer(range.first + i * range.step));
      return items;
    }
    case Kind::kView: {
      const auto& view = static_cast<const View&>(*value.object());
      room(view.dict().entries().size());
      for (const auto& [key, item] : view.dict().entries())
        items.push_back(view.what() == View::What::kItems  ? Value::tuple(account, {key, item})
                        : view.what() == View::What::kKeys ? key
                                                           : item);
      return items;
    }
    case Kind::kIterator:
      items = static_cast<Iterator&>(*value.object()).rest();
      account.step(static_cast<int64_t>(items.size() / 4));
      return items;
    default:
      fail("'{}' object is not iterable", type_name(value));
  }
}

std::string to_json(Account& account, const Value& value, const JsonStyle& style) {
  Writer out(account);
  write_json(out, value, style, 0);
  return out.take();
}

}  // namespace snug::jinja
