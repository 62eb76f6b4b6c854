#include "formats/tokenizer_config.h"

#include <algorithm>
#include <functional>

#include "base/file.h"
#include "base/json_cursor.h"

namespace snug {
namespace {

constexpr Bytes kLargestFile{16 << 20};
constexpr size_t kMostTemplates = 100;

// A text, or a list of objects with name and template.
void read_templates(JsonCursor& cursor, TokenizerConfig& config) {
  constexpr std::string_view kField = "chat_template";
  if (cursor.peek() == JsonCursor::Kind::kString) {
    config.chat_template = cursor.read_string(kField);
    return;
  }
  if (cursor.peek() != JsonCursor::Kind::kArray)
    cursor.throw_expected(kField, "a template or a list of templates with names");
  cursor.enter_array(kField);
  for (size_t i = 0; cursor.next_element(); ++i) {
    if (i == kMostTemplates)
      throw_user(ExitCode::kBadFile, "{}: {} has more than {} templates", cursor.place(), kField,
                 kMostTemplates);
    const std::string field = fmt::format("{}[{}]", kField, i);
    std::optional<std::string> name, text;
    const auto read = [&](std::optional<std::string>& value) {
      return [&](std::string_view key) { value = cursor.read_string(fmt::format("{}.{}", field, key)); };
    };
    read_fields(cursor, field, {{"name", read(name)}, {"template", read(text)}});
    if (!name || !text)
      throw_user(ExitCode::kBadFile, "{}: {} has no {}; expected name and template", cursor.place(), field,
                 name ? "template" : "name");
    if (*name != "default")
      config.other_templates.push_back(*std::move(name));
    else if (!config.chat_template)
      config.chat_template = std::move(text);
  }
}

// The file as it is.
struct ParsedConfig {
  TokenizerConfig config;
  TokenNames names;
  std::optional<std::deque<NumberedToken>> decoder;
};

ParsedConfig parse_config(std::string_view text, const std::string& file) {
  ParsedConfig parsed;
  TokenizerConfig& config = parsed.config;
  config.file = file;
  JsonCursor cursor(text, file);
  const auto flag = [&](bool& value) {
    return [&](std::string_view key) { value = cursor.read_boolean(key); };
  };
  const std::pair<std::string_view, std::function<void(std::string_view)>> settings[] = {
      {"tokenizer_class", [&](std::string_view key) { config.tokenizer_class = cursor.read_string(key); }},
      {"add_prefix_space", flag(config.add_prefix_space)},
      {"add_bos_token", flag(config.add_bos_token)},
      {"add_eos_token", flag(config.add_eos_token)},
      {"added_tokens_decoder",
       [&](std::string_view key) { parsed.decoder = read_numbered_tokens(cursor, key); }},
      {"chat_template", [&](std::string_view) { read_templates(cursor, config); }}};
  uint32_t seen = 0;  // a bit for each of them
  cursor.enter_object("the top");
  for (std::string key; cursor.next_key(key);) {
    const auto* setting = std::find_if(std::begin(settings), std::end(settings),
                                       [&](const auto& known) { return known.first == key; });
    if (setting == std::end(settings)) {
      if (!read_token_name(cursor, key, false, parsed.names)) cursor.skip_value();
      continue;
    }
    const uint32_t bit = 1U << (setting - std::begin(settings));
    if ((seen & bit) != 0) throw_user(ExitCode::kBadFile, "{}: {} occurs twice; expected it once", file, key);
    seen |= bit;
    if (cursor.peek() == JsonCursor::Kind::kNull)
      cursor.skip_value();
    else
      setting->second(setting->first);
  }
  cursor.finish();
  return parsed;
}

TokenizerConfig join_files(ParsedConfig parsed, const TokenNames& map, std::deque<NumberedToken> added,
                           const std::string& added_file) {
  TokenizerConfig& config = parsed.config;
  config.tokens = parsed.decoder
                      ? join_special_tokens(std::move(parsed.names), *std::move(parsed.decoder),
                                            config.file + ": added_tokens_decoder")
                      : join_special_tokens(std::move(parsed.names), map, std::move(added), added_file);
  return std::move(config);
}

}  // namespace

const std::string* TokenizerConfig::special_token(std::string_view name) const {
  const NamedToken* named = tokens.find(name);
  return named == nullptr ? nullptr : &named->token.content;
}

TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& file) {
  return join_files(parse_config(text, file), {}, {}, {});
}

TokenizerConfig read_tokenizer_config(const std::string& directory) {
  const std::string path = join_path(directory, "tokenizer_config.json");
  ParsedConfig parsed;
  parsed.config.file = path;
  if (file_exists(path)) parsed = parse_config(read_small_file(path, kLargestFile), path);
  TokenNames map;
  std::deque<NumberedToken> added;
  const std::string map_file = join_path(directory, "special_tokens_map.json"),
                    added_file = join_path(directory, "added_tokens.json");
  if (!parsed.decoder && file_exists(map_file))
    map = parse_special_tokens_map(read_small_file(map_file, kLargestFile), map_file);
  if (!parsed.decoder && file_exists(added_file))
    added = parse_added_tokens(read_small_file(added_file, kLargestFile), added_file);
  return join_files(std::move(parsed), map, std::move(added), added_file);
}

}  // namespace snug
