#include "formats/tokenizer_config.h"

#include <algorithm>
#include <functional>

#include "base/file.h"
#include "base/json_cursor.h"

namespace snug {
namespace {

constexpr Bytes kLargestFile{16 << 20};
constexpr size_t kMostTemplates = 100;

// A token's text: written as a text, or as an object with its content.
std::string read_token(JsonCursor& cursor, std::string_view field) {
  constexpr std::string_view kExpected = "a token or an object with its content";
  if (cursor.peek() == JsonCursor::Kind::kString) return cursor.read_string(field);
  if (cursor.peek() != JsonCursor::Kind::kObject) cursor.throw_expected(field, kExpected);
  std::optional<std::string> content;
  read_fields(cursor, field, {{"content", [&](std::string_view key) {
                                 content = cursor.read_string(fmt::format("{}.{}", field, key));
                               }}});
  if (!content)
    throw_user(ExitCode::kBadFile, "{}: {} is an object without content; expected {}", cursor.place(), field,
               kExpected);
  return *std::move(content);
}

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

}  // namespace

const std::string* TokenizerConfig::special_token(std::string_view name) const {
  const auto found = std::find_if(special_tokens.begin(), special_tokens.end(),
                                  [&](const auto& token) { return token.first == name; });
  return found == special_tokens.end() ? nullptr : &found->second;
}

TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& file) {
  TokenizerConfig config;
  config.file = file;
  JsonCursor cursor(text, file);
  const auto unless_null = [&](const std::function<void(std::string_view key)>& read) {
    return [&cursor, read](std::string_view key) {
      if (cursor.peek() == JsonCursor::Kind::kNull)
        cursor.skip_value();
      else
        read(key);
    };
  };
  const auto token = unless_null([&](std::string_view key) {
    config.special_tokens.emplace_back(std::string(key), read_token(cursor, key));
  });
  read_fields(cursor, "the top",
              {{"bos_token", token},
               {"eos_token", token},
               {"unk_token", token},
               {"sep_token", token},
               {"pad_token", token},
               {"cls_token", token},
               {"mask_token", token},
               {"tokenizer_class",
                unless_null([&](std::string_view key) { config.tokenizer_class = cursor.read_string(key); })},
               {"add_prefix_space", unless_null([&](std::string_view key) {
                  config.add_prefix_space = cursor.read_boolean(key);
                })},
               {"chat_template", unless_null([&](std::string_view) { read_templates(cursor, config); })}});
  cursor.finish();
  return config;
}

TokenizerConfig read_tokenizer_config(const std::string& directory) {
  const std::string path = join_path(directory, "tokenizer_config.json");
  if (file_exists(path)) return parse_tokenizer_config(read_small_file(path, kLargestFile), path);
  TokenizerConfig none;
  none.file = path;
  return none;
}

}  // namespace snug
