#include "formats/chat_template/operations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "formats/chat_template/python_text.h"

namespace snug::jinja {
namespace {

std::string_view sign_of(ExprKind op) {
  switch (op) {
    case ExprKind::kAdd:
      return "+";
    case ExprKind::kSubtract:
      return "-";
    case ExprKind::kMultiply:
      return "*";
    case ExprKind::kDivide:
      return "/";
    case ExprKind::kFloorDivide:
      return "//";
    case ExprKind::kModulo:
      return "%";
    default:
      return "**";
  }
}

[[noreturn]] void fail_large() { fail("an integer becomes larger than 64 bits"); }

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (b == -1) {
    if (a == std::numeric_limits<int64_t>::min()) fail_large();
    return -a;
  }
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  for (int64_t square = base; exponent > 0;) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, square, &result)) fail_large();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(square, square, &square)) fail_large();
  }
  return Value::integer(result);
}

Value integer_arithmetic(ExprKind op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case ExprKind::kAdd:
      if (__builtin_add_overflow(a, b, &result)) fail_large();
      return Value::integer(result);
    case ExprKind::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) fail_large();
      return Value::integer(result);
    case ExprKind::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) fail_large();
      return Value::integer(result);
    case ExprKind::kDivide:
      if (b == 0) fail("division by zero");
      // Rounded once, as Python does: a long double holds both operands.
      return Value::real(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case ExprKind::kFloorDivide:
      return Value::integer(floor_divide(a, b));
    case ExprKind::kModulo:
      if (b == -1) return Value::integer(0);
      return Value::integer(a - floor_divide(a, b) * b);
    default:
      return integer_power(a, b);
  }
}

Value real_arithmetic(ExprKind op, double a, double b) {
  switch (op) {
    case ExprKind::kAdd:
      return Value::real(a + b);
    case ExprKind::kSubtract:
      return Value::real(a - b);
    case ExprKind::kMultiply:
      return Value::real(a * b);
    case ExprKind::kDivide:
      if (b == 0) fail("float division by zero");
      return Value::real(a / b);
    case ExprKind::kFloorDivide:
    case ExprKind::kModulo: {
      if (b == 0) fail("float floor division by zero");
      double modulo = std::fmod(a, b);
      double quotient = (a - modulo) / b;
      if (modulo != 0) {
        if ((b < 0) != (modulo < 0)) {
          modulo += b;
          quotient -= 1;
        }
      } else {
        modulo = std::copysign(0.0, b);
      }
      if (op == ExprKind::kModulo) return Value::real(modulo);
      if (quotient == 0) return Value::real(std::copysign(0.0, a / b));
      const double floor = std::floor(quotient);
      return Value::real(quotient - floor > 0.5 ? floor + 1 : floor);
    }
    default:
      if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
      if (a < 0 && std::floor(b) != b && std::isfinite(a) && std::isfinite(b))
        fail("a negative number raised to a fraction is complex");
      return Value::real(std::pow(a, b));
  }
}

Value repeat(Account& account, const Value& what, int64_t times) {
  const size_t count = times > 0 ? static_cast<size_t>(times) : 0;
  const auto room = [&](size_t one) {
    if (one != 0 && count > std::numeric_limits<size_t>::max() / 64 / one)
      account.require_room(std::numeric_limits<size_t>::max());
    account.require_room(one * count);
    account.scan(one * count);
  };
  if (what.is_text()) {
    const std::string_view text = what.as_text();
    room(text.size());
    std::string out;
    out.reserve(text.size() * count);
    for (size_t i = 0; i < count && !text.empty(); ++i) out += text;
    return Value::text(account, std::move(out), what.is_safe());
  }
  const std::vector<Value>& items = what.as_list().items();
  room(items.size() * sizeof(Value));
  std::vector<Value> out;
  out.reserve(items.size() * count);
  for (size_t i = 0; i < count && !items.empty(); ++i) out.insert(out.end(), items.begin(), items.end());
  return what.is(Kind::kList) ? Value::list(account, std::move(out)) : Value::tuple(account, std::move(out));
}

Value concatenate(Account& account, const Value& a, const Value& b) {
  if (a.is_text()) {
    const bool is_safe = a.is_safe() || b.is_safe();
    const Value left = is_safe ? escape_html(account, a) : a, right = is_safe ? escape_html(account, b) : b;
    account.require_room(left.as_text().size() + right.as_text().size());
    std::string out;
    out.reserve(left.as_text().size() + right.as_text().size());
    out.append(left.as_text()).append(right.as_text());
    return Value::text(account, std::move(out), is_safe);
  }
  const std::vector<Value>&x = a.as_list().items(), &y = b.as_list().items();
  account.require_room((x.size() + y.size()) * sizeof(Value));
  std::vector<Value> out;
  out.reserve(x.size() + y.size());
  out.insert(out.end(), x.begin(), x.end());
  out.insert(out.end(), y.begin(), y.end());
  return a.is(Kind::kList) ? Value::list(account, std::move(out)) : Value::tuple(account, std::move(out));
}

// A bound of a slice: an integer, or none.
std::optional<int64_t> bound(const Value* value) {
  if (value == nullptr || value->is(Kind::kNone)) return std::nullopt;
  if (value->is_undefined()) value->fail_undefined();
  if (!value->is_integer()) fail("slice indices must be integers or none, not {}", type_name(*value));
  return value->as_integer();
}

// The items that begin:end:step means among `size`: `count` from `first` on.
struct Steps {
  int64_t first = 0, count = 0, step = 1;
};
Steps steps_of(int64_t size, const Value* begin, const Value* end, const Value* step_value) {
  const int64_t step = bound(step_value).value_or(1);
  if (step == 0) fail("slice step cannot be zero");
  const auto place = [&](std::optional<int64_t> given, int64_t otherwise) {
    if (!given) return otherwise;
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    return *given < 0 ? std::max(*given < -size ? low : *given + size, low) : std::min(*given, high);
  };
  const int64_t first = place(bound(begin), step > 0 ? 0 : size - 1);
  const int64_t last = place(bound(end), step > 0 ? size : -1);
  Steps steps{.first = first, .count = 0, .step = step};
  if (step > 0 && first < last) steps.count = 1 + (last - first - 1) / step;
  if (step < 0 && first > last)
    steps.count =
        1 + (first - last - 1) /
                (step == std::numeric_limits<int64_t>::min() ? std::numeric_limits<int64_t>::max() : -step);
  return steps;
}

Value slice_text(Account& account, const Value& object, const Steps& steps) {
  const std::string_view text = object.as_text();
  if (steps.count == 0) return object.part(text.substr(0, 0));
  if (steps.step == 1) {
    const size_t begin = character_offset(text, static_cast<size_t>(steps.first));
    const std::string_view rest = text.substr(begin);
    return object.part(rest.substr(0, character_offset(rest, static_cast<size_t>(steps.count))));
  }
  account.require_room(5 * text.size());
  std::vector<uint32_t> offsets;  // where the characters begin
  for (size_t at = 0; at < text.size(); at += character_at(text, at).bytes)
    offsets.push_back(static_cast<uint32_t>(at));
  std::string out;
  for (int64_t i = 0; i < steps.count; ++i) {
    const size_t at = offsets[static_cast<size_t>(steps.first + i * steps.step)];
    out += text.substr(at, character_at(text, at).bytes);
  }
  return Value::text(account, std::move(out), object.is_safe());
}

// Flags, width and precision of a conversion in "… %-5.2f".
struct Conversion {
  bool left = false, zero = false, plus = false, space = false;
  size_t width = 0;
  int precision = -1;
  char kind = 's';
};

std::string pad(std::string text, const Conversion& how, bool is_number) {
  const size_t length = count_characters(text);
  if (length >= how.width) return text;
  const size_t missing = how.width - length;
  if (how.left) return text + std::string(missing, ' ');
  if (how.zero && is_number) {
    const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    return text.substr(0, sign) + std::string(missing, '0') + text.substr(sign);
  }
  return std::string(missing, ' ') + text;
}

std::string converted(Account& account, const Conversion& how, const Value& value) {
  const auto signed_text = [&](std::string text) {
    if (!text.starts_with('-') && how.plus)
      text.insert(0, "+");
    else if (!text.starts_with('-') && how.space)
      text.insert(0, " ");
    return pad(std::move(text), how, true);
  };
  switch (how.kind) {
    case 's':
    case 'r': {
      std::string text = how.kind == 's' ? to_text(account, value) : to_repr(account, value);
      if (how.precision >= 0) text.resize(character_offset(text, static_cast<size_t>(how.precision)));
      return pad(std::move(text), how, false);
    }
    case 'd':
    case 'i':
    case 'u':
      if (!value.is_number())
        fail("%{} format: a real number is required, not {}", how.kind, type_name(value));
      if (!value.is_integer() && !(std::abs(value.as_real()) < 9e18)) fail_large();
      return signed_text(
          fmt::format("{}", value.is_integer() ? value.as_integer() : static_cast<int64_t>(value.as_real())));
    case 'x':
      if (!value.is_integer()) fail("%x format: an integer is required, not {}", type_name(value));
      return signed_text(fmt::format("{:x}", value.as_integer()));
    case 'f':
    case 'e':
    case 'g':
      if (!value.is_number()) fail("must be real number, not {}", type_name(value));
      if (how.kind == 'f')
        return signed_text(fmt::format("{:.{}f}", value.as_real(), how.precision < 0 ? 6 : how.precision));
      if (how.kind == 'e')
        return signed_text(fmt::format("{:.{}e}", value.as_real(), how.precision < 0 ? 6 : how.precision));
      return signed_text(fmt::format("{:.{}g}", value.as_real(), how.precision < 0 ? 6 : how.precision));
    default:
      fail("found %{} in a format; expected one of %s %r %d %i %x %f %e %g %%", how.kind);
  }
}

}  // namespace

Value arithmetic(Account& account, ExprKind op, const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return integer_arithmetic(op, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return real_arithmetic(op, a.as_real(), b.as_real());
  if (a.is_undefined()) a.fail_undefined();
  if (op == ExprKind::kModulo && a.is_text()) {
    if (a.is_safe()) fail("% of a text marked safe is not supported");
    return format_percent(account, a.as_text(), b);
  }
  if (b.is_undefined()) b.fail_undefined();
  if (op == ExprKind::kAdd && ((a.is_text() && b.is_text()) || (a.is_sequence() && a.kind() == b.kind())))
    return concatenate(account, a, b);
  if (op == ExprKind::kMultiply && (a.is_text() || a.is_sequence()) && b.is_integer())
    return repeat(account, a, b.as_integer());
  if (op == ExprKind::kMultiply && (b.is_text() || b.is_sequence()) && a.is_integer())
    return repeat(account, b, a.as_integer());
  fail("unsupported operand types for {}: '{}' and '{}'", sign_of(op), type_name(a), type_name(b));
}

Value negate(const Value& value) {
  if (value.is_undefined()) value.fail_undefined();
  if (value.is_integer()) {
    if (value.as_integer() == std::numeric_limits<int64_t>::min()) fail_large();
    return Value::integer(-value.as_integer());
  }
  if (value.is(Kind::kReal)) return Value::real(-value.as_real());
  fail("bad operand type for unary -: '{}'", type_name(value));
}

Value unary_plus(const Value& value) {
  if (value.is_undefined()) value.fail_undefined();
  if (value.is_integer()) return Value::integer(value.as_integer());
  if (value.is(Kind::kReal)) return value;
  fail("bad operand type for unary +: '{}'", type_name(value));
}

bool compare(Account& account, CompareKind op, const Value& a, const Value& b) {
  switch (op) {
    case CompareKind::kEqual:
      return equal(account, a, b);
    case CompareKind::kNotEqual:
      return !equal(account, a, b);
    case CompareKind::kLess:
      return less(account, a, b, "<");
    case CompareKind::kGreater:
      return less(account, b, a, ">");
    case CompareKind::kLessEqual:
      return less(account, a, b, "<=") || equal(account, a, b);
    case CompareKind::kGreaterEqual:
      return less(account, b, a, ">=") || equal(account, a, b);
    case CompareKind::kIn:
      return contains(account, b, a);
    case CompareKind::kNotIn:
      return !contains(account, b, a);
  }
  return false;
}

Value slice(Account& account, const Value& object, const Value* begin, const Value* end, const Value* step) {
  if (object.is_undefined()) object.fail_undefined();
  if (object.is_text()) {
    account.scan(object.as_text().size());
    return slice_text(account, object, steps_of(length(account, object), begin, end, step));
  }
  if (object.is_sequence()) {
    const std::vector<Value>& items = object.as_list().items();
    const Steps steps = steps_of(static_cast<int64_t>(items.size()), begin, end, step);
    account.require_room(static_cast<size_t>(steps.count) * sizeof(Value));
    std::vector<Value> out;
    out.reserve(static_cast<size_t>(steps.count));
    for (int64_t i = 0; i < steps.count; ++i)
      out.push_back(items[static_cast<size_t>(steps.first + i * steps.step)]);
    return object.is(Kind::kList) ? Value::list(account, std::move(out))
                                  : Value::tuple(account, std::move(out));
  }
  if (object.is(Kind::kRange)) {
    const auto& range = static_cast<const Range&>(*object.object());
    const Steps steps = steps_of(range.size, begin, end, step);
    const int64_t first = range.first + steps.first * range.step, by = range.step * steps.step;
    return Value::object(Kind::kRange, make<Range>(account, first, first + steps.count * by, by));
  }
  // environment.getitem: what cannot be cut is undefined.
  return Value::undefined("slice");
}

bool find_item(Account& account, const Value& object, const Value& key, Value& found) {
  if (object.is_undefined()) object.fail_undefined();
  if (object.is(Kind::kDict)) {
    // A key that cannot be one is a TypeError in Python, which getitem takes for a missing item.
    if (key.is(Kind::kList) || key.is(Kind::kDict) || key.is(Kind::kView)) return false;
    const Value* value = object.as_dict().find(key);
    if (value != nullptr) found = *value;
    return value != nullptr;
  }
  if (!key.is_integer()) return false;
  int64_t index = key.as_integer();
  if (object.is_text()) {
    const std::string_view text = object.as_text();
    if (index < 0) {
      // From the end, without counting all.
      size_t end = text.size();
      for (; index < -1 && end > 0; ++index) end -= character_before(text, end).bytes;
      if (end == 0) return false;
      account.scan(text.size() - end);
      found = object.part(
          text.substr(end - character_before(text, end).bytes, character_before(text, end).bytes));
      return true;
    }
    const size_t at = character_offset(text, static_cast<size_t>(index));
    account.scan(at);
    if (at >= text.size()) return false;
    found = object.part(text.substr(at, character_at(text, at).bytes));
    return true;
  }
  if (object.is_sequence()) {
    const std::vector<Value>& items = object.as_list().items();
    const auto size = static_cast<int64_t>(items.size());
    if (index < 0) index += size;
    if (index < 0 || index >= size) return false;
    found = items[static_cast<size_t>(index)];
    return true;
  }
  if (object.is(Kind::kRange)) {
    const auto& range = static_cast<const Range&>(*object.object());
    if (index < 0) index += range.size;
    if (index < 0 || index >= range.size) return false;
    found = Value::integer(range.first + index * range.step);
    return true;
  }
  return false;
}

Value format_percent(Account& account, std::string_view format, const Value& values) {
  std::string out;
  size_t used = 0;
  const bool is_tuple = values.is(Kind::kTuple);
  const auto next = [&]() -> const Value& {
    const size_t given = is_tuple ? values.as_list().items().size() : 1;
    if (used == given) fail("not enough arguments for format string");
    ++used;
    return is_tuple ? values.as_list().items()[used - 1] : values;
  };
  const auto number = [&](size_t& at, size_t most) {
    size_t value = 0;
    for (; at < format.size() && format[at] >= '0' && format[at] <= '9'; ++at) {
      value = value * 10 + static_cast<size_t>(format[at] - '0');
      if (value > most) fail("a format asks for {} characters and more", value);
    }
    return value;
  };
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      out += format[at];
      continue;
    }
    if (++at == format.size()) fail("incomplete format");
    Conversion how;
    if (format[at] == '(') {
      const size_t end = format.find(')', at);
      if (end == std::string_view::npos || !values.is(Kind::kDict)) fail("format requires a mapping");
      const Value* item = values.as_dict().find(format.substr(at + 1, end - at - 1));
      if (item == nullptr) fail("format: no key {}", repr(format.substr(at + 1, end - at - 1)));
      at = end + 1;
      if (at == format.size() || (format[at] != 's' && format[at] != 'd'))
        fail("found %(name){}; expected %(name)s or %(name)d",
             at < format.size() ? format.substr(at, 1) : "");
      how.kind = format[at];
      out += converted(account, how, *item);
      used = 1;
      continue;
    }
    for (bool more = true; more && at < format.size();) {
      switch (format[at]) {
        case '-':
          how.left = true;
          ++at;
          break;
        case '0':
          how.zero = true;
          ++at;
          break;
        case '+':
          how.plus = true;
          ++at;
          break;
        case ' ':
          how.space = true;
          ++at;
          break;
        default:
          more = false;
      }
    }
    how.width = number(at, 1000);
    if (at < format.size() && format[at] == '.') how.precision = static_cast<int>(number(++at, 300));
    if (at == format.size()) fail("incomplete format");
    how.kind = format[at];
    if (how.kind == '%') {
      out += '%';
      continue;
    }
    out += converted(account, how, next());
    account.scan(out.size());
    account.require_room(out.size());
  }
  if (is_tuple ? used < values.as_list().items().size()
               : used == 0 && !values.is(Kind::kDict) && !values.is(Kind::kList))
    fail("not all arguments converted during string formatting");
  return Value::text(account, std::move(out));
}

Value escape_html(Account& account, const Value& value) {
  if (value.is_safe()) return value;
  const Value text = as_text(account, value);
  account.require_room(text.as_text().size() * 5);
  std::string out;
  for (const char c : text.as_text()) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  return Value::text(account, std::move(out), true);
}

}  // namespace snug::jinja
