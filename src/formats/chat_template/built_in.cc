#include "formats/chat_template/built_in.h"

#include <array>

namespace snug::jinja {
namespace {

// Stands before every template: the text of a message, whose content may be a list of parts.
constexpr std::string_view kWords = R"({%- macro words(message) -%}
  {{- message.content if message.content is string else (message.content or [])|map(attribute='text', default='')|join -}}
{%- endmacro -%}
)";

constexpr std::string_view kAlpaca = R"({{- bos_token -}}
{%- if messages[0].role != 'system' -%}
  {{- 'Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'system' and loop.first -%}
    {{- words(message) + '\n\n' -}}
  {%- elif message.role == 'user' -%}
    {{- '### Instruction:\n' + words(message) + '\n\n' -}}
  {%- elif message.role == 'assistant' -%}
    {{- '### Response:\n' + words(message) + eos_token|default('') + '\n\n' -}}
  {%- else -%}
    {{- raise_exception('alpaca has no place for the role ' ~ message.role) -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '### Response:\n' -}}
{%- endif -%}
)";

constexpr std::string_view kChatMl = R"({%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\n' + words(message) + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
{%- endif -%}
)";

constexpr std::string_view kGemma = R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' and loop.first -%}
    {%- set ns.system = words(message)|trim + '\n\n' -%}
  {%- elif message.role == 'user' -%}
    {{- '<start_of_turn>user\n' + ns.system + words(message)|trim + '<end_of_turn>\n' -}}
    {%- set ns.system = '' -%}
  {%- elif message.role == 'assistant' -%}
    {{- '<start_of_turn>model\n' + words(message)|trim + '<end_of_turn>\n' -}}
  {%- else -%}
    {{- raise_exception('gemma has no place for the role ' ~ message.role) -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<start_of_turn>model\n' -}}
{%- endif -%}
)";

constexpr std::string_view kLlama3 = R"({{- bos_token -}}
{%- for message in messages -%}
  {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + words(message)|trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
)";

constexpr std::string_view kMistral = R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' and loop.first -%}
    {%- set ns.system = words(message) + '\n\n' -%}
  {%- elif message.role == 'user' -%}
    {{- '[INST] ' + ns.system + words(message) + '[/INST]' -}}
    {%- set ns.system = '' -%}
  {%- elif message.role == 'assistant' -%}
    {{- ' ' + words(message) + eos_token|default('') -}}
  {%- else -%}
    {{- raise_exception('mistral has no place for the role ' ~ message.role) -}}
  {%- endif -%}
{%- endfor -%}
)";

constexpr std::string_view kPhi3 = R"({{- bos_token -}}
{%- for message in messages -%}
  {{- '<|' + message.role + '|>\n' + words(message) + '<|end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|assistant|>\n' -}}
{%- endif -%}
)";

constexpr std::string_view kVicuna = R"({{- bos_token -}}
{%- if messages[0].role != 'system' -%}
  {{- 'A chat between a curious user and an artificial intelligence assistant. ' -}}
  {{- "The assistant gives helpful, detailed, and polite answers to the user's questions. " -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'system' and loop.first -%}
    {{- words(message) + ' ' -}}
  {%- elif message.role == 'user' -%}
    {{- 'USER: ' + words(message) + ' ' -}}
  {%- elif message.role == 'assistant' -%}
    {{- 'ASSISTANT: ' + words(message) + eos_token|default('') -}}
  {%- else -%}
    {{- raise_exception('vicuna has no place for the role ' ~ message.role) -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- 'ASSISTANT:' -}}
{%- endif -%}
)";

constexpr std::string_view kZephyr = R"({%- for message in messages -%}
  {{- '<|' + message.role + '|>\n' + words(message) + eos_token|default('') + '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|assistant|>\n' -}}
{%- endif -%}
)";

constexpr auto kTemplates = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"alpaca", kAlpaca},
    {"chatml", kChatMl},
    {"gemma", kGemma},
    {"llama3", kLlama3},
    {"mistral", kMistral},
    {"phi3", kPhi3},
    {"vicuna", kVicuna},
    {"zephyr", kZephyr},
});

}  // namespace

std::vector<std::string_view> built_in_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, text] : kTemplates) names.push_back(name);
  return names;
}

std::optional<std::string> built_in_template(std::string_view name) {
  for (const auto& [known, text] : kTemplates)
    if (known == name) return std::string(kWords) + std::string(text);
  return std::nullopt;
}

}  // namespace snug::jinja
