// formats/dataset/row.h — one example of a data file, after its format's own field names are resolved
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"

namespace snug {

// Where a row stands, for messages: "train.jsonl:17".
struct RowPlace {
  std::string file;
  int64_t line = 0;  // from 1; of an array in a .json file, the element
};

// A document of plain text: every token is learned.
struct TextRow {
  std::string text;
};

// A text and its continuation: the continuation is learned.
struct CompletionRow {
  std::string prompt, completion;
};

// A conversation: the assistant's turns are learned, those before message `learned_from` are not. `messages` is an array of objects
// with `role` and `content` (and what else the row had: tool_calls, name, …), as chat templates expect it; `tools` is null or an array;
// `variables` is what the row gives the template, not looked at, or null.
struct ChatRow {
  Json messages, tools, variables;
  int64_t learned_from = 0;
  bool began_with_answer =
      false;  // turns of the assistant before any of the user answer nothing: they were left out
};

// A text in pieces, of which some are learned.
struct Segment {
  std::string text;
  bool learned = false;
};
struct SegmentRow {
  std::vector<Segment> segments;
};

// Tokens made elsewhere. `labels` is empty (every token is learned) or as long as `ids`: the id itself where it is learned, else
// −100; not shifted.
struct TokenRow {
  std::vector<int32_t> ids, labels;
};

// Rows that are not there because they are broken.
struct SkippedRows {
  static constexpr size_t kMostMessages = 10;
  int64_t count = 0;
  std::vector<std::string> messages = {};  // of the first

  void add(std::string_view message) {
    ++count;
    if (messages.size() < kMostMessages) messages.emplace_back(message);
  }
};

using Row = std::variant<TextRow, CompletionRow, ChatRow, SegmentRow, TokenRow>;

}  // namespace snug
