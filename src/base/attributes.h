// base/attributes.h — the constants of one operation: name → integer, real or word, in name order
//
// Text form, used by the graph and the plan alike: `{accumulate=1, eps=1e-05, weight=oi}`. Reals always print with a '.' or
// an 'e' (shortest form that reads back to the same double), words are [A-Za-z_][A-Za-z0-9_.-]*; so the three never mix.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

namespace snug {

class Attributes {
 public:
  using Value = std::variant<int64_t, double, std::string>;

  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Value>> entries) : entries_(entries) {}

  bool has(std::string_view name) const { return entries_.find(name) != entries_.end(); }
  void set(std::string_view name, Value value) { entries_.insert_or_assign(std::string(name), std::move(value)); }
  void erase(std::string_view name);

  // The value of `name`; throws InternalError when it is absent or of another kind.
  int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& word(std::string_view name) const;
  // The same with a default for an absent name.
  int64_t integer_or(std::string_view name, int64_t otherwise) const;
  double real_or(std::string_view name, double otherwise) const;
  std::string word_or(std::string_view name, std::string_view otherwise) const;

  bool empty() const { return entries_.empty(); }
  const std::map<std::string, Value, std::less<>>& entries() const { return entries_; }
  friend bool operator==(const Attributes&, const Attributes&) = default;

 private:
  std::map<std::string, Value, std::less<>> entries_;
};

// "{a=1, b=2.5, c=word}"; "{}" when empty.
std::string to_string(const Attributes& attributes);

// Reads the text form (including the braces). Throws UserError(kBadFile) naming the offending part.
Attributes parse_attributes(std::string_view text);

}  // namespace snug
