#include "formats/chat_template/chat_template.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "base/errors.h"
#include "formats/chat_template/conversation.h"
#include "formats/chat_template/locate.h"
#include "formats/chat_template/parser.h"
#include "formats/chat_template/python_text.h"

namespace snug {

struct ChatTemplate::Data {
  std::string source, name;
  Json variables;
  jinja::Template tree;
};

const Json& no_json() {
  static const Json kNone;
  return kNone;
}

ChatTemplate::ChatTemplate(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

std::optional<std::string> wrong_variables(const Json& variables) {
  // Variables that a render sets; arguments of transformers' apply_chat_template; its special tokens.
  constexpr std::array<std::string_view, 23> kReserved = {"messages",
                                                          "tools",
                                                          "add_generation_prompt",
                                                          "conversation",
                                                          "conversations",
                                                          "chat_template",
                                                          "continue_final_message",
                                                          "tokenize",
                                                          "padding",
                                                          "truncation",
                                                          "max_length",
                                                          "return_tensors",
                                                          "return_dict",
                                                          "return_assistant_tokens_mask",
                                                          "tokenizer_kwargs",
                                                          "bos_token",
                                                          "eos_token",
                                                          "unk_token",
                                                          "sep_token",
                                                          "pad_token",
                                                          "cls_token",
                                                          "mask_token",
                                                          "additional_special_tokens"};
  constexpr size_t kMostNames = 100;
  if (!variables.is_object())
    return fmt::format("is {}; expected an object of the chat template's variables", quote_json(variables));
  if (variables.size() > kMostNames)
    return fmt::format("has {} names; expected at most {}", variables.size(), kMostNames);
  for (const auto& [name, value] : variables.items())
    if (std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end())
      return fmt::format("sets {}; expected variables of the chat template that have no value without it",
                         name);
  return std::nullopt;
}

ChatTemplate ChatTemplate::parse(std::string source, std::string name, Json variables) {
  for (size_t at = 0; at < source.size();) {
    utf8proc_int32_t code = 0;
    const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(source.data()) + at,
                                        static_cast<utf8proc_ssize_t>(source.size() - at), &code);
    if (bytes <= 0) throw_user(ExitCode::kBadFile, "{}: byte {} is not UTF-8; expected a text", name, at);
    at += static_cast<size_t>(bytes);
  }
  auto data = std::make_shared<Data>();
  data->tree = jinja::parse_template(source, name);
  data->source = std::move(source);
  data->name = std::move(name);
  data->variables = std::move(variables);
  return ChatTemplate(std::move(data));
}

const std::string& ChatTemplate::name() const { return data_->name; }
const std::string& ChatTemplate::source() const { return data_->source; }
bool ChatTemplate::marks_generation() const { return data_->tree.has_generation; }

RenderedChat ChatTemplate::render(const ChatInput& input) const {
  jinja::Conversation conversation(data_->tree, data_->name, data_->source.size(), data_->variables, input);
  jinja::Rendered whole = conversation.render(conversation.size(), input.add_generation_prompt);
  RenderedChat result;
  if (input.locate_assistant)
    result.assistant = jinja::locate_assistant(conversation, data_->tree, data_->name, whole);
  result.text = std::move(whole.text);
  return result;
}

std::string ChatTemplate::end_of_turn(const Json& variables) const {
  // Words that no template writes by itself.
  static constexpr std::string_view kAnswer = "snug-answer";
  const Json messages = Json::array(
      {{{"role", "user"}, {"content", "snug-question"}}, {{"role", "assistant"}, {"content", kAnswer}}});
  const ChatInput input{.messages = messages, .variables = variables, .locate_assistant = true};
  try {
    jinja::Conversation conversation(data_->tree, data_->name, data_->source.size(), data_->variables, input);
    const jinja::Rendered whole = conversation.render(2, false);
    size_t end = whole.text.size();
    for (const jinja::Turn& turn : whole.turns)
      if (turn.message == 1) end = turn.text.end;
    const size_t answer = whole.text.rfind(kAnswer, end);
    if (answer == std::string::npos || answer + kAnswer.size() > end) return "";
    const std::string_view behind =
        std::string_view(whole.text).substr(answer + kAnswer.size(), end - answer - kAnswer.size());
    return std::string(jinja::strip(behind));
  } catch (const UserError&) {
    return "";
  }
}

}  // namespace snug
