#include "formats/chat_template/conversation.h"

#include <array>

#include "base/errors.h"

namespace snug::jinja {
namespace {

// Bytes of a JSON value: its texts, and 32 for every value.
size_t size_of(const Json& json) {
  size_t size = 32;
  if (json.is_string()) size += json.get_ref<const std::string&>().size();
  if (json.is_array())
    for (const Json& item : json) size += size_of(item);
  if (json.is_object())
    for (const auto& [key, item] : json.get_ref<const Json::object_t&>()) size += key.size() + size_of(item);
  return size;
}

constexpr std::array<std::string_view, 3> kReasoning = {"reasoning_content", "thinking", "reasoning"};

}  // namespace

Bounds Bounds::of(size_t n) {
  return {.held_bytes = (size_t{8} << 20) + 32 * n,
          .output_bytes = (size_t{1} << 20) + 16 * n,
          .steps = 4'000'000 + 64 * static_cast<int64_t>(n)};
}

Conversation::Conversation(const Template& source, const std::string& file, size_t source_bytes,
                           const Json& variables, const ChatInput& input)
    : source_(source),
      file_(file),
      input_(input),
      bounds_(Bounds::of(source_bytes + size_of(variables) + size_of(input.messages) + size_of(input.tools) +
                         size_of(input.variables))),
      account_(bounds_.held_bytes, bounds_.steps) {
  if (!input.messages.is_array() || input.messages.empty())
    throw_user(ExitCode::kBadFile, "messages is {}; expected an array of one message and more",
               quote_json(input.messages));
  if (!input.tools.is_null() && !input.tools.is_array())
    throw_user(ExitCode::kBadFile, "tools is {}; expected an array", quote_json(input.tools));
  try {
    for (const Json& message : input.messages) {
      if (!message.is_object())
        throw_user(ExitCode::kBadFile, "messages[{}] is {}; expected an object with role and content",
                   messages_.size(), quote_json(message));
      messages_.push_back(message_value(message));
    }
    variables_.emplace_back("tools", from_json(account_, input.tools));
    variables_.emplace_back("documents", Value::none());
    for (const Json* more : {&variables, &input.variables})
      if (more->is_object())
        for (const auto& [name, value] : more->get_ref<const Json::object_t&>())
          variables_.emplace_back(name, from_json(account_, value));
  } catch (const Failure& failure) {
    throw UserError(ExitCode::kBadFile, failure.what());
  }
}

// _normalize_chat_messages and _alias_reasoning_fields of transformers.
Value Conversation::message_value(const Json& message) {
  const auto& fields = message.get_ref<const Json::object_t&>();
  const Json* reasoning = nullptr;
  for (const std::string_view name : kReasoning) {
    const auto found = message.find(name);
    if (reasoning == nullptr && found != message.end() && !found->is_null()) reasoning = &*found;
  }
  std::vector<Dict::Entry> entries;
  if (reasoning != nullptr) entries.emplace_back(Value::text("thinking"), from_json(account_, *reasoning));
  for (const auto& [key, value] : fields)
    if (!value.is_null()) entries.emplace_back(Value::text(key), from_json(account_, value));
  if (reasoning != nullptr)
    entries.emplace_back(Value::text("reasoning_content"), from_json(account_, *reasoning));
  return Value::object(Kind::kDict, make<Dict>(account_, std::move(entries)));
}

bool Conversation::is_assistant(size_t message) const {
  const Json& json = input_.messages[message];
  const auto role = json.find("role");
  return role != json.end() && *role == "assistant";
}

std::string_view Conversation::content(size_t message) const {
  const Json& json = input_.messages[message];
  const auto content = json.find("content");
  if (content == json.end() || !content->is_string()) return {};
  return content->get_ref<const std::string&>();
}

Rendered Conversation::render(size_t count, bool add_generation_prompt) {
  std::unordered_map<const Object*, size_t> places;
  if (input_.locate_assistant)
    for (size_t i = 0; i < count; ++i) places.emplace(messages_[i].object(), i);
  try {
    account_.restart(bounds_.steps);
    std::vector<std::pair<std::string_view, Value>> variables = variables_;
    variables.emplace_back(
        "messages",
        Value::list(account_, {messages_.begin(), messages_.begin() + static_cast<ptrdiff_t>(count)}));
    variables.emplace_back("add_generation_prompt", Value::boolean(add_generation_prompt));
    return Interpreter(source_, file_, account_, bounds_.output_bytes, input_.date, std::move(places))
        .render(variables);
  } catch (const Failure& failure) {
    throw_user(ExitCode::kBadFile, "{}: {}", file_, failure.what());
  }
}

}  // namespace snug::jinja
