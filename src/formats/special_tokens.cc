#include "formats/special_tokens.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "base/errors.h"
#include "base/json.h"

namespace snug {
namespace {

constexpr size_t kMostNumberedTokens = 100'000;
constexpr size_t kMostListedTokens = 10'000;
constexpr size_t kMostNames = 1'000;    // a model's own, each compared with the others
constexpr size_t kLongestToken = 4096;  // as in tokenizer.json
constexpr std::string_view kExpectedToken = "a token or an object with its content";

// None for an object that has no content, or, where `typed`, that does not call itself a token.
std::optional<TokenText> read_token_object(JsonCursor& cursor, std::string_view field, bool typed) {
  TokenText token;
  std::optional<std::string> content;
  bool has_type = false;
  const auto name = [&](std::string_view key) { return fmt::format("{}.{}", field, key); };
  const auto flag = [&](auto& value) {
    return [&](std::string_view key) { value = cursor.read_boolean(name(key)); };
  };
  read_fields(cursor, field,
              {{"content", [&](std::string_view key) { content = cursor.read_string(name(key)); }},
               {"__type",
                [&](std::string_view) {
                  has_type = true;
                  cursor.skip_value();
                }},
               {"special", flag(token.special)},
               {"normalized",
                [&](std::string_view key) {
                  if (cursor.peek() == JsonCursor::Kind::kNull)
                    cursor.skip_value();
                  else
                    token.normalized = cursor.read_boolean(name(key));
                }},
               {"lstrip", flag(token.lstrip)},
               {"rstrip", flag(token.rstrip)},
               {"single_word", flag(token.single_word)}});
  if (!content || (typed && !has_type)) return std::nullopt;
  token.content = *std::move(content);
  return token;
}

void check_token(const TokenText& token, const JsonCursor& cursor, std::string_view field) {
  if (token.content.size() > kLongestToken)
    throw_user(ExitCode::kBadFile, "{}: {} is a token of {} bytes; expected at most {}", cursor.place(),
               field, token.content.size(), kLongestToken);
}

TokenText read_token_text(JsonCursor& cursor, std::string_view field) {
  TokenText token;
  if (cursor.peek() == JsonCursor::Kind::kString) {
    token = {.content = cursor.read_string(field), .special = true, .normalized = {}};
  } else {
    if (cursor.peek() != JsonCursor::Kind::kObject) cursor.throw_expected(field, kExpectedToken);
    std::optional<TokenText> object = read_token_object(cursor, field, false);
    if (!object)
      throw_user(ExitCode::kBadFile, "{}: {} is an object without content; expected {}", cursor.place(),
                 field, kExpectedToken);
    token = *std::move(object);
  }
  check_token(token, cursor, field);
  return token;
}

NamedToken read_named_token(JsonCursor& cursor, std::string name, bool is_map) {
  NamedToken named{.name = std::move(name), .token = {}, .file = std::string(cursor.place())};
  named.is_object = !is_map && cursor.peek() == JsonCursor::Kind::kObject;
  named.token = read_token_text(cursor, named.name);
  named.token.special = named.token.special || is_map;
  return named;
}

void add_to_list(NamedToken token, const JsonCursor& cursor, std::string_view field, size_t most,
                 std::vector<NamedToken>& tokens) {
  if (tokens.size() == most)
    throw_user(ExitCode::kBadFile, "{}: {} has more than {} tokens", cursor.place(), field, most);
  tokens.push_back(std::move(token));
}

void read_token_list(JsonCursor& cursor, std::string_view field, bool is_map,
                     std::vector<NamedToken>& tokens) {
  cursor.enter_array(field);
  for (size_t i = 0; cursor.next_element(); ++i)
    add_to_list(read_named_token(cursor, fmt::format("{}[{}]", field, i), is_map), cursor, field,
                kMostListedTokens, tokens);
}

// extra_special_tokens as an object: other names of tokens.
void read_token_object_of_names(JsonCursor& cursor, std::string_view field, bool is_map,
                                std::vector<NamedToken>& tokens) {
  cursor.enter_object(field);
  for (std::string name; cursor.next_key(name);)
    add_to_list(read_named_token(cursor, name, is_map), cursor, field, kMostNames, tokens);
}

void refuse_second(const JsonCursor& cursor, std::string_view key) {
  throw_user(ExitCode::kBadFile, "{}: {} occurs twice; expected it once", cursor.place(), key);
}

bool has_name(const std::vector<NamedToken>& tokens, std::string_view name) {
  return std::any_of(tokens.begin(), tokens.end(), [&](const NamedToken& t) { return t.name == name; });
}

// As Python's dict.update: a name that is there keeps its place.
void update(std::vector<NamedToken>& tokens, const std::vector<NamedToken>& with) {
  for (const NamedToken& token : with) {
    const auto found =
        std::find_if(tokens.begin(), tokens.end(), [&](const NamedToken& t) { return t.name == token.name; });
    if (found != tokens.end())
      *found = token;
    else
      tokens.push_back(token);
  }
}

void sort_by_id(std::deque<NumberedToken>& tokens) {
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const NumberedToken& a, const NumberedToken& b) { return a.id < b.id; });
}

SpecialTokens join(TokenNames config, const TokenNames* map, std::deque<NumberedToken> numbered) {
  SpecialTokens joined;
  if (config.has_additional && config.extra.empty()) {
    config.extra = std::move(config.additional);
    config.has_extra = true;
    config.extra_is_object = config.has_additional = false;
  }
  std::vector<NamedToken>& others = config.texts;
  if (config.extra_is_object) {
    update(others, config.extra);
    config.extra.clear();
    config.has_extra = false;
  }
  if (map != nullptr) {
    update(config.standard, map->standard);
    std::erase_if(config.standard, [&](const NamedToken& token) {
      return std::find(map->nulls.begin(), map->nulls.end(), token.name) != map->nulls.end();
    });
    config.nulls.insert(config.nulls.end(), map->nulls.begin(), map->nulls.end());
    update(config.objects, map->objects);
    if (map->extra_is_object) {
      update(others, map->extra);
      config.extra.clear();
      config.has_extra = false;
    } else if (map->has_extra) {
      config.extra.insert(config.extra.end(), map->extra.begin(), map->extra.end());
      config.has_extra = true;
    }
    std::unordered_set<std::string_view> special;
    for (const auto* tokens : {&config.standard, &config.extra})
      for (const NamedToken& named : *tokens)
        if (!named.is_object) special.insert(named.token.content);
    for (NumberedToken& added : numbered) {
      added.token.special = special.contains(added.token.content);
      added.token.normalized = !added.token.special;
    }
    if (map->has_additional) {
      config.additional = map->additional;
      config.has_additional = true;
    }
  }
  if (config.has_additional && !config.has_extra) config.extra = std::move(config.additional);

  for (const std::string_view name : kStandardTokens)
    for (NamedToken& token : config.standard)
      if (token.name == name) joined.named.push_back(std::move(token));
  update(config.objects, others);
  joined.named.insert(joined.named.end(), config.objects.begin(), config.objects.end());
  for (std::string& name : config.nulls)
    if (!has_name(joined.named, name)) joined.nulls.push_back(std::move(name));
  joined.extra = std::move(config.extra);
  sort_by_id(numbered);
  joined.numbered = std::move(numbered);
  return joined;
}

}  // namespace

const NamedToken* SpecialTokens::find(std::string_view name) const {
  const auto found =
      std::find_if(named.begin(), named.end(), [&](const NamedToken& token) { return token.name == name; });
  return found == named.end() ? nullptr : &*found;
}

bool read_token_name(JsonCursor& cursor, const std::string& key, bool is_map, TokenNames& names) {
  using Kind = JsonCursor::Kind;
  const Kind kind = cursor.peek();
  if (key == "extra_special_tokens" || key == "additional_special_tokens") {
    const bool is_extra = key.starts_with("extra");
    bool& has = is_extra ? names.has_extra : names.has_additional;
    std::vector<NamedToken>& tokens = is_extra ? names.extra : names.additional;
    if (has) refuse_second(cursor, key);
    has = true;
    if (kind == Kind::kNull) {
      cursor.skip_value();
    } else if (kind == Kind::kObject && is_extra) {
      names.extra_is_object = true;
      read_token_object_of_names(cursor, key, is_map, tokens);
    } else {
      if (kind != Kind::kArray) cursor.throw_expected(key, "a list of tokens");
      read_token_list(cursor, key, is_map, tokens);
    }
    return true;
  }
  if (std::find(std::begin(kStandardTokens), std::end(kStandardTokens), key) != std::end(kStandardTokens)) {
    if (has_name(names.standard, key) ||
        std::find(names.nulls.begin(), names.nulls.end(), key) != names.nulls.end())
      refuse_second(cursor, key);
    if (kind == Kind::kNull) {
      cursor.skip_value();
      names.nulls.push_back(key);
    } else {
      names.standard.push_back(read_named_token(cursor, key, is_map));
    }
    return true;
  }
  // A model's own names. What ends so and is neither text nor token (add_eos_token: true) is a setting.
  if (!key.ends_with("_token") || (kind != Kind::kString && kind != Kind::kObject)) return false;
  if (has_name(names.objects, key) || has_name(names.texts, key)) refuse_second(cursor, key);
  std::vector<NamedToken>& tokens = is_map || kind == Kind::kObject ? names.objects : names.texts;
  if (kind == Kind::kString) {
    add_to_list(read_named_token(cursor, key, is_map), cursor, "the top", kMostNames, tokens);
  } else if (std::optional<TokenText> token = read_token_object(cursor, key, !is_map)) {
    check_token(*token, cursor, key);
    token->special = token->special || is_map;
    add_to_list(
        {.name = key, .token = *std::move(token), .file = std::string(cursor.place()), .is_object = !is_map},
        cursor, "the top", kMostNames, tokens);
  }
  return true;
}

std::deque<NumberedToken> read_numbered_tokens(JsonCursor& cursor, std::string_view field) {
  std::deque<NumberedToken> tokens;
  cursor.enter_object(field);
  for (std::string key; cursor.next_key(key);) {
    if (tokens.size() == kMostNumberedTokens)
      throw_user(ExitCode::kBadFile, "{}: {} has more than {} tokens", cursor.place(), field,
                 kMostNumberedTokens);
    NumberedToken token;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size() || token.id < 0)
      throw_user(ExitCode::kBadFile, "{}: {} has the key {}; expected ids", cursor.place(), field,
                 quote_json(Json(key)));
    const std::string name = fmt::format("{}.{}", field, key);
    if (cursor.peek() != JsonCursor::Kind::kObject) cursor.throw_expected(name, "an object with its content");
    token.token = read_token_text(cursor, name);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

TokenNames parse_special_tokens_map(std::string_view text, const std::string& file) {
  TokenNames names;
  JsonCursor cursor(text, file);
  cursor.enter_object("the top");
  for (std::string key; cursor.next_key(key);)
    if (!read_token_name(cursor, key, true, names)) cursor.skip_value();
  cursor.finish();
  return names;
}

std::deque<NumberedToken> parse_added_tokens(std::string_view text, const std::string& file) {
  std::deque<NumberedToken> tokens;
  JsonCursor cursor(text, file);
  cursor.enter_object("the top");
  for (std::string content; cursor.next_key(content);) {
    const auto field = [&] { return fmt::format("the id of {}", quote_json(Json(content))); };
    if (tokens.size() == kMostNumberedTokens)
      throw_user(ExitCode::kBadFile, "{}: has more than {} tokens", file, kMostNumberedTokens);
    const std::optional<int64_t> id = cursor.take_integer();
    if (!id || *id < 0) {
      if (id) throw_unexpected(file, field(), *id, "a non-negative integer");
      cursor.throw_expected(field(), "a non-negative integer");
    }
    tokens.push_back({.id = *id, .token = {.content = content, .normalized = {}}});
    check_token(tokens.back().token, cursor, field());
  }
  cursor.finish();
  return tokens;
}

SpecialTokens join_special_tokens(TokenNames config, std::deque<NumberedToken> decoder, std::string field) {
  SpecialTokens joined = join(std::move(config), nullptr, std::move(decoder));
  joined.numbered_field = std::move(field);
  joined.has_decoder = true;
  return joined;
}

SpecialTokens join_special_tokens(TokenNames config, const TokenNames& map, std::deque<NumberedToken> added,
                                  std::string added_file) {
  SpecialTokens joined = join(std::move(config), &map, std::move(added));
  joined.numbered_field = std::move(added_file);
  return joined;
}

}  // namespace snug
