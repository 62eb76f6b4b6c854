#include "base/json_cursor.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"

namespace snug {
namespace {

constexpr size_t kLongestQuote = 80;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Bytes of the UTF-8 character at `at`; 0 where it is none (Unicode's table 3-7).
size_t character_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const auto continues = [&](size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF)
    return continues(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF) && continues(2) ? 3 : 0;
  if (first >= 0xF0 && first <= 0xF4)
    return continues(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF) && continues(2) &&
                   continues(3)
               ? 4
               : 0;
  return 0;
}

// Bytes from `at` on that are neither a quote, a backslash, a control character nor beyond ASCII.
size_t plain_length(std::string_view text, size_t at) {
  const size_t begin = at;
  constexpr uint64_t kOnes = 0x0101010101010101, kHigh = 0x8080808080808080;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, 8);
    const auto zero_byte = [](uint64_t x) { return (x - kOnes) & ~x; };
    const uint64_t stops = (word | zero_byte(word ^ kOnes * '"') | zero_byte(word ^ kOnes * '\\') |
                            ((word - kOnes * 0x20) & ~word)) &
                           kHigh;
    if (stops != 0) break;
  }
  for (; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c == '"' || c == '\\' || c < 0x20 || c >= 0x80) break;
  }
  return at - begin;
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

void append_utf8(uint32_t code, std::string& text) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    text += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// Throws for a key that an object has twice: O(k log k) for k keys.
void check_keys(const Json::object_t& object, std::string_view place, std::string_view field) {
  std::vector<std::string_view> keys;
  keys.reserve(object.size());
  for (const auto& [key, value] : object) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end())
    throw_user(ExitCode::kBadFile, "{}: {} has the key {} twice in one object", place, field,
               quote_json(Json(std::string(*twice))));
}

}  // namespace

std::string_view JsonCursor::kind_name(Kind kind) {
  static constexpr std::array<std::string_view, 6> kNames = {"null",   "boolean", "number",
                                                             "string", "array",   "object"};
  return kNames[static_cast<size_t>(kind)];
}

void JsonCursor::fail(std::string_view what) const {
  const size_t byte = std::min(at_, text_.size());
  // A few characters of what stands there, as far as they can be printed.
  std::string found(text_.substr(byte, 24));
  const std::string quoted =
      byte == text_.size() ? "the end" : Json(found).dump(-1, ' ', true, Json::error_handler_t::replace);
  throw JsonSyntaxError(
      fmt::format("{}: byte {}: not valid JSON: {}; found {}", place_, byte + 1, what, quoted));
}

void JsonCursor::skip_space() {
  while (at_ < text_.size() && is_json_space(text_[at_])) ++at_;
}

char JsonCursor::look() {
  skip_space();
  if (at_ == text_.size()) fail("a value is missing");
  return text_[at_];
}

void JsonCursor::expect(char character) {
  skip_space();
  if (at_ == text_.size() || text_[at_] != character) fail(fmt::format("expected '{}'", character));
  ++at_;
}

JsonCursor::Kind JsonCursor::peek() {
  const char c = look();
  switch (c) {
    case '{':
      return Kind::kObject;
    case '[':
      return Kind::kArray;
    case '"':
      return Kind::kString;
    case 't':
    case 'f':
      return Kind::kBoolean;
    case 'n':
      return Kind::kNull;
    default:
      if (c == '-' || is_digit(c)) return Kind::kNumber;
      fail("expected a value");
  }
}

void JsonCursor::enter_object(std::string_view field) {
  if (peek() != Kind::kObject) throw_expected(field, "an object");
  ++at_;
  fresh_ = true;
}

void JsonCursor::enter_array(std::string_view field) {
  if (peek() != Kind::kArray) throw_expected(field, "an array");
  ++at_;
  fresh_ = true;
}

bool JsonCursor::next_key(std::string& key) {
  skip_space();
  if (at_ < text_.size() && text_[at_] == '}') {
    ++at_;
    fresh_ = false;
    return false;
  }
  if (!fresh_) expect(',');
  fresh_ = false;
  skip_space();
  if (at_ == text_.size() || text_[at_] != '"') fail("expected a key in quotes");
  key = take_string();
  expect(':');
  return true;
}

bool JsonCursor::next_element() {
  skip_space();
  if (at_ < text_.size() && text_[at_] == ']') {
    ++at_;
    fresh_ = false;
    return false;
  }
  if (!fresh_) expect(',');
  fresh_ = false;
  return true;
}

size_t JsonCursor::count_elements() const {
  const size_t end = std::min(text_.find(']', at_), text_.size());
  const auto commas = std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                 text_.begin() + static_cast<std::ptrdiff_t>(end), ',');
  return std::min(1 + static_cast<size_t>(commas), (end - at_ + 1) / 2);  // each has a character and a comma
}

void JsonCursor::scan_string(bool& escapes) {
  escapes = false;
  for (;;) {
    at_ += plain_length(text_, at_);
    if (at_ == text_.size()) fail("a string does not end");
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') {
      ++at_;
      return;
    }
    if (c < 0x20) fail("a control character within a string; expected an escape such as \\n");
    if (c >= 0x80) {
      const size_t length = character_length(text_, at_);
      if (length == 0) fail(fmt::format("the byte 0x{:02X} is not UTF-8", c));
      at_ += length;
      continue;
    }
    escapes = true;
    const auto hex4 = [&](size_t from) {
      uint32_t code = 0;
      for (size_t i = from; i < from + 4; ++i) {
        const int digit = i < text_.size() ? hex_digit(text_[i]) : -1;
        if (digit < 0) fail("expected four hexadecimal digits behind \\u");
        code = code << 4 | static_cast<uint32_t>(digit);
      }
      return code;
    };
    if (at_ + 1 < text_.size() && text_[at_ + 1] == 'u') {
      const uint32_t code = hex4(at_ + 2);
      if (code >= 0xDC00 && code <= 0xDFFF) fail("the second half of a surrogate pair without the first");
      if (code >= 0xD800 && code <= 0xDBFF) {
        const bool pair = text_.substr(at_ + 6, 2) == "\\u";
        const uint32_t second = pair ? hex4(at_ + 8) : 0;
        if (second < 0xDC00 || second > 0xDFFF) fail("the first half of a surrogate pair without the second");
        at_ += 6;
      }
      at_ += 6;
    } else {
      if (at_ + 1 == text_.size() ||
          std::string_view("\"\\/bfnrt").find(text_[at_ + 1]) == std::string_view::npos)
        fail("an escape that JSON does not have");
      at_ += 2;
    }
  }
}

// Of what scan_string passed.
std::string JsonCursor::unescape(std::string_view raw) const {
  std::string text;
  text.reserve(raw.size());
  const auto hex4 = [&](size_t from) {
    uint32_t code = 0;
    for (size_t i = from; i < from + 4; ++i) code = code << 4 | static_cast<uint32_t>(hex_digit(raw[i]));
    return code;
  };
  for (size_t at = 0; at < raw.size();) {
    const size_t escape = std::min(raw.find('\\', at), raw.size());
    text += raw.substr(at, escape - at);
    if (escape == raw.size()) break;
    at = escape + 2;
    switch (raw[escape + 1]) {
      case 'b':
        text += '\b';
        break;
      case 'f':
        text += '\f';
        break;
      case 'n':
        text += '\n';
        break;
      case 'r':
        text += '\r';
        break;
      case 't':
        text += '\t';
        break;
      case 'u': {
        uint32_t code = hex4(at);
        at += 4;
        if (code >= 0xD800 && code <= 0xDBFF) {
          code = 0x10000 + ((code - 0xD800) << 10) + (hex4(at + 2) - 0xDC00);
          at += 6;
        }
        append_utf8(code, text);
        break;
      }
      default:
        text += raw[escape + 1];
    }
  }
  return text;
}

std::string JsonCursor::take_string() {
  const size_t begin = ++at_;
  bool escapes = false;
  scan_string(escapes);
  const std::string_view raw = text_.substr(begin, at_ - 1 - begin);
  return escapes ? unescape(raw) : std::string(raw);
}

std::string JsonCursor::read_string(std::string_view field) {
  if (peek() != Kind::kString) throw_expected(field, "a string");
  return take_string();
}

std::string_view JsonCursor::scan_number(bool& integer) {
  const size_t begin = at_;
  const auto digits = [&] {
    if (at_ == text_.size() || !is_digit(text_[at_])) fail("expected a digit");
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  };
  integer = true;
  if (text_[at_] == '-') ++at_;
  if (at_ < text_.size() && text_[at_] == '0')
    ++at_;
  else
    digits();
  if (at_ < text_.size() && text_[at_] == '.') {
    integer = false;
    ++at_;
    digits();
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    integer = false;
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    digits();
  }
  return text_.substr(begin, at_ - begin);
}

bool JsonCursor::read_boolean(std::string_view field) {
  if (peek() != Kind::kBoolean) throw_expected(field, "true or false");
  const bool value = text_[at_] == 't';
  scan_word(value ? "true" : "false");
  return value;
}

std::optional<int64_t> JsonCursor::take_integer() {
  if (peek() != Kind::kNumber) return std::nullopt;
  const size_t begin = at_;
  bool integer = false;
  const std::string_view number = scan_number(integer);
  int64_t value = 0;
  if (integer && std::from_chars(number.data(), number.data() + number.size(), value).ec == std::errc())
    return value;
  at_ = begin;
  return std::nullopt;
}

int64_t JsonCursor::read_integer(std::string_view field) {
  const std::optional<int64_t> value = take_integer();
  if (!value) throw_expected(field, "an integer");
  return *value;
}

void JsonCursor::scan_word(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) fail("expected a value");
  at_ += word.size();
}

void JsonCursor::skip_value() {
  std::vector<bool> objects;  // the containers that are open: whether each is an object
  std::string key;
  for (;;) {
    bool ended = true, ignored = false;
    switch (peek()) {
      case Kind::kNull:
        scan_word("null");
        break;
      case Kind::kBoolean:
        scan_word(text_[at_] == 't' ? "true" : "false");
        break;
      case Kind::kNumber:
        scan_number(ignored);
        break;
      case Kind::kString:
        ++at_;
        scan_string(ignored);
        break;
      case Kind::kArray:
      case Kind::kObject:
        objects.push_back(text_[at_] == '{');
        ++at_;
        fresh_ = true;
        ended = false;
        break;
    }
    if (ended) fresh_ = false;
    // To the next value, out of containers that end.
    for (;;) {
      if (objects.empty()) return;
      skip_space();
      const char closing = objects.back() ? '}' : ']';
      if (at_ < text_.size() && text_[at_] == closing) {
        ++at_;
        fresh_ = false;
        objects.pop_back();
        continue;
      }
      if (!fresh_) expect(',');
      fresh_ = false;
      if (objects.back()) {
        skip_space();
        if (at_ == text_.size() || text_[at_] != '"') fail("expected a key in quotes");
        ++at_;
        scan_string(ignored);
        expect(':');
      }
      break;
    }
  }
}

Json JsonCursor::read_scalar() {
  switch (peek()) {
    case Kind::kNull:
      scan_word("null");
      return nullptr;
    case Kind::kBoolean:
      return read_boolean("");
    case Kind::kNumber: {
      const size_t begin = at_;
      bool integer = false;
      const std::string_view number = scan_number(integer);
      const char* last = number.data() + number.size();
      uint64_t natural = 0;
      int64_t negative = 0;
      double real = 0;
      if (integer && std::from_chars(number.data(), last, natural).ec == std::errc()) return natural;
      if (integer && std::from_chars(number.data(), last, negative).ec == std::errc()) return negative;
      if (std::from_chars(number.data(), last, real).ec == std::errc()) return real;
      real = std::strtod(std::string(number).c_str(), nullptr);  // what is too small is nearly zero
      if (std::isinf(real)) {
        at_ = begin;
        fail("a number beyond all doubles");
      }
      return real;
    }
    default:
      return take_string();
  }
}

Json JsonCursor::read_tree(std::string_view field) {
  Json root;
  std::vector<Json*> open;
  std::string key;
  for (;;) {
    if (++tree_values_ > most_tree_values_)
      throw_user(ExitCode::kBadFile, "{}: {} brings it to more than {} values; expected fewer", place_, field,
                 most_tree_values_);
    const Kind kind = peek();
    Json* place = &root;
    if (!open.empty() && open.back()->is_array()) {
      place = &open.back()->get_ref<Json::array_t&>().emplace_back();
    } else if (!open.empty()) {
      // The ordered object's own search would make this quadratic.
      auto& object = open.back()->get_ref<Json::object_t&>();
      object.push_back({std::exchange(key, {}), Json()});
      place = &object.back().second;
    }
    if (kind == Kind::kArray || kind == Kind::kObject) {
      if (static_cast<int>(open.size()) == kDeepestTree)
        throw_user(ExitCode::kBadFile, "{}: {} is nested deeper than {} levels", place_, field, kDeepestTree);
      *place = kind == Kind::kArray ? Json::array() : Json::object();
      // The parent cannot grow while this child is open, so the pointer stays good.
      open.push_back(place);
      ++at_;
      fresh_ = true;
    } else {
      *place = read_scalar();
      fresh_ = false;
    }
    for (;;) {
      if (open.empty()) return root;
      if (open.back()->is_array() ? next_element() : next_key(key)) break;
      if (open.back()->is_object()) check_keys(open.back()->get_ref<const Json::object_t&>(), place_, field);
      open.pop_back();
    }
  }
}

void JsonCursor::finish() {
  skip_space();
  if (at_ != text_.size()) fail("expected nothing more");
}

std::string JsonCursor::quote_value() {
  const Kind kind = peek();
  const size_t begin = at_;
  skip_value();
  std::string text(whole_characters(text_.substr(begin, at_ - begin), kLongestQuote));
  if (at_ - begin > kLongestQuote) text += "…";
  // A message is one line.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return kind == Kind::kNull ? text : fmt::format("{} ({})", text, kind_name(kind));
}

void JsonCursor::throw_expected(std::string_view field, std::string_view expected) {
  const std::string found = quote_value();
  throw_user(ExitCode::kBadFile, "{}: {} is {}; expected {}", place_, field, found, expected);
}

void read_fields(JsonCursor& cursor, std::string_view object, std::initializer_list<JsonField> fields) {
  std::vector<const JsonField*> seen;
  cursor.enter_object(object);
  for (std::string key; cursor.next_key(key);) {
    const auto* field = std::find_if(fields.begin(), fields.end(), [&](const JsonField& known) {
      return !known.name.empty() && known.name == key;
    });
    if (field == fields.end()) {
      cursor.skip_value();
      continue;
    }
    if (std::find(seen.begin(), seen.end(), field) != seen.end())
      throw_user(ExitCode::kBadFile, "{}: {} occurs twice; expected it once", cursor.place(), key);
    seen.push_back(field);
    field->read(field->name);
  }
}

Json parse_tree(std::string_view text, std::string_view place) {
  JsonCursor cursor(text, place);
  Json tree = cursor.read_tree("it");
  cursor.finish();
  return tree;
}

}  // namespace snug
