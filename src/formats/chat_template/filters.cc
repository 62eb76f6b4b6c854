// Jinja's filters of single values, and the table of all.
#include "formats/chat_template/filters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "formats/chat_template/operations.h"
#include "formats/chat_template/python_text.h"
#include "formats/chat_template/sequence_filters.h"

namespace snug::jinja {
namespace {

using Text = std::string_view;

template <std::string (*function)(Text)>
Value mapped(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters none("filter", arguments, {});
  const Value text = as_text(run.account(), value);
  run.account().scan(text.as_text().size());
  run.account().require_room(text.as_text().size() * 3);
  return Value::text(run.account(), function(text.as_text()), text.is_safe());
}

Value absolute(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters none("abs", arguments, {});
  if (value.is_undefined()) value.fail_undefined();
  if (!value.is_number()) fail("bad operand type for abs(): '{}'", type_name(value));
  if (value.is(Kind::kReal)) return Value::real(std::abs(value.as_real()));
  return value.as_integer() < 0 ? negate(value) : Value::integer(value.as_integer());
}

Value attribute(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("attr", arguments, {"name"});
  given.at(0);
  return run.own_attribute(value, given.text(0).value_or(""));
}

Value center(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("center", arguments, {"width"});
  Arguments width;
  width.positional.push_back(Value::integer(given.integer(0, 80)));
  return find_text_method("center")(run, as_text(run.account(), value), width);
}

Value default_value(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters given("default", arguments, {"default_value", "boolean"});
  if (!value.is_undefined() && !(given.flag(1) && !truth(value))) return value;
  return given[0] != nullptr ? *given[0] : Value::text("");
}

Value escape(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters none("escape", arguments, {});
  return escape_html(run.account(), value);
}
Value force_escape(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters none("forceescape", arguments, {});
  const Value text = as_text(run.account(), value);
  return escape_html(run.account(), Value::text(text.as_text(), text.owner()));
}
Value safe(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters none("safe", arguments, {});
  const Value text = as_text(run.account(), value);
  return Value::text(text.as_text(), text.owner(), true);
}

// A number as float() and int() read it: white space around it, single underscores between digits.
std::optional<std::string> number_text(Text text) {
  std::string out;
  text = strip(text);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_') {
      const auto digit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
      if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
      continue;
    }
    out += text[i];
  }
  return out;
}

std::optional<double> read_real(Text text) {
  const std::optional<std::string> number = number_text(text);
  if (!number || number->empty()) return std::nullopt;
  // strtod also reads hexadecimal numbers and nan(…).
  const std::string word =
      lower(number->starts_with('-') || number->starts_with('+') ? Text(*number).substr(1) : Text(*number));
  const bool is_word = word == "inf" || word == "infinity" || word == "nan";
  if (!is_word && word.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(number->c_str(), &end);
  if (end != number->c_str() + number->size()) return std::nullopt;
  return value;
}

std::optional<int64_t> read_integer(Text text) {
  const std::optional<std::string> number = number_text(text);
  if (!number) return std::nullopt;
  Text digits = *number;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.empty() || digits.find_first_not_of("0123456789") != Text::npos) return std::nullopt;
  int64_t value = 0;
  for (const char c : digits)
    if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
        __builtin_add_overflow(value, negative ? '0' - c : c - '0', &value))
      fail("an integer becomes larger than 64 bits");
  return value;
}

std::optional<Value> truncated(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::abs(value) >= 9.2e18) fail("an integer becomes larger than 64 bits");
  return Value::integer(static_cast<int64_t>(value));
}

Value to_integer(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters given("int", arguments, {"default", "base"});
  if (given.integer(1, 10) != 10) fail("int() of another base than 10 is not supported");
  if (value.is_undefined()) value.fail_undefined();
  if (value.is_integer()) return Value::integer(value.as_integer());
  if (value.is(Kind::kReal)) {
    if (std::isinf(value.as_real())) fail("cannot convert float infinity to integer");
    if (const auto integer = truncated(value.as_real())) return *integer;
  } else if (value.is_text()) {
    if (const auto integer = read_integer(value.as_text())) return Value::integer(*integer);
    if (const auto real = read_real(value.as_text()))
      if (const auto integer = truncated(*real)) return *integer;
  }
  return given[0] != nullptr ? *given[0] : Value::integer(0);
}

Value to_real(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters given("float", arguments, {"default"});
  if (value.is_undefined()) value.fail_undefined();
  if (value.is_number()) return Value::real(value.as_real());
  if (value.is_text())
    if (const auto real = read_real(value.as_text())) return Value::real(*real);
  return given[0] != nullptr ? *given[0] : Value::real(0);
}

Value round(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters given("round", arguments, {"precision", "method"});
  const int64_t precision = given.integer(0, 0);
  const Text method = given.text(1).value_or("common");
  if (value.is_undefined()) value.fail_undefined();
  if (!value.is_number()) fail("type {} doesn't define __round__ method", type_name(value));
  if (precision < 0 || precision > 300) fail("round to {} places is not supported", precision);
  if (method == "common") {
    if (value.is_integer()) return Value::integer(value.as_integer());
    if (!std::isfinite(value.as_real())) return value;
    // The decimal number nearest to the double, halves to even, as the C library writes it.
    return Value::real(std::strtod(fmt::format("{:.{}f}", value.as_real(), precision).c_str(), nullptr));
  }
  if (method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.as_real() * scale;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value format(Interpreter& run, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    fail("can't handle positional and keyword arguments at the same time");
  const Value text = as_text(run.account(), value);
  if (arguments.named.empty())
    return format_percent(run.account(), text.as_text(), Value::tuple(run.account(), arguments.positional));
  std::vector<Dict::Entry> entries;
  for (const auto& [name, given] : arguments.named) entries.emplace_back(run.text(std::string(name)), given);
  return format_percent(run.account(), text.as_text(),
                        Value::object(Kind::kDict, make<Dict>(run.account(), std::move(entries))));
}

Value indent(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("indent", arguments, {"width", "first", "blank"});
  if (value.is_undefined()) value.fail_undefined();
  if (!value.is_text()) fail("unsupported operand types for +: '{}' and 'str'", type_name(value));
  if (value.is_safe()) fail("indent of a text marked safe is not supported");
  Account& account = run.account();
  std::string indention;
  if (given[0] != nullptr && given[0]->is_text()) {
    indention = std::string(given[0]->as_text());
  } else {
    const auto width = static_cast<size_t>(std::max<int64_t>(given.integer(0, 4), 0));
    account.require_room(width);
    indention.assign(width, ' ');
  }
  account.scan(value.as_text().size());
  const std::string text = std::string(value.as_text()) + "\n";
  const std::vector<Text> lines = split_lines(text, false);
  account.step(static_cast<int64_t>(lines.size()));
  account.require_room(text.size() + (indention.size() + 16) * lines.size());
  const bool blank = given.flag(2);
  std::string out = given.flag(1) ? indention : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += indention;
    out += lines[i];
  }
  return run.text(std::move(out));
}

Value replace_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("replace", arguments, {"old", "new", "count"});
  Account& account = run.account();
  Arguments texts;
  for (size_t i = 0; i < 2; ++i) {
    const Value text = as_text(account, given.at(i));
    texts.positional.push_back(Value::text(text.as_text(), text.owner()));
  }
  const bool has_count = given[2] != nullptr && !given[2]->is(Kind::kNone);
  texts.positional.push_back(Value::integer(has_count ? given.integer(2, -1) : -1));
  return find_text_method("replace")(run, as_text(account, value), texts);
}

Value string(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters none("string", arguments, {});
  return as_text(run.account(), value);
}

Value trim(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("trim", arguments, {"chars"});
  const Value text = as_text(run.account(), value);
  run.account().scan(text.as_text().size());
  return text.part(strip(text.as_text(), given.text(0)));
}

Value truncate(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("truncate", arguments, {"length", "killwords", "end", "leeway"});
  if (!value.is_text()) fail("truncate: expected a text, found {}", type_name(value));
  const int64_t length = given.integer(0, 255), leeway = given.integer(3, 5);
  const Text end = given.text(2).value_or("...");
  const auto end_length = static_cast<int64_t>(count_characters(end));
  if (length < end_length) fail("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) fail("expected leeway >= 0, got {}", leeway);
  run.account().scan(value.as_text().size());
  if (static_cast<int64_t>(count_characters(value.as_text())) - length <= leeway) return value;
  Text kept =
      value.as_text().substr(0, character_offset(value.as_text(), static_cast<size_t>(length - end_length)));
  if (!given.flag(1))
    if (const size_t space = kept.rfind(' '); space != Text::npos) kept = kept.substr(0, space);
  return run.text(std::string(kept) + std::string(end));
}

Value word_count(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters none("wordcount", arguments, {});
  const Value text = as_text(run.account(), value);
  int64_t count = 0;
  bool inside = false;
  for (size_t at = 0; at < text.as_text().size();) {
    const size_t bytes = character_at(text.as_text(), at).bytes;
    const Text character = text.as_text().substr(at, bytes);
    const bool is_word = character == "_" || belongs(character, TextClass::kAlnum);
    if (is_word && !inside) ++count;
    inside = is_word;
    at += bytes;
  }
  run.account().scan(text.as_text().size() * 4);
  return Value::integer(count);
}

Value json(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ascii = given.flag(0), .sort_keys = given.flag(3)};
  if (const Value* indent = given[1]; indent != nullptr && !indent->is(Kind::kNone)) {
    style.has_indent = true;
    if (indent->is_text())
      style.indent = std::string(indent->as_text());
    else
      style.indent.assign(static_cast<size_t>(std::clamp<int64_t>(given.integer(1, 0), 0, 1000)), ' ');
  }
  style.item_separator = style.has_indent ? "," : ", ";
  style.key_separator = ": ";
  if (const Value* separators = given[2]; separators != nullptr && !separators->is(Kind::kNone)) {
    const std::vector<Value> two = iterate(run.account(), *separators);
    if (two.size() != 2 || !two[0].is_text() || !two[1].is_text()) fail("tojson: separators are two texts");
    style.item_separator = std::string(two[0].as_text());
    style.key_separator = std::string(two[1].as_text());
  }
  return run.text(to_json(run.account(), value, style));
}

constexpr std::array<std::pair<Text, Function>, 47> kFilters = {{
    {"abs", absolute},
    {"attr", attribute},
    {"batch", batch_filter},
    {"capitalize", mapped<capitalize>},
    {"center", center},
    {"count", length_filter},
    {"d", default_value},
    {"default", default_value},
    {"dictsort", dictsort_filter},
    {"e", escape},
    {"escape", escape},
    {"first", first_filter},
    {"float", to_real},
    {"forceescape", force_escape},
    {"format", format},
    {"groupby", groupby_filter},
    {"indent", indent},
    {"int", to_integer},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"length", length_filter},
    {"list", list_filter},
    {"lower", mapped<lower>},
    {"map", map_filter},
    {"max", max_filter},
    {"min", min_filter},
    {"reject", reject_filter},
    {"rejectattr", rejectattr_filter},
    {"replace", replace_filter},
    {"reverse", reverse_filter},
    {"round", round},
    {"safe", safe},
    {"select", select_filter},
    {"selectattr", selectattr_filter},
    {"slice", slice_filter},
    {"sort", sort_filter},
    {"string", string},
    {"sum", sum_filter},
    {"title", mapped<jinja_title>},
    {"tojson", json},
    {"trim", trim},
    {"truncate", truncate},
    {"unique", unique_filter},
    {"upper", mapped<upper>},
    {"wordcount", word_count},
}};

}  // namespace

Function find_filter(Text name) {
  for (const auto& [known, function] : kFilters)
    if (known == name && !name.empty()) return function;
  return nullptr;
}

}  // namespace snug::jinja
