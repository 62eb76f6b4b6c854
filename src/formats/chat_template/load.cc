// Where chat templates come from: model directories, files, and those built in.
#include <fmt/ranges.h>

#include "base/errors.h"
#include "base/file.h"
#include "formats/chat_template/built_in.h"
#include "formats/chat_template/chat_template.h"
#include "formats/chat_template/parser.h"
#include "formats/tokenizer_config.h"

namespace snug {
namespace {

// Its special tokens as a template's variables.
Json variables_of(const TokenizerConfig& config) {
  Json variables = Json::object();
  for (const NamedToken& named : config.tokens.named) variables[named.name] = named.token.content;
  return variables;
}

std::string read_template(const std::string& path) {
  return read_small_file(path, Bytes(static_cast<int64_t>(jinja::kMaxTemplateBytes)));
}

}  // namespace

std::vector<std::string_view> built_in_chat_templates() { return jinja::built_in_names(); }

std::optional<ChatTemplate> load_chat_template(const std::string& model_directory) {
  const TokenizerConfig config = read_tokenizer_config(model_directory);
  const std::string own_file = join_path(model_directory, "chat_template.jinja");
  if (file_exists(own_file))
    return ChatTemplate::parse(read_template(own_file), own_file, variables_of(config));
  if (config.chat_template)
    return ChatTemplate::parse(*config.chat_template, config.file + ": chat_template", variables_of(config));
  if (config.other_templates.empty()) return std::nullopt;
  throw_user(ExitCode::kBadFile,
             "{}: chat_template has templates named {}; expected one named default (or --chat_template FILE)",
             config.file, fmt::join(config.other_templates, ", "));
}

ChatTemplate choose_chat_template(const std::string& model_directory, const std::string& choice) {
  const auto names = [] { return fmt::format("{}", fmt::join(built_in_chat_templates(), ", ")); };
  if (choice.empty()) {
    if (std::optional<ChatTemplate> own = load_chat_template(model_directory)) return *std::move(own);
    throw_user(ExitCode::kBadFile,
               "{}: has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json); "
               "expected one, or --chat_template "
               "with a file or one of {}",
               model_directory, names());
  }
  const Json variables = variables_of(read_tokenizer_config(model_directory));
  if (std::optional<std::string> text = jinja::built_in_template(choice))
    return ChatTemplate::parse(*std::move(text), choice, variables);
  if (!file_exists(choice))
    throw_user(ExitCode::kUsage, "the chat template is \"{}\"; expected a file or one of {}", choice,
               names());
  return ChatTemplate::parse(read_template(choice), choice, variables);
}

}  // namespace snug
