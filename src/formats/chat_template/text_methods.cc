// The methods of Python's str.
#include <algorithm>
#include <array>
#include <utility>

#include "formats/chat_template/filters.h"
#include "formats/chat_template/operations.h"
#include "formats/chat_template/python_text.h"

namespace snug::jinja {
namespace {

using Text = std::string_view;

template <std::string (*function)(Text)>
Value mapped(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters none("method", arguments, {});
  run.account().scan(text.as_text().size());
  run.account().require_room(text.as_text().size() * 3);
  return run.text(function(text.as_text()));
}

template <TextClass what>
Value is_class(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters none("method", arguments, {});
  run.account().scan(text.as_text().size());
  if (what == TextClass::kAscii || what == TextClass::kPrintable)
    if (text.as_text().empty()) return Value::boolean(true);
  return Value::boolean(belongs(text.as_text(), what));
}

// isdigit and isnumeric differ from isdecimal beyond the decimal digits of all scripts, for signs such as ² and 五.
Value is_digit(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters none("isdigit", arguments, {});
  run.account().scan(text.as_text().size());
  if (!belongs(text.as_text(), TextClass::kAscii) && !belongs(text.as_text(), TextClass::kDecimal) &&
      !text.as_text().empty())
    fail("isdigit() and isnumeric() of other signs than decimal digits are not supported");
  return Value::boolean(belongs(text.as_text(), TextClass::kDecimal));
}

template <bool left, bool right>
Value stripped(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters given("strip", arguments, {"chars"});
  run.account().scan(text.as_text().size());
  return text.part(strip(text.as_text(), given.text(0), left, right));
}

template <bool from_right>
Value split_method(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters given("split", arguments, {"sep", "maxsplit"});
  const auto separator = given.text(0);
  if (separator && separator->empty()) fail("empty separator");
  run.account().scan(text.as_text().size());
  run.account().require_room(text.as_text().size());
  std::vector<Value> parts;
  for (const Text part : split(text.as_text(), separator, given.integer(1, -1), from_right))
    parts.push_back(text.part(part));
  run.account().step(static_cast<int64_t>(parts.size()));
  return Value::list(run.account(), std::move(parts));
}

Value splitlines(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters given("splitlines", arguments, {"keepends"});
  run.account().scan(text.as_text().size());
  std::vector<Value> parts;
  for (const Text part : split_lines(text.as_text(), given.flag(0))) parts.push_back(text.part(part));
  return Value::list(run.account(), std::move(parts));
}

// text[start:end] of startswith, find, count: in bytes.
struct Window {
  Text text;
  size_t offset = 0;
  bool is_valid = true;  // start is not behind the end
};
Window window(Interpreter& run, const Value& text, const Parameters& given) {
  const Text whole = text.as_text();
  run.account().scan(whole.size());
  Window made{.text = whole};
  if (given[1] == nullptr && given[2] == nullptr) return made;
  const auto size = static_cast<int64_t>(count_characters(whole));
  const auto bound = [&](size_t i, int64_t otherwise) {
    const int64_t value =
        given[i] == nullptr || given[i]->is(Kind::kNone) ? otherwise : given.integer(i, otherwise);
    return value < 0 ? std::max<int64_t>(value < -size ? 0 : value + size, 0) : value;
  };
  const int64_t start = bound(1, 0), end = std::min(bound(2, size), size);
  made.is_valid = start <= end;
  if (!made.is_valid) return made;
  made.offset = character_offset(whole, static_cast<size_t>(start));
  made.text = whole.substr(made.offset, character_offset(whole, static_cast<size_t>(end)) - made.offset);
  return made;
}

template <bool at_end>
Value starts_or_ends(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters given(at_end ? "endswith" : "startswith", arguments, {"prefix", "start", "end"});
  const Window in = window(run, text, given);
  const auto fits = [&](const Value& part) {
    if (part.is_undefined()) part.fail_undefined();
    if (!part.is_text())
      fail("{} first arg must be str or a tuple of str, not {}", at_end ? "endswith" : "startswith",
           type_name(part));
    return in.is_valid && (at_end ? in.text.ends_with(part.as_text()) : in.text.starts_with(part.as_text()));
  };
  const Value& wanted = given.at(0);
  if (!wanted.is(Kind::kTuple)) return Value::boolean(fits(wanted));
  const std::vector<Value>& any = wanted.as_list().items();
  return Value::boolean(std::any_of(any.begin(), any.end(), fits));
}

template <bool from_right, bool must_be_there>
Value find_method(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters given("find", arguments, {"sub", "start", "end"});
  const Window in = window(run, text, given);
  given.at(0);
  const Text wanted = given.text(0).value_or("");
  const size_t at = !in.is_valid ? Text::npos : from_right ? in.text.rfind(wanted) : in.text.find(wanted);
  if (at != Text::npos)
    return Value::integer(static_cast<int64_t>(count_characters(text.as_text().substr(0, in.offset + at))));
  if (must_be_there) fail("substring not found");
  return Value::integer(-1);
}

Value count(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters given("count", arguments, {"sub", "start", "end"});
  const Window in = window(run, text, given);
  given.at(0);
  const Text wanted = given.text(0).value_or("");
  if (!in.is_valid) return Value::integer(0);
  if (wanted.empty()) return Value::integer(static_cast<int64_t>(count_characters(in.text)) + 1);
  int64_t found = 0;
  for (size_t at = in.text.find(wanted); at != Text::npos; at = in.text.find(wanted, at + wanted.size()))
    ++found;
  return Value::integer(found);
}

Value join(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters given("join", arguments, {"iterable"});
  std::string out;
  bool first = true;
  for (const Value& item : iterate(run.account(), given.at(0))) {
    if (!item.is_text()) fail("join: expected str instance, {} found", type_name(item));
    if (!std::exchange(first, false)) out += text.as_text();
    run.account().require_room(out.size() + item.as_text().size() + text.as_text().size());
    out += item.as_text();
  }
  return run.text(std::move(out));
}

Value replace_method(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters given("replace", arguments, {"old", "new", "count"});
  given.at(1);
  const Text from = given.text(0).value_or(""), to = given.text(1).value_or("");
  const int64_t most = given.integer(2, -1);
  const size_t places = text.as_text().size() / std::max<size_t>(from.size(), 1) + 1;
  run.account().scan(text.as_text().size());
  if (to.size() > from.size()) {
    // What it becomes at most; counted exactly only where that would be too much.
    size_t growth = places * to.size();
    if (!from.empty() && growth > text.as_text().size()) {
      size_t found = 0;
      for (size_t at = text.as_text().find(from); at != Text::npos;
           at = text.as_text().find(from, at + from.size()))
        ++found;
      growth = found * to.size();
    }
    run.account().require_room(text.as_text().size() + growth);
  }
  return run.text(replace(text.as_text(), from, to, most));
}

template <bool from_right>
Value partition(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters given("partition", arguments, {"sep"});
  given.at(0);
  const Text whole = text.as_text(), separator = given.text(0).value_or("");
  if (separator.empty()) fail("empty separator");
  run.account().scan(whole.size());
  const size_t at = from_right ? whole.rfind(separator) : whole.find(separator);
  if (at == Text::npos) {
    const Value none = text.part(whole.substr(0, 0));
    return Value::tuple(run.account(), from_right ? std::vector<Value>{none, none, text}
                                                  : std::vector<Value>{text, none, none});
  }
  return Value::tuple(run.account(),
                      {text.part(whole.substr(0, at)), text.part(whole.substr(at, separator.size())),
                       text.part(whole.substr(at + separator.size()))});
}

template <bool at_end>
Value remove_affix(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters given("removeprefix", arguments, {"affix"});
  given.at(0);
  run.account().scan(text.as_text().size());
  const Text whole = text.as_text(), affix = given.text(0).value_or("");
  if (at_end) return whole.ends_with(affix) ? text.part(whole.substr(0, whole.size() - affix.size())) : text;
  return whole.starts_with(affix) ? text.part(whole.substr(affix.size())) : text;
}

enum class Side : uint8_t { kLeft, kRight, kCenter };
template <Side side>
Value justify(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters given("just", arguments, {"width", "fillchar"});
  given.at(0);
  const Text fill = given.text(1).value_or(" ");
  if (count_characters(fill) != 1) fail("the fill character must be exactly one character long");
  const auto length = static_cast<int64_t>(count_characters(text.as_text()));
  const int64_t width = given.integer(0, 0), missing = width - length;
  if (missing <= 0) return text;
  run.account().require_room(static_cast<size_t>(missing) * fill.size());
  run.account().scan(static_cast<size_t>(missing) * fill.size());
  const int64_t left = side == Side::kRight  ? missing
                       : side == Side::kLeft ? 0
                                             : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text.as_text();
  for (int64_t i = left; i < missing; ++i) out += fill;
  return run.text(std::move(out));
}

Value zfill(Interpreter& run, const Value& text, const Arguments& arguments) {
  const Parameters given("zfill", arguments, {"width"});
  given.at(0);
  const auto length = static_cast<int64_t>(count_characters(text.as_text()));
  const int64_t missing = given.integer(0, 0) - length;
  if (missing <= 0) return text;
  run.account().require_room(static_cast<size_t>(missing));
  const size_t sign = text.as_text().starts_with('-') || text.as_text().starts_with('+') ? 1 : 0;
  return run.text(std::string(text.as_text().substr(0, sign)) +
                  std::string(static_cast<size_t>(missing), '0') + std::string(text.as_text().substr(sign)));
}

// "{} {0} {name}".format(…), without the mini-language behind a colon.
Value format(Interpreter& run, const Value& text, const Arguments& arguments) {
  std::string out;
  const Text pattern = text.as_text();
  size_t next = 0;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if ((c == '{' || c == '}') && at + 1 < pattern.size() && pattern[at + 1] == c) {
      out += c;
      ++at;
      continue;
    }
    if (c == '}') fail("Single '}}' encountered in format string");
    if (c != '{') {
      out += c;
      continue;
    }
    const size_t end = pattern.find('}', at);
    if (end == Text::npos) fail("expected '}}' before end of string");
    const Text field = pattern.substr(at + 1, end - at - 1);
    const bool is_number =
        std::all_of(field.begin(), field.end(), [](char d) { return d >= '0' && d <= '9'; });
    const bool is_name = std::all_of(field.begin(), field.end(), [](char d) {
      return d == '_' || std::isalnum(static_cast<unsigned char>(d));
    });
    const Value* value = nullptr;
    if (is_number && field.size() < 4) {
      const size_t index = field.empty() ? next++ : static_cast<size_t>(std::stoi(std::string(field)));
      if (index < arguments.positional.size()) value = &arguments.positional[index];
    } else if (is_name) {
      for (const auto& [name, given] : arguments.named)
        if (name == field) value = &given;
    } else {
      fail("found '{{{}}}' in a format; expected {{}}, {{0}} or {{name}}", field);
    }
    if (value == nullptr) fail("format: nothing was given for '{{{}}}'", field);
    out += to_text(run.account(), *value);
    run.account().require_room(out.size());
    at = end;
  }
  return run.text(std::move(out));
}

constexpr std::array<std::pair<Text, TextMethod>, 44> kMethods = {{
    {"capitalize", mapped<capitalize>},
    {"casefold", mapped<casefold>},
    {"center", justify<Side::kCenter>},
    {"count", count},
    {"endswith", starts_or_ends<true>},
    {"find", find_method<false, false>},
    {"format", format},
    {"index", find_method<false, true>},
    {"isalnum", is_class<TextClass::kAlnum>},
    {"isalpha", is_class<TextClass::kAlpha>},
    {"isascii", is_class<TextClass::kAscii>},
    {"isdecimal", is_class<TextClass::kDecimal>},
    {"isdigit", is_digit},
    {"islower", is_class<TextClass::kLower>},
    {"isnumeric", is_digit},
    {"isprintable", is_class<TextClass::kPrintable>},
    {"isspace", is_class<TextClass::kSpace>},
    {"istitle", is_class<TextClass::kTitle>},
    {"isupper", is_class<TextClass::kUpper>},
    {"join", join},
    {"ljust", justify<Side::kLeft>},
    {"lower", mapped<lower>},
    {"lstrip", stripped<true, false>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace_method},
    {"rfind", find_method<true, false>},
    {"rindex", find_method<true, true>},
    {"rjust", justify<Side::kRight>},
    {"rpartition", partition<true>},
    {"rsplit", split_method<true>},
    {"rstrip", stripped<false, true>},
    {"split", split_method<false>},
    {"splitlines", splitlines},
    {"startswith", starts_or_ends<false>},
    {"strip", stripped<true, true>},
    {"swapcase", mapped<swapcase>},
    {"title", mapped<title>},
    {"upper", mapped<upper>},
    {"zfill", zfill},
}};

}  // namespace

TextMethod find_text_method(Text name) {
  for (const auto& [known, method] : kMethods)
    if (known == name && !name.empty()) return method;
  return nullptr;
}

bool is_other_attribute(Kind kind, Text name) {
  static constexpr std::array<Text, 6> kText = {"encode",       "expandtabs", "format_map",
                                                "isidentifier", "maketrans",  "translate"};
  static constexpr std::array<Text, 16> kNumber = {
      "real",      "imag",       "numerator",  "denominator",      "bit_length",
      "bit_count", "hex",        "is_integer", "as_integer_ratio", "conjugate",
      "to_bytes",  "from_bytes", "fromhex"};
  static constexpr std::array<Text, 8> kMacro = {"arguments", "catch_kwargs", "catch_varargs", "caller",
                                                 "explicit_caller"};
  const auto is_one = [&](const auto& names) {
    return !name.empty() && std::find(names.begin(), names.end(), name) != names.end();
  };
  switch (kind) {
    case Kind::kText:
      return is_one(kText);
    case Kind::kBool:
    case Kind::kInteger:
    case Kind::kReal:
      return is_one(kNumber);
    case Kind::kTuple:
      return name == "grouper" || name == "list";
    case Kind::kRange:
      return name == "count" || name == "index";
    case Kind::kView:
      return name == "mapping" || name == "isdisjoint";
    case Kind::kMacro:
      return is_one(kMacro);
    case Kind::kIterator:
      return name == "send" || name == "throw" || name == "close";
    default:
      return false;
  }
}

}  // namespace snug::jinja
