// base/json_cursor.h — reading JSON value after value, without a tree of it: a row of data, a file of settings
//
//   JsonCursor cursor(row, "train.jsonl:17");
//   cursor.enter_object();
//   for (std::string key; cursor.next_key(key);)
//     if (key == "text") text = cursor.read_string("text");
//     else cursor.skip_value();
//   cursor.finish();
//
// Strict JSON in UTF-8: what RFC 8259 does not allow, invalid UTF-8 and halves of surrogate pairs are errors.
// A byte order mark before the text is passed over.
// Cost: O(n) time; what is passed over costs one bit for each level of nesting, what is read its own size. Nothing recurses.
// Errors: JsonSyntaxError for what is not JSON; UserError(kBadFile) for a value of another kind than the reader wants. Both name the
//         place and the byte of the text or the field, and quote what was found.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/json_type.h"

namespace snug {

class JsonSyntaxError : public UserError {
 public:
  explicit JsonSyntaxError(const std::string& message) : UserError(ExitCode::kBadFile, message) {}
};

inline bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

class JsonCursor {
 public:
  // Values that all trees of one text may hold, unless its reader says less: they cost far more memory than their text (some 30 MiB).
  static constexpr int64_t kMostTreeValues = 200'000;
  static constexpr int kDeepestTree = 64;

  // Both views outlive the cursor. `place` is for messages.
  JsonCursor(std::string_view text, std::string_view place, int64_t most_tree_values = kMostTreeValues)
      : text_(text),
        place_(place),
        most_tree_values_(most_tree_values),
        at_(text.starts_with("\xEF\xBB\xBF") ? 3 : 0) {}

  enum class Kind : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };
  // Of the value that follows, by its first character.
  Kind peek();
  static std::string_view kind_name(Kind kind);

  // Each begins a value and, when the one that follows is of another kind, throws that `field` is wrong; a row itself has no field.
  void enter_object(std::string_view field = "the row");
  void enter_array(std::string_view field);
  std::string read_string(std::string_view field);
  bool read_boolean(std::string_view field);
  int64_t read_integer(std::string_view field);  // beyond 64 bits is refused
  // The same; none, and nothing is passed, where something else follows.
  std::optional<int64_t> take_integer();

  // In an object: the next key, with the colon behind it; false at the end, which is passed.
  bool next_key(std::string& key);
  // In an array: whether another element follows; false at the end, which is passed.
  bool next_element();
  // Elements of the array just entered, when all are numbers; otherwise some number that costs no more to reserve.
  size_t count_elements() const;

  void skip_value();
  // The next value as a tree. An object's keys must differ.
  Json read_tree(std::string_view field);
  // Nothing but white space follows.
  void finish();

  // `"abc" (string)`: the value that follows as messages quote it; it is passed over.
  std::string quote_value();
  // Throws UserError(kBadFile): field is …; expected ….
  [[noreturn]] void throw_expected(std::string_view field, std::string_view expected);
  const std::string_view& place() const { return place_; }

 private:
  [[noreturn]] void fail(std::string_view what) const;
  void skip_space();
  char look();                      // the next character, which must be there
  void expect(char character);      // after white space
  void scan_string(bool& escapes);  // behind the first quote: to behind the last
  std::string unescape(std::string_view raw) const;
  std::string take_string();
  std::string_view scan_number(bool& integer);
  void scan_word(std::string_view word);
  Json read_scalar();

  std::string_view text_, place_;
  int64_t most_tree_values_;
  size_t at_;
  int64_t tree_values_ = 0;  // read so far
  bool fresh_ = false;       // behind an opening bracket
};

// A field of an object, and what reads its value, which the cursor stands before.
struct JsonField {
  std::string_view name;  // empty: objects do not have it
  std::function<void(std::string_view name)> read;
};

// Reads an object, which messages call `object`: each of the fields at most once; what is not among them is passed over.
void read_fields(JsonCursor& cursor, std::string_view object, std::initializer_list<JsonField> fields);

// A whole text as one tree, with the limits of read_tree.
Json parse_tree(std::string_view text, std::string_view place);

}  // namespace snug
