// formats/chat_template/conversation.h — one conversation as values, rendered whole or in part
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/chat_template/interpreter.h"

namespace snug::jinja {

// What a template, a conversation and their variables allow (interpreter.h says how much).
struct Bounds {
  size_t held_bytes = 0, output_bytes = 0;
  int64_t steps = 0;
  static Bounds of(size_t input_bytes);
};

// Refers to the input, which outlives it.
class Conversation {
 public:
  // Makes the messages what transformers makes them: keys that are null left out, reasoning under all its names.
  // Throws UserError(kBadFile) for messages that are no array of objects, and numbers beyond 64 bits.
  Conversation(const Template& source, const std::string& file, size_t source_bytes, const Json& variables,
               const ChatInput& input);
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  size_t size() const { return messages_.size(); }
  bool is_assistant(size_t message) const;
  // Empty where it is no text.
  std::string_view content(size_t message) const;
  // The first `count` messages.
  Rendered render(size_t count, bool add_generation_prompt);

 private:
  Value message_value(const Json& message);

  const Template& source_;
  const std::string& file_;
  const ChatInput& input_;
  Bounds bounds_;
  Account account_;
  std::vector<Value> messages_;
  std::vector<std::pair<std::string_view, Value>> variables_;
};

}  // namespace snug::jinja
