#include "base/attributes.h"

#include <cctype>
#include <charconv>

#include "base/errors.h"

namespace snug {
namespace {

template <typename T>
const T& get(const Attributes& attributes, std::string_view name, std::string_view kind) {
  const auto found = attributes.entries().find(name);
  if (found == attributes.entries().end())
    throw_internal("attribute {} is missing in {}", name, to_string(attributes));
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) throw_internal("attribute {} is not {} in {}", name, kind, to_string(attributes));
  return *value;
}

std::string value_text(const Attributes::Value& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* word = std::get_if<std::string>(&value)) return *word;
  std::string text = fmt::format("{}", std::get<double>(value));  // shortest form that reads back exactly
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return s;
}

Attributes::Value parse_value(std::string_view text, std::string_view whole) {
  const char first = text.empty() ? '\0' : text.front();
  if (std::isdigit(static_cast<unsigned char>(first)) || first == '-' || first == '+' || first == '.') {
    int64_t integer = 0;
    const char* end = text.data() + text.size();
    if (const auto r = std::from_chars(text.data(), end, integer); r.ec == std::errc() && r.ptr == end) return integer;
    double real = 0;
    if (const auto r = std::from_chars(text.data(), end, real); r.ec == std::errc() && r.ptr == end) return real;
  } else if (std::isalpha(static_cast<unsigned char>(first)) || first == '_') {
    return std::string(text);
  }
  throw_user(ExitCode::kBadFile, "attributes {}: \"{}\" is neither a number nor a word", whole, text);
}

}  // namespace

void Attributes::erase(std::string_view name) {
  if (const auto found = entries_.find(name); found != entries_.end()) entries_.erase(found);
}

int64_t Attributes::integer(std::string_view name) const { return get<int64_t>(*this, name, "an integer"); }
double Attributes::real(std::string_view name) const { return get<double>(*this, name, "a real"); }
const std::string& Attributes::word(std::string_view name) const { return get<std::string>(*this, name, "a word"); }

int64_t Attributes::integer_or(std::string_view name, int64_t otherwise) const {
  return has(name) ? integer(name) : otherwise;
}
double Attributes::real_or(std::string_view name, double otherwise) const { return has(name) ? real(name) : otherwise; }
std::string Attributes::word_or(std::string_view name, std::string_view otherwise) const {
  return has(name) ? word(name) : std::string(otherwise);
}

std::string to_string(const Attributes& attributes) {
  std::string text = "{";
  for (const auto& [name, value] : attributes.entries()) {
    if (text.size() > 1) text += ", ";
    text += name + "=" + value_text(value);
  }
  return text + "}";
}

Attributes parse_attributes(std::string_view text) {
  std::string_view rest = trim(text);
  if (rest.size() < 2 || rest.front() != '{' || rest.back() != '}')
    throw_user(ExitCode::kBadFile, "attributes \"{}\" are not in braces", text);
  rest = trim(rest.substr(1, rest.size() - 2));
  Attributes attributes;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view entry = trim(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : trim(rest.substr(comma + 1));
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos)
      throw_user(ExitCode::kBadFile, "attributes {}: \"{}\" has no \"=\"", text, entry);
    const std::string_view name = trim(entry.substr(0, equals));
    if (name.empty() || attributes.has(name))
      throw_user(ExitCode::kBadFile, "attributes {}: name \"{}\" is empty or repeated", text, name);
    attributes.set(name, parse_value(trim(entry.substr(equals + 1)), text));
  }
  return attributes;
}

}  // namespace snug
