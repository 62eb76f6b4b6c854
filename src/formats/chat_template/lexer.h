// formats/chat_template/lexer.h — the text of a template as tokens, white space around its tags treated as trim_blocks and lstrip_blocks do
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace snug::jinja {

enum class TokenKind : uint8_t {
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kReal,
  kOperator,
  kEnd,
};

struct Token {
  Token() = default;
  explicit Token(TokenKind of) : kind(of) {}

  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // of data and strings as they mean, of names and operators as written
  int64_t integer = 0;
  double real = 0;

  bool is(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

// What a message calls a token: `end of template`, `'}}'`, `name 'x'`.
std::string describe(const Token& token);

// Throws UserError(kBadFile) that names `file` and the line. The last token is kEnd.
std::vector<Token> tokenize(std::string_view source, const std::string& file);

}  // namespace snug::jinja
