#include "formats/chat_template/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "base/errors.h"
#include "formats/chat_template/python_text.h"

namespace snug::jinja {
namespace {

// \r\n and \r become \n; one newline at the end is dropped.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& file) : source_(source), file_(file) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text();
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw_user(ExitCode::kBadFile, "{}:{}: {}", file_, line_,
               fmt::format(format, std::forward<Args>(args)...));
  }

  Token& add(TokenKind kind, std::string text = {}) {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    return token;
  }

  // Moves on, counting lines.
  void take_to(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  size_t behind_space(size_t at) const {
    return source_.size() - strip(source_.substr(at), std::nullopt, true, false).size();
  }

  // The end of a tag at `at`: its sign and `mark` ("%}"), with the white space that belongs to it; 0: none there.
  size_t tag_end(size_t at, std::string_view mark, bool trims_line, bool plus) const {
    const std::string_view rest = source_.substr(at);
    if (rest.starts_with('-') && rest.substr(1).starts_with(mark)) return behind_space(at + 1 + mark.size());
    if (plus && rest.starts_with('+') && rest.substr(1).starts_with(mark)) return at + 1 + mark.size();
    if (!rest.starts_with(mark)) return 0;
    const size_t end = at + mark.size();
    return trims_line && end < source_.size() && source_[end] == '\n' ? end + 1 : end;
  }

  // `data` before a tag, as the tag's sign leaves it.
  std::string_view before_tag(std::string_view data, char sign, bool is_variable) const {
    if (sign == '-') return strip(data, std::nullopt, false, true);
    if (sign == '+' || is_variable) return data;
    const size_t newline = data.rfind('\n');
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if ((line > 0 || line_starting_) && line < data.size() && strip(data.substr(line)).empty())
      return data.substr(0, line);
    return data;
  }

  char sign_at(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  void add_data(std::string_view data) {
    if (!data.empty()) add(TokenKind::kData, std::string(data));
  }

  // Text up to the next tag, and the tag.
  void text() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
        add_data(source_.substr(at_));
        take_to(source_.size());
        return;
      }
      if (const char c = source_[tag + 1]; c == '%' || c == '{' || c == '#') break;
      ++tag;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    add_data(before_tag(source_.substr(at_, tag - at_), sign, kind == '{'));
    const size_t inside = tag + 2 + (sign != '\0' ? 1 : 0);
    if (kind == '#') {
      take_to(inside);
      comment();
    } else if (const size_t raw_end = kind == '%' ? raw_begin_end(inside) : 0; raw_end != 0) {
      take_to(raw_end);
      raw();
    } else {
      take_to(tag);
      add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin);
      take_to(inside);
      inside_tag(kind == '%');
    }
  }

  void comment() {
    const size_t begin = at_;
    const size_t mark = source_.find("#}", at_);
    if (mark == std::string_view::npos) fail("a comment has no end (#}})");
    const size_t end =
        tag_end(mark > begin && (source_[mark - 1] == '-' || source_[mark - 1] == '+') ? mark - 1 : mark,
                "#}", true, true);
    line_starting_ = source_[end - 1] == '\n';
    take_to(end);
  }

  // Behind `{% raw %}`, when what follows {% is that; else 0.
  size_t raw_begin_end(size_t at) const {
    at = behind_space(at);
    if (!source_.substr(at).starts_with("raw")) return 0;
    return tag_end(behind_space(at + 3), "%}", false, false);
  }

  void raw() {
    line_starting_ = source_[at_ - 1] == '\n';
    for (size_t tag = at_;; ++tag) {
      tag = source_.find("{%", tag);
      if (tag == std::string_view::npos) fail("{{% raw %}} has no end");
      const char sign = sign_at(tag + 2);
      size_t name = behind_space(tag + 2 + (sign != '\0' ? 1 : 0));
      if (!source_.substr(name).starts_with("endraw")) continue;
      const size_t end = tag_end(behind_space(name + 6), "%}", true, true);
      if (end == 0) continue;
      add_data(before_tag(source_.substr(at_, tag - at_), sign, false));
      line_starting_ = source_[end - 1] == '\n';
      take_to(end);
      return;
    }
  }

  void inside_tag(bool is_block) {
    std::string open;  // brackets that wait for their ends
    while (true) {
      if (at_ >= source_.size()) {
        // The parser says what is missing.
        return;
      }
      if (open.empty()) {
        const size_t end = is_block ? tag_end(at_, "%}", true, true) : tag_end(at_, "}}", false, false);
        if (end != 0) {
          add(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd);
          line_starting_ = source_[end - 1] == '\n';
          take_to(end);
          return;
        }
      }
      const Character c = character_at(source_, at_);
      if (is_space(c.code))
        take_to(at_ + c.bytes);
      else if (is_digit(source_[at_]))
        number();
      else if (c.code == '_' || c.code >= 0x80 || std::isalpha(static_cast<int>(c.code)))
        name();
      else if (c.code == '"' || c.code == '\'')
        string();
      else
        sign(open);
    }
  }

  void name() {
    size_t end = at_;
    while (end < source_.size()) {
      const Character c = character_at(source_, end);
      if (c.code != '_' && c.code < 0x80 && !std::isalnum(static_cast<int>(c.code))) break;
      if (c.code >= 0x80 && is_space(c.code)) break;
      end += c.bytes;
    }
    add(TokenKind::kName, std::string(source_.substr(at_, end - at_)));
    take_to(end);
  }

  // Digits with single underscores between them, from `at` on; where they end.
  size_t digits_end(size_t at) const {
    while (at < source_.size() && (is_digit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() &&
                                                             is_digit(source_[at + 1]))))
      ++at;
    return at;
  }

  void number() {
    const std::string_view rest = source_.substr(at_);
    int base = 10;
    if (rest.size() > 2 && rest[0] == '0') {
      const char letter = static_cast<char>(rest[1] | 0x20);
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    }
    size_t end = 0;
    bool is_real = false;
    if (base != 10) {
      end = at_ + 2;
      while (end < source_.size() &&
             (std::isxdigit(static_cast<unsigned char>(source_[end])) || source_[end] == '_'))
        ++end;
    } else {
      end = digits_end(at_);
      const bool behind_dot = at_ > 0 && source_[at_ - 1] == '.';
      size_t more = end;
      if (!behind_dot && more + 1 < source_.size() && source_[more] == '.' && is_digit(source_[more + 1])) {
        more = digits_end(more + 1);
        is_real = true;
      }
      if (!behind_dot && more < source_.size() && (source_[more] | 0x20) == 'e') {
        const size_t exponent =
            more + 1 +
            (more + 1 < source_.size() && (source_[more + 1] == '+' || source_[more + 1] == '-') ? 1 : 0);
        if (exponent < source_.size() && is_digit(source_[exponent])) {
          more = digits_end(exponent);
          is_real = true;
        }
      }
      if (is_real) end = more;
    }
    std::string digits(source_.substr(at_, end - at_));
    std::erase(digits, '_');
    Token& token = add(is_real ? TokenKind::kReal : TokenKind::kInteger, digits);
    if (is_real) {
      token.real = std::strtod(digits.c_str(), nullptr);
    } else {
      const char* begin = digits.data() + (base == 10 ? 0 : 2);
      const auto read = std::from_chars(begin, digits.data() + digits.size(), token.integer, base);
      if (read.ec != std::errc() || read.ptr != digits.data() + digits.size())
        fail("found the number {}; expected one of 64 bits", digits);
      if (base == 10 && digits.size() > 1 && digits[0] == '0' && token.integer != 0)
        fail("found the number {}, which begins with 0", digits);
    }
    take_to(end);
  }

  void string() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a text in quotes has no end");
    add(TokenKind::kString, unescape(source_.substr(at_ + 1, end - at_ - 1)));
    take_to(end + 1);
  }

  // Python's unicode-escape over the text with every character beyond ASCII written as an escape, as jinja reads strings.
  std::string unescape(std::string_view text) const {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      static constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t letter = kLetters.find(c); letter != std::string_view::npos) {
        out += kMeanings[letter];
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        size_t digits = 0;
        for (; digits < 3 && i + digits < text.size() && text[i + digits] >= '0' && text[i + digits] <= '7';
             ++digits)
          code = code * 8 + static_cast<uint32_t>(text[i + digits] - '0');
        i += digits - 1;
        append_character(out, code);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        const std::string_view hex = text.substr(i + 1, digits);
        uint32_t code = 0;
        const auto read = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
        if (hex.size() != digits || read.ptr != hex.data() + hex.size())
          fail("found \\{}{}; expected {} hexadecimal digits", c, hex, digits);
        if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
          fail("found \\{}{}, which is no character", c, hex);
        append_character(out, code);
        i += digits;
      } else if (c == 'N') {
        fail("found \\N: characters by name are not read; write \\u and the number");
      } else if (static_cast<unsigned char>(c) >= 0x80) {
        const Character character = character_at(text, i);
        const auto code = static_cast<uint32_t>(character.code);
        out += code < 0x100     ? fmt::format("\\x{:02x}", code)
               : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                : fmt::format("\\U{:08x}", code);
        i += character.bytes - 1;
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  void sign(std::string& open) {
    static constexpr std::array<std::string_view, 6> kTwo = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    std::string_view op;
    for (const std::string_view two : kTwo)
      if (source_.substr(at_).starts_with(two)) op = two;
    if (op.empty() && kOne.find(source_[at_]) != std::string_view::npos) op = source_.substr(at_, 1);
    if (op.empty()) fail("found {}, which belongs to no expression", repr(source_.substr(at_, 1)));
    if (op == "(") open += ')';
    if (op == "[") open += ']';
    if (op == "{") open += '}';
    if (op == ")" || op == "]" || op == "}") {
      if (open.empty() || open.back() != op[0]) fail("found '{}' without its beginning", op);
      open.pop_back();
    }
    add(TokenKind::kOperator, std::string(op));
    take_to(at_ + op.size());
  }

  const std::string_view source_;
  const std::string& file_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kData:
      return "text";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return repr(token.text.size() > 40 ? token.text.substr(0, 40) + "…" : token.text);
    case TokenKind::kName:
    case TokenKind::kInteger:
    case TokenKind::kReal:
    case TokenKind::kOperator:
      return fmt::format("'{}'", token.text);
  }
  return "";
}

std::vector<Token> tokenize(std::string_view source, const std::string& file) {
  const std::string text = normalize(source);
  return Lexer(text, file).run();
}

}  // namespace snug::jinja
