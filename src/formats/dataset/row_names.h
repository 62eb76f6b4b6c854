// formats/dataset/row_names.h — what the fields of a file's rows are called
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace snug {

// An empty name: rows do not have the field, whatever stands there.
struct RowNames {
  std::string text = {};  // json_text; empty: text, or content where there is none
  // alpaca
  std::string instruction = "instruction", input = "input", output = "output", history = "history";
  // sharegpt
  std::string conversations = "conversations", from = "from", value = "value", tools = "tools";
  std::string system = "system";  // both
  // sharegpt: {what a turn's role is called, user, assistant, tool, system or function_call}. Empty: the names that people's files have.
  std::vector<std::pair<std::string, std::string>> roles = {};

  bool operator==(const RowNames&) const = default;
};

// Different for different names.
std::string to_string(const RowNames& names);

}  // namespace snug
