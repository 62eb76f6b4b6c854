// formats/chat_template/chat_template.h — a conversation as the text that a model reads, by the model's own Jinja template
//
//   const auto chat = load_chat_template("models/SmolLM2-135M-Instruct");
//   const RenderedChat text = chat->render({.messages = row.messages, .tools = row.tools, .locate_assistant = true});
//
// Text is that of transformers' apply_chat_template, byte for byte: its environment (trim_blocks, lstrip_blocks, loop controls,
// {% generation %}, tojson without HTML escapes), its treatment of messages (keys whose value is null are left out; reasoning is found
// under reasoning_content, thinking and reasoning alike). The date that strftime_now sees is the caller's, so that a render can be repeated.
// Encode the text without the tokenizer's own special tokens: the template has written them.
//
// A template is untrusted. Its steps, output, nesting and memory are bounded by the size of template and conversation (interpreter.h), and
// it can reach nothing but the values given. Errors are UserError(kBadFile) with the template's name and line; constructs outside the
// subset (include, import, extends, block, do, trans, autoescape) are refused by name.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace snug {

// A null JSON value to refer to.
const Json& no_json();

// What to render. Refers to values that outlive the call.
struct ChatInput {
  const Json& messages;           // an array of objects with `role`, `content`, …: at least one
  const Json& tools = no_json();  // null, or an array of objects
  bool add_generation_prompt = false;
  // More variables of the template (null, or an object that wrong_variables() finds nothing wrong with), over those of the template
  // itself: enable_thinking, date_string, …
  const Json& variables = no_json();
  // What strftime_now formats, as YYYY-MM-DD (midnight). The default is the day that Llama 3's templates name themselves where nothing tells
  // them the date.
  std::string_view date = "2024-07-26";
  bool locate_assistant = false;  // fill RenderedChat::assistant
};

// What is wrong with an object of variables from outside, as "is 5 (number); expected …"; none where nothing is. It may not have the names
// that apply_chat_template sets or takes for itself (messages, tools, add_generation_prompt, …), nor those of special tokens.
std::optional<std::string> wrong_variables(const Json& variables);

// Bytes [begin, end) of a text.
struct TextSpan {
  size_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

struct RenderedChat {
  std::string text;
  // What the model is to learn, in order, without overlap; empty unless asked for. A span is what {% generation %} encloses, where the
  // template has it. Otherwise it is what an assistant turn adds behind the generation prompt, with its end-of-turn token and without the
  // white space behind that: "Hello<|im_end|>" of "<|im_start|>assistant\nHello<|im_end|>\n".
  std::vector<TextSpan> assistant;
};

// Immutable, for any number of threads; copies are cheap.
class ChatTemplate {
 public:
  // `source` is the template's text; `name` stands in messages. `variables` (an object or null) are seen by every render: bos_token, ….
  // Throws UserError(kBadFile) for a syntax error, a construct that Snug does not have, or too deep nesting.
  static ChatTemplate parse(std::string source, std::string name, Json variables = {});

  const std::string& name() const;
  const std::string& source() const;
  // Whether assistant turns are marked by {% generation %}.
  bool marks_generation() const;

  // Throws UserError(kBadFile) for what the template refuses (raise_exception) or what fails in it, for one that exceeds its bounds, and,
  // with locate_assistant, for a conversation whose assistant turns cannot be located safely: with the reason.
  RenderedChat render(const ChatInput& input) const;

  // What the template writes behind an assistant's words, without white space around it: "<|im_end|>", "</s>". Empty where a short
  // conversation does not show it. `variables` as in ChatInput.
  std::string end_of_turn(const Json& variables = no_json()) const;

 private:
  struct Data;
  explicit ChatTemplate(std::shared_ptr<const Data> data);
  std::shared_ptr<const Data> data_;
};

// The template of a model directory: chat_template.jinja, else chat_template of tokenizer_config.json (a text, or a list of
// {name, template} of which `default` is taken); none when it has neither. Its variables are the special tokens of tokenizer_config.json.
// Throws UserError(kBadFile).
std::optional<ChatTemplate> load_chat_template(const std::string& model_directory);

// The template that `choice` names: a built-in one, or a file; an empty choice is the directory's own. Variables are the special tokens of the
// directory. Throws UserError(kUsage) for a name that is neither, UserError(kBadFile) for a directory without a template: with the names
// there are.
ChatTemplate choose_chat_template(const std::string& model_directory, const std::string& choice);

// alpaca, chatml, gemma, llama3, mistral, phi3, vicuna, zephyr.
std::vector<std::string_view> built_in_chat_templates();

}  // namespace snug
