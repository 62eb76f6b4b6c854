#include "formats/chat_template/python_text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace snug::jinja {
namespace {

utf8proc_category_t category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

bool is_cased(char32_t code) {
  const utf8proc_category_t c = category(code);
  return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

// Letters whose capitals are several characters and no decomposition tells them (SpecialCasing.txt).
struct LongUpper {
  char32_t code;
  std::u32string_view upper, title;
};
constexpr std::array<LongUpper, 13> kLongUpper = {{
    {0xDF, U"SS", U"Ss"},
    {0x149, U"\u02BCN", U"\u02BCN"},
    {0x390, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x3B0, U"\u03A5\u0308\u0301", U"\u03A5\u0308\u0301"},
    {0x587, U"\u0535\u0552", U"\u0535\u0582"},
    {0x1E9A, U"A\u02BE", U"A\u02BE"},
    {0xFB00, U"FF", U"Ff"},
    {0xFB01, U"FI", U"Fi"},
    {0xFB02, U"FL", U"Fl"},
    {0xFB03, U"FFI", U"Ffi"},
    {0xFB04, U"FFL", U"Ffl"},
    {0xFB05, U"ST", U"St"},
    {0xFB06, U"ST", U"St"},
}};

// Capitals of one letter, for words that have capitals only or first.
void append_capitals(std::string& out, char32_t code, bool all) {
  for (const LongUpper& entry : kLongUpper)
    if (entry.code == code) {
      for (const char32_t c : all ? entry.upper : entry.title) append_character(out, c);
      return;
    }
  const auto letter = static_cast<utf8proc_int32_t>(code);
  const auto one = static_cast<char32_t>(all ? utf8proc_toupper(letter) : utf8proc_totitle(letter));
  const bool has_capitals = is_cased(code) && category(code) != UTF8PROC_CATEGORY_LU;
  if (!has_capitals || (one != code && !(all && category(one) == UTF8PROC_CATEGORY_LT)))
    return append_character(out, one);
  // ẖ, ᾀ: the letter's parts have capitals, and are put together again as far as that goes.
  std::array<utf8proc_int32_t, 16> parts;
  int last_class = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(letter, parts.data(), parts.size(), UTF8PROC_DECOMPOSE, &last_class);
  if (count < 2 || count > static_cast<utf8proc_ssize_t>(parts.size())) return append_character(out, one);
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    if (all || i == 0) parts[static_cast<size_t>(i)] = utf8proc_toupper(parts[static_cast<size_t>(i)]);
  const utf8proc_ssize_t composed = utf8proc_normalize_utf32(
      parts.data(), count, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  for (utf8proc_ssize_t i = 0; i < composed; ++i)
    append_character(out, static_cast<char32_t>(parts[static_cast<size_t>(i)]));
}

void append_upper(std::string& out, char32_t code) { append_capitals(out, code, true); }
void append_title(std::string& out, char32_t code) { append_capitals(out, code, false); }

bool is_case_ignorable(char32_t code) {
  const utf8proc_category_t c = category(code);
  return code == '\'' || code == '.' || code == ':' || code == 0xB7 || code == 0x2019 ||
         c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
         c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK;
}

// Σ at the end of a word is ς.
bool is_final_sigma(std::string_view text, size_t offset, size_t end) {
  size_t at = offset;
  while (at > 0) {
    const Character before = character_before(text, at);
    if (!is_case_ignorable(before.code)) {
      if (!is_cased(before.code)) return false;
      break;
    }
    at -= before.bytes;
  }
  if (at == 0) return false;
  for (at = end; at < text.size();) {
    const Character after = character_at(text, at);
    if (!is_case_ignorable(after.code)) return !is_cased(after.code);
    at += after.bytes;
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, size_t offset, const Character& character) {
  if (character.code == 0x130) {
    out += "i\u0307";
  } else if (character.code == 0x3A3) {
    append_character(out, is_final_sigma(text, offset, offset + character.bytes) ? 0x3C2 : 0x3C3);
  } else {
    append_character(out,
                     static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character.code))));
  }
}

template <typename Visit>
void each(std::string_view text, const Visit& visit) {
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    visit(at, c);
    at += c.bytes;
  }
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

Character character_at(std::string_view text, size_t offset) {
  const auto lead = static_cast<unsigned char>(text[offset]);
  if (lead < 0x80) return {lead, 1};
  utf8proc_int32_t code = -1;
  const utf8proc_ssize_t bytes =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + offset,
                       static_cast<utf8proc_ssize_t>(text.size() - offset), &code);
  if (bytes <= 0) return {U'\uFFFD', 1};
  return {static_cast<char32_t>(code), static_cast<size_t>(bytes)};
}

Character character_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  const Character c = character_at(text, begin);
  return begin + c.bytes == end ? c : Character{U'\uFFFD', 1};
}

void append_character(std::string& text, char32_t code) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const utf8proc_ssize_t count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(count));
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  each(text, [&](size_t, const Character&) { ++count; });
  return count;
}

size_t character_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += character_at(text, at).bytes;
  return at;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_printable(char32_t code) {
  if (code == ' ') return true;
  switch (category(code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

std::string_view strip(std::string_view text, std::optional<std::string_view> characters, bool left,
                       bool right) {
  std::u32string set;
  if (characters) each(*characters, [&](size_t, const Character& c) { set += c.code; });
  std::sort(set.begin(), set.end());
  const auto taken = [&](char32_t code) {
    return characters ? std::binary_search(set.begin(), set.end(), code) : is_space(code);
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const Character c = character_at(text, begin);
    if (!taken(c.code)) break;
    begin += c.bytes;
  }
  while (right && begin < end) {
    const Character c = character_before(text, end);
    if (!taken(c.code)) break;
    end -= c.bytes;
  }
  return text.substr(begin, end - begin);
}

std::string upper(std::string_view text) {
  std::string out;
  each(text, [&](size_t, const Character& c) { append_upper(out, c.code); });
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  each(text, [&](size_t at, const Character& c) { append_lower(out, text, at, c); });
  return out;
}

std::string casefold(std::string_view text) {
  std::string out;
  each(text, [&](size_t, const Character& c) {
    std::array<utf8proc_int32_t, 8> folded;
    int last_class = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(c.code), folded.data(), folded.size(), UTF8PROC_CASEFOLD, &last_class);
    for (utf8proc_ssize_t i = 0; i < count; ++i)
      append_character(out, static_cast<char32_t>(folded[static_cast<size_t>(i)]));
  });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  each(text, [&](size_t at, const Character& c) {
    if (at == 0)
      append_title(out, c.code);
    else
      append_lower(out, text, at, c);
  });
  return out;
}

std::string swapcase(std::string_view text) {
  std::string out;
  each(text, [&](size_t at, const Character& c) {
    if (category(c.code) == UTF8PROC_CATEGORY_LU)
      append_lower(out, text, at, c);
    else if (category(c.code) == UTF8PROC_CATEGORY_LT)
      append_character(out, c.code);
    else
      append_upper(out, c.code);
  });
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  each(text, [&](size_t at, const Character& c) {
    if (inside)
      append_lower(out, text, at, c);
    else
      append_title(out, c.code);
    inside = is_cased(c.code);
  });
  return out;
}

std::string jinja_title(std::string_view text) {
  std::string out;
  size_t word = 0;
  const auto end_word = [&](size_t end) {
    if (end == word) return;
    const Character first = character_at(text, word);
    append_upper(out, first.code);
    out += lower(text.substr(word + first.bytes, end - word - first.bytes));
  };
  each(text, [&](size_t at, const Character& c) {
    if (c.code != '-' && c.code != '(' && c.code != '{' && c.code != '[' && c.code != '<' &&
        !is_space(c.code))
      return;
    end_word(at);
    append_character(out, c.code);
    word = at + c.bytes;
  });
  end_word(text.size());
  return out;
}

bool belongs(std::string_view text, TextClass what) {
  bool all = true, some = false, inside = false;
  each(text, [&](size_t, const Character& character) {
    const char32_t code = character.code;
    const utf8proc_category_t c = category(code);
    const bool letter = c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
                        c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_LO;
    switch (what) {
      case TextClass::kAlpha:
        all &= letter;
        some = true;
        break;
      case TextClass::kAlnum:
        all &= letter || c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NO || c == UTF8PROC_CATEGORY_NL;
        some = true;
        break;
      case TextClass::kDecimal:
        all &= c == UTF8PROC_CATEGORY_ND;
        some = true;
        break;
      case TextClass::kSpace:
        all &= is_space(code);
        some = true;
        break;
      case TextClass::kLower:
        all &= c != UTF8PROC_CATEGORY_LU && c != UTF8PROC_CATEGORY_LT;
        some |= c == UTF8PROC_CATEGORY_LL;
        break;
      case TextClass::kUpper:
        all &= c != UTF8PROC_CATEGORY_LL && c != UTF8PROC_CATEGORY_LT;
        some |= c == UTF8PROC_CATEGORY_LU;
        break;
      case TextClass::kTitle:
        if (c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LT) {
          all &= !inside;
          inside = some = true;
        } else if (c == UTF8PROC_CATEGORY_LL) {
          all &= inside;
          inside = some = true;
        } else {
          inside = false;
        }
        break;
      case TextClass::kAscii:
        all &= code < 0x80;
        some = true;
        break;
      case TextClass::kPrintable:
        all &= is_printable(code);
        some = true;
        break;
    }
  });
  return all && some;
}

std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator,
                                    int64_t most, bool from_right) {
  std::vector<std::string_view> parts;
  const auto may_cut = [&] { return most < 0 || static_cast<int64_t>(parts.size()) < most; };
  if (separator && !from_right) {
    size_t begin = 0;
    while (may_cut()) {
      const size_t at = text.find(*separator, begin);
      if (at == std::string_view::npos) break;
      parts.push_back(text.substr(begin, at - begin));
      begin = at + separator->size();
    }
    parts.push_back(text.substr(begin));
  } else if (separator) {
    size_t end = text.size();
    while (may_cut() && end >= separator->size()) {
      const size_t at = text.rfind(*separator, end - separator->size());
      if (at == std::string_view::npos) break;
      parts.push_back(text.substr(at + separator->size(), end - at - separator->size()));
      end = at;
    }
    parts.push_back(text.substr(0, end));
    std::reverse(parts.begin(), parts.end());
  } else if (!from_right) {
    std::string_view rest = strip(text, std::nullopt, true, false);
    while (!rest.empty()) {
      if (!may_cut()) {
        parts.push_back(strip(rest, std::nullopt, true, false));
        break;
      }
      size_t end = 0;
      while (end < rest.size()) {
        const Character c = character_at(rest, end);
        if (is_space(c.code)) break;
        end += c.bytes;
      }
      parts.push_back(rest.substr(0, end));
      rest = strip(rest.substr(end), std::nullopt, true, false);
    }
  } else {
    std::string_view rest = strip(text, std::nullopt, false, true);
    while (!rest.empty()) {
      if (!may_cut()) {
        parts.push_back(rest);
        break;
      }
      size_t begin = rest.size();
      while (begin > 0) {
        const Character c = character_before(rest, begin);
        if (is_space(c.code)) break;
        begin -= c.bytes;
      }
      parts.push_back(rest.substr(begin));
      rest = strip(rest.substr(0, begin), std::nullopt, false, true);
    }
    std::reverse(parts.begin(), parts.end());
  }
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    size_t next = at + c.bytes;
    if (is_line_end(c.code)) {
      if (c.code == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t most) {
  std::string out;
  if (from.empty()) {
    // Before every character and at the end.
    each(text, [&](size_t, const Character& c) {
      if (most != 0) {
        out += to;
        --most;
      }
      append_character(out, c.code);
    });
    if (most != 0) out += to;
    return out;
  }
  size_t begin = 0;
  for (; most != 0; --most) {
    const size_t at = text.find(from, begin);
    if (at == std::string_view::npos) break;
    out.append(text.substr(begin, at - begin)).append(to);
    begin = at + from.size();
  }
  return out.append(text.substr(begin));
}

std::string repr(std::string_view text) {
  const char quote =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  each(text, [&](size_t, const Character& c) {
    const auto code = static_cast<uint32_t>(c.code);
    if (c.code == static_cast<char32_t>(quote) || c.code == '\\') {
      out += '\\';
      out += static_cast<char>(c.code);
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code == '\r') {
      out += "\\r";
    } else if (c.code == '\t') {
      out += "\\t";
    } else if (is_printable(c.code)) {
      append_character(out, c.code);
    } else if (code < 0x100) {
      out += fmt::format("\\x{:02x}", code);
    } else if (code < 0x10000) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      out += fmt::format("\\U{:08x}", code);
    }
  });
  return out += quote;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The shortest digits that read back as the same number, laid out as repr does: an exponent below 1e-4 and from 1e16 on.
  std::array<char, 64> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer.data(), static_cast<size_t>(end - buffer.data()));
  const size_t e = scientific.find('e');
  int exponent = 0;
  const bool plus = scientific[e + 1] == '+';
  std::from_chars(scientific.data() + e + (plus ? 2 : 1), scientific.data() + scientific.size(), exponent);
  std::string digits, sign;
  for (const char c : scientific.substr(0, e))
    if (c >= '0' && c <= '9')
      digits += c;
    else if (c == '-')
      sign = "-";
  if (exponent < -4 || exponent >= 16) {
    std::string out = sign + digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace snug::jinja
