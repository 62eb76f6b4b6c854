#include "formats/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "formats/tokenizer/code_points.h"
#include "formats/tokenizer/unicode_classes.h"

namespace snug {
namespace {

// One past the last code point with a decomposition or a combining class that any normal form looks at;
// beyond it text goes through utf8proc unseen.
constexpr char32_t kTableEnd = 0x30000;
// What decomposes, or is ordered among marks, and was assigned after Unicode 9, whose tables the `tokenizers` library
// uses for normal forms: left alone here as there. Found by comparing each code point's forms with the library's (0.23),
// up to Unicode 14; the last five are Unicode 15's.
struct CodeRange {
  char32_t first, last;
};
constexpr std::array<CodeRange, 46> kAssignedLater = {{
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x10785},
    {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
    {0x16FF0, 0x16FF1}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1F16C, 0x1F16C},
    {0x1FBF0, 0x1FBF9}, {0x10EFD, 0x10EFF}, {0x11F41, 0x11F42}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F},
    {0x1E4EC, 0x1E4EF},
}};

template <size_t n>
bool is_in(const std::array<CodeRange, n>& ranges, char32_t code) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const CodeRange& range) { return code >= range.first && code <= range.last; });
}

bool assigned_later(char32_t code) { return is_in(kAssignedLater, code); }

constexpr char32_t kHangulV = 0x1161, kHangulVEnd = 0x1176, kHangulT = 0x11A8, kHangulTEnd = 0x11C3;

unsigned char byte_at(std::string_view text, size_t at) { return static_cast<unsigned char>(text[at]); }

utf8proc_option_t form_options(NormalForm form) {
  switch (form) {
    case NormalForm::kNFC:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    case NormalForm::kNFD:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    case NormalForm::kNFKC:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case NormalForm::kNFKD:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
  throw_internal("normal form {}", static_cast<int>(form));
}

// For one form: true for every code point below kTableEnd that the form may change or join to what stands
// before it. A character that is false here is never touched and nothing crosses its front edge.
std::vector<bool> unstable_table(NormalForm form) {
  std::vector<bool> table(kTableEnd, false);
  const bool compatible = form == NormalForm::kNFKC || form == NormalForm::kNFKD;
  const auto decompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                        (compatible ? UTF8PROC_COMPAT : 0));
  std::array<utf8proc_int32_t, 32> parts;
  for (char32_t code = 0x80; code < kTableEnd; ++code) {
    const auto signed_code = static_cast<utf8proc_int32_t>(code);
    if (!utf8proc_codepoint_valid(signed_code) || assigned_later(code)) continue;
    if (utf8proc_get_property(signed_code)->combining_class != 0) table[code] = true;
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(signed_code, parts.data(), parts.size(), decompose, &boundary);
    if (count == 1 && parts[0] == signed_code) continue;
    table[code] = true;
    for (utf8proc_ssize_t i = 1; i < std::min<utf8proc_ssize_t>(count, parts.size()); ++i)
      if (const auto part = static_cast<char32_t>(parts[static_cast<size_t>(i)]);
          part >= 0x80 && part < kTableEnd)
        table[part] = true;  // may be the second half of a composition
  }
  for (char32_t code = kHangulV; code < kHangulVEnd; ++code) table[code] = true;
  for (char32_t code = kHangulT; code < kHangulTEnd; ++code) table[code] = true;
  return table;
}

const std::vector<bool>& unstable(NormalForm form) {
  static const std::vector<bool> kNFC = unstable_table(NormalForm::kNFC);
  static const std::vector<bool> kNFKC = unstable_table(NormalForm::kNFKC);
  return form == NormalForm::kNFC || form == NormalForm::kNFD ? kNFC : kNFKC;
}

void append_normalized(NormalForm form, std::string_view text, std::string& out) {
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &made, form_options(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
  if (length == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  require(length >= 0, "utf8proc_map: {}", utf8proc_errmsg(length));
  out.append(reinterpret_cast<const char*>(made), static_cast<size_t>(length));
}

// How many bytes of a well-formed character begin at `at` and whether the character is whole: the longest
// prefix that some well-formed character has (Unicode's "maximal subpart"; at least 1).
struct Subpart {
  size_t length;
  bool whole;
};

Subpart subpart_at(std::string_view text, size_t at) {
  const unsigned char lead = byte_at(text, at);
  if (lead < 0x80) return {1, true};
  size_t need = 0;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) {
    need = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    need = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    need = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, false};
  }
  size_t length = 1;
  while (length < need && at + length < text.size()) {
    const unsigned char next = byte_at(text, at + length);
    if (next < low || next > high) return {length, false};
    low = 0x80;
    high = 0xBF;
    ++length;
  }
  return {length, length == need};
}

struct ByteTable {
  std::array<char32_t, 256> symbols;
  std::array<int16_t, 0x144> bytes;
};

const ByteTable& byte_table() {
  static const ByteTable kTable = [] {
    ByteTable table;
    table.bytes.fill(-1);
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool prints =
          (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
      table.symbols[byte] = prints ? byte : next++;
      table.bytes[table.symbols[byte]] = static_cast<int16_t>(byte);
    }
    return table;
  }();
  return kTable;
}

}  // namespace

CodePoint decode_utf8(std::string_view text, size_t at) {
  const unsigned char lead = byte_at(text, at);
  const auto more = [&](size_t i) { return static_cast<char32_t>(byte_at(text, at + i) & 0x3F); };
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {static_cast<char32_t>(lead & 0x1F) << 6 | more(1), 2};
  if (lead < 0xF0) return {static_cast<char32_t>(lead & 0x0F) << 12 | more(1) << 6 | more(2), 3};
  return {static_cast<char32_t>(lead & 0x07) << 18 | more(1) << 12 | more(2) << 6 | more(3), 4};
}

CodePoint decode_utf8_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (byte_at(text, begin) & 0xC0) == 0x80) --begin;
  return decode_utf8(text, begin);
}

void append_utf8(std::string& text, char32_t code) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | code >> 6);
    add(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    add(0xE0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  } else {
    add(0xF0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3F));
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  }
}

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Subpart part = subpart_at(text, at);
    if (!part.whole) return false;
    at += part.length;
  }
  return true;
}

void repair_utf8(std::string_view text, std::string& out) {
  size_t good = 0;  // first byte not yet appended
  for (size_t at = 0; at < text.size();) {
    const Subpart part = subpart_at(text, at);
    if (!part.whole) {
      out.append(text.substr(good, at - good));
      out += "\xEF\xBF\xBD";
      good = at + part.length;
    }
    at += part.length;
  }
  out.append(text.substr(good));
}

size_t incomplete_utf8_tail(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const size_t at = text.size() - back;
    const unsigned char c = byte_at(text, at);
    if (c < 0x80) return 0;
    if (c < 0xC0) continue;
    const Subpart part = subpart_at(text, at);
    return !part.whole && part.length == back && c >= 0xC2 && c <= 0xF4 ? back : 0;
  }
  return 0;
}

std::string normalize(NormalForm form, std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  const std::vector<bool>& table = unstable(form);
  const auto may_change = [&](char32_t code) { return code >= kTableEnd || table[code]; };
  std::string out;
  out.reserve(text.size());
  size_t copied = 0;    // bytes of `text` that are in `out`
  size_t previous = 0;  // where the character before `at` begins
  for (size_t at = 0; at < text.size();) {
    CodePoint character = decode_utf8(text, at);
    if (!may_change(character.value)) {
      previous = at;
      at += character.length;
      continue;
    }
    // From the stable character before it, with which it may compose, up to the next stable one.
    size_t begin = std::max(previous, copied);
    if (begin < at && assigned_later(decode_utf8(text, begin).value)) begin = at;
    while (at < text.size() && may_change((character = decode_utf8(text, at)).value)) at += character.length;
    out.append(text.substr(copied, begin - copied));
    append_normalized(form, text.substr(begin, at - begin), out);
    copied = previous = at;
  }
  out.append(text.substr(copied));
  return out;
}

bool is_white_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 0x09 && code <= 0x0D);
  static const CodePointTable kTable(rust_class("white space"));
  return kTable.contains(code);
}

bool is_numeric(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  static const CodePointTable kTable(rust_class("numeric"));
  return kTable.contains(code);
}

bool is_punctuation(char32_t code) {
  static const CodePointTable kTable(rust_class("punctuation"));
  return kTable.contains(code);
}

bool is_word_character(char32_t code) {
  static const CodePointTable kTable(rust_class("word"));
  return kTable.contains(code);
}

std::string lowercase_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint character = decode_utf8(text, at);
    at += character.length;
    if (character.value < 0x80)
      out += character.value >= 'A' && character.value <= 'Z' ? static_cast<char>(character.value - 'A' + 'a')
                                                              : static_cast<char>(character.value);
    else if (character.value == 0x130)  // the only character whose lower case is two
      out += "i\xCC\x87";
    else
      append_utf8(out, rust_lowercase(character.value));
  }
  return out;
}

char32_t byte_symbol(uint8_t byte) { return byte_table().symbols[byte]; }

int symbol_byte(char32_t code) {
  const auto& bytes = byte_table().bytes;
  return code < bytes.size() ? bytes[code] : -1;
}

}  // namespace snug
