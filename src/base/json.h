// base/json.h — strict reading of JSON from outside, and typed access to its fields
//
// Strict:   one value, UTF-8, no duplicate keys, no comments, no NaN; nesting, size and number of values are
// limited before
//           anything of that size is built. Key order is kept, so that a file can be written back as it was.
// Errors:   UserError(kBadFile) that names the file, and the byte for a syntax error, or the field, what was
// found and what
//           was expected: `config.json: num_hidden_layers is "abc" (string); expected a positive integer`.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/json_type.h"

namespace snug {

struct JsonLimits {
  Bytes size = Bytes(16 * 1024 * 1024);
  int depth = 64;              // objects and arrays inside one another
  int64_t values = 4'000'000;  // of all kinds together
};

// `file` is only for messages.
Json parse_json(std::string_view text, std::string_view file, const JsonLimits& limits = {});

// The members of an object one by one, in the file's order, so that no more than one of them exists as a tree: those of the top, or
// with a key those of the object that the top has there (what else the top has is passed over). `limits.depth` and `limits.values` are
// of one member. Members of the same name are all given.
// Returns none when there was such an object; otherwise what stands at the key, null where nothing does.
std::optional<Json> parse_json_members(std::string_view text, std::string_view file,
                                       const JsonLimits& limits, std::string_view key,
                                       const std::function<void(std::string&& name, Json&& value)>& take);

// Reads and parses a file. Throws UserError(kBadFile) also when the top is not an object.
Json read_json_object(const std::string& path, const JsonLimits& limits = {});

// `"abc" (string)`, `[1,2,…] (array)`, `null`: a value as messages quote it, cut to a line.
std::string quote_json(const Json& value);

// Throws the error of this header's first lines for `value`, which was found as `field`.
[[noreturn]] void throw_unexpected(std::string_view file, std::string_view field, const Json& value,
                                   std::string_view expected);

// The numbers a field accepts, and their name in messages.
struct NumberRange {
  double first = -std::numeric_limits<double>::infinity();
  double last = std::numeric_limits<double>::infinity();  // inclusive
  std::string_view expected;
};
inline constexpr NumberRange kAnyNumber{.expected = ""};
inline constexpr NumberRange kPositive{.first = std::numeric_limits<double>::denorm_min(),
                                       .expected = "positive"};
inline constexpr NumberRange kNotNegative{.first = 0, .expected = "non-negative"};

// The field `key` of the object `json`, as T: int64_t, double (integers too), bool or std::string. A number
// outside `range` is refused like one of the wrong type.
//   field           must be there
//   optional_field  none when it is absent or null
template <typename T>
std::optional<T> optional_field(const Json& json, std::string_view key, std::string_view file,
                                const NumberRange& range = kAnyNumber);
template <typename T>
T field(const Json& json, std::string_view key, std::string_view file, const NumberRange& range = kAnyNumber);

}  // namespace snug
