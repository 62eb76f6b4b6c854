// Where chat templates come from: model directories, files, and those built in.
#include <fmt/ranges.h>

#include <array>

#include "base/errors.h"
#include "base/file.h"
#include "formats/chat_template/built_in.h"
#include "formats/chat_template/chat_template.h"
#include "formats/chat_template/parser.h"

namespace snug {
namespace {

constexpr std::array<std::string_view, 7> kSpecialTokens = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

// tokenizer_config.json of the directory; null when it has none.
Json tokenizer_config(const std::string& directory) {
  const std::string path = join_path(directory, "tokenizer_config.json");
  return file_exists(path) ? read_json_object(path) : Json();
}

// Its special tokens as a template's variables: texts, whether written as texts or as objects with `content`.
Json special_tokens(const Json& config, const std::string& file) {
  Json tokens = Json::object();
  if (!config.is_object()) return tokens;
  for (const std::string_view name : kSpecialTokens) {
    const auto found = config.find(name);
    if (found == config.end() || found->is_null()) continue;
    const Json content = found->is_object() ? found->value("content", Json()) : *found;
    if (!content.is_string()) throw_unexpected(file, name, *found, "a token or an object with its content");
    tokens[std::string(name)] = content;
  }
  return tokens;
}

std::string read_template(const std::string& path) {
  return read_small_file(path, Bytes(static_cast<int64_t>(jinja::kMaxTemplateBytes)));
}

// The text that `chat_template` of tokenizer_config.json is or holds.
std::string configured_template(const Json& value, const std::string& file) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array())
    throw_unexpected(file, "chat_template", value, "a template or a list of templates with names");
  std::vector<std::string> names;
  for (const Json& entry : value) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string())
      throw_unexpected(file, "chat_template", entry, "an object with name and template");
    if (entry["name"] == "default") return entry["template"].get<std::string>();
    names.push_back(entry["name"].get<std::string>());
  }
  throw_user(ExitCode::kBadFile,
             "{}: chat_template has templates named {}; expected one named default (or --chat_template FILE)",
             file, fmt::join(names, ", "));
}

}  // namespace

std::vector<std::string_view> built_in_chat_templates() { return jinja::built_in_names(); }

std::optional<ChatTemplate> load_chat_template(const std::string& model_directory) {
  const std::string config_file = join_path(model_directory, "tokenizer_config.json");
  const Json config = tokenizer_config(model_directory);
  const std::string own_file = join_path(model_directory, "chat_template.jinja");
  if (file_exists(own_file))
    return ChatTemplate::parse(read_template(own_file), own_file, special_tokens(config, config_file));
  if (!config.is_object()) return std::nullopt;
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  return ChatTemplate::parse(configured_template(*found, config_file), config_file + ": chat_template",
                             special_tokens(config, config_file));
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
  const std::string config_file = join_path(model_directory, "tokenizer_config.json");
  const Json variables = special_tokens(tokenizer_config(model_directory), config_file);
  if (std::optional<std::string> text = jinja::built_in_template(choice))
    return ChatTemplate::parse(*std::move(text), choice, variables);
  if (!file_exists(choice))
    throw_user(ExitCode::kUsage, "the chat template is \"{}\"; expected a file or one of {}", choice,
               names());
  return ChatTemplate::parse(read_template(choice), choice, variables);
}

}  // namespace snug
