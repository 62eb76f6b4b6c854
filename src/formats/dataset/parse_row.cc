#include "formats/dataset/parse_row.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <utility>

#include "base/json.h"
#include "base/json_cursor.h"

namespace snug {
namespace {

// A whole row.
void read_row(JsonCursor& cursor, std::initializer_list<JsonField> fields) {
  read_fields(cursor, "the row", fields);
  cursor.finish();
}

[[noreturn]] void throw_missing(std::string_view place, std::string_view field, std::string_view expected) {
  throw_user(ExitCode::kBadFile, "{}: {} is missing; expected {}", place, field, expected);
}

bool is_null(JsonCursor& cursor) {
  if (cursor.peek() != JsonCursor::Kind::kNull) return false;
  cursor.skip_value();
  return true;
}

std::optional<std::string> read_optional_string(JsonCursor& cursor, std::string_view field) {
  if (is_null(cursor)) return std::nullopt;
  return cursor.read_string(field);
}

// --- Plain text ---------------------------------------------------------------------------------------------------------------

TextRow parse_text(JsonCursor& cursor, std::string_view text_field) {
  const std::string_view name = text_field.empty() ? "text" : text_field;
  std::optional<std::string> text, content;
  read_row(cursor, {{name,
                     [&](std::string_view field) {
                       content.reset();
                       text = cursor.read_string(field);
                     }},
                    {text_field.empty() ? "content" : "", [&](std::string_view field) {
                       // With both, text is the document and content may be anything.
                       if (!text && cursor.peek() == JsonCursor::Kind::kString)
                         content = cursor.read_string(field);
                       else
                         cursor.skip_value();
                     }}});
  if (!text && !content) throw_missing(cursor.place(), name, "a string");
  return {std::move(text ? *text : *content)};
}

// --- Conversations ------------------------------------------------------------------------------------------------------------

// Of a conversation: variables for the chat template, as TRL calls the field.
constexpr std::string_view kVariables = "chat_template_kwargs";

Json message(std::string_view role, std::string content) {
  Json made = Json::object();
  made["role"] = std::string(role);
  made["content"] = std::move(content);
  return made;
}

// An array, or the text of one as JSON.
Json read_tools(JsonCursor& cursor, std::string_view field) {
  if (is_null(cursor)) return nullptr;
  if (cursor.peek() != JsonCursor::Kind::kString) {
    Json tools = cursor.read_tree(field);
    if (!tools.is_array()) throw_unexpected(cursor.place(), field, tools, "an array of tools");
    return tools;
  }
  const std::string text = cursor.read_string(field);
  if (text.empty()) return nullptr;
  Json tools = parse_tree(text, fmt::format("{}: {}", cursor.place(), field));
  if (!tools.is_array()) throw_unexpected(cursor.place(), field, tools, "an array of tools");
  return tools;
}

// Content as a list of parts of text becomes one string, the parts one behind the other: models of text have no other kind.
void join_parts(Json& content, std::string_view place, const std::string& field) {
  std::vector<std::string_view> texts;
  size_t bytes = 0;
  const auto add = [&](const Json& text) {
    texts.push_back(text.get_ref<const std::string&>());
    bytes += texts.back().size();
  };
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string name = fmt::format("{}[{}]", field, i);
    if (part.is_string()) {
      add(part);
      continue;
    }
    if (!part.is_object()) throw_unexpected(place, name, part, R"({"type": "text", "text": …})");
    if (const Json type = part.value("type", Json("text")); type != "text")
      throw_unexpected(place, name + ".type", type, R"("text": Snug trains models of text)");
    const auto text = part.find("text");
    if (text == part.end()) throw_missing(place, name + ".text", "a string");
    if (!text->is_string()) throw_unexpected(place, name + ".text", *text, "a string");
    add(*text);
  }
  std::string joined;
  joined.reserve(bytes);
  for (const std::string_view text : texts) joined += text;
  content = std::move(joined);
}

// Checks messages of OpenAI's form and brings their contents to strings.
void check_messages(Json& messages, std::string_view place, std::string_view field) {
  if (!messages.is_array() || messages.empty())
    throw_unexpected(place, field, messages, "an array of messages, at least one");
  for (size_t i = 0; i < messages.size(); ++i) {
    Json& made = messages[i];
    const std::string name = fmt::format("{}[{}]", field, i);
    if (!made.is_object()) throw_unexpected(place, name, made, R"({"role": …, "content": …})");
    const auto role = made.find("role");
    if (role == made.end()) throw_missing(place, name + ".role", "user, assistant, system, tool, …");
    if (!role->is_string())
      throw_unexpected(place, name + ".role", *role, "a string: user, assistant, system, tool, …");
    const auto content = made.find("content");
    const auto calls = made.find("tool_calls");
    const bool has_calls = calls != made.end() && calls->is_array() && !calls->empty();
    if (content == made.end() || content->is_null()) {
      if (has_calls) continue;
      if (content == made.end()) throw_missing(place, name + ".content", "a string");
      throw_unexpected(place, name + ".content", *content, "a string");
    }
    if (content->is_array())
      join_parts(*content, place, name + ".content");
    else if (!content->is_string())
      throw_unexpected(place, name + ".content", *content, "a string or a list of parts");
  }
}

ChatRow parse_messages(JsonCursor& cursor) {
  std::optional<Json> messages;
  ChatRow row;
  read_row(cursor, {{"messages", [&](std::string_view field) { messages = cursor.read_tree(field); }},
                    {"tools", [&](std::string_view field) { row.tools = read_tools(cursor, field); }},
                    {kVariables, [&](std::string_view field) { row.variables = cursor.read_tree(field); }}});
  if (!messages) throw_missing(cursor.place(), "messages", "an array of messages");
  check_messages(*messages, cursor.place(), "messages");
  row.messages = std::move(*messages);
  return row;
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kShareGptRoles = {{
    {"human", "user"},
    {"user", "user"},
    {"gpt", "assistant"},
    {"assistant", "assistant"},
    {"chatgpt", "assistant"},
    {"bing", "assistant"},
    {"bard", "assistant"},
    {"model", "assistant"},
    {"system", "system"},
    {"function_call", "function_call"},
    {"observation", "tool"},
    {"tool", "tool"},
    {"function_response", "tool"},
}};

// The role of a turn that is called so; empty for none.
std::string_view role_of(const Json& called, const RowNames& names) {
  for (const auto& [name, role] : names.roles)
    if (called == name) return role;
  if (names.roles.empty())
    for (const auto& [name, role] : kShareGptRoles)
      if (called == name) return role;
  return {};
}

std::string known_roles(const RowNames& names) {
  if (names.roles.empty())
    return "human, gpt, system, function_call, observation or one of their other names";
  std::string list;
  for (const auto& [name, role] : names.roles) list += (list.empty() ? "" : ", ") + name;
  return list;
}

// A turn {"from": "function_call", "value": "{\"name\": …, \"arguments\": …}"}, or a list of calls, as messages have them.
Json function_calls(const std::string& value, std::string_view place, const std::string& field) {
  Json calls = parse_tree(value, fmt::format("{}: {}", place, field));
  if (calls.is_object()) calls = Json::array({std::move(calls)});
  Json made = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!calls[i].is_object() || !calls[i].contains("name") || !calls[i].contains("arguments"))
      throw_unexpected(place, field, calls[i], R"({"name": …, "arguments": {…}})");
    Json call = Json::object();
    call["type"] = "function";
    call["function"] = std::move(calls[i]);
    made.push_back(std::move(call));
  }
  return made;
}

ChatRow parse_sharegpt(JsonCursor& cursor, const RowNames& names) {
  std::optional<Json> turns;
  std::optional<std::string> system;
  ChatRow row;
  read_row(cursor,
           {{names.conversations, [&](std::string_view field) { turns = cursor.read_tree(field); }},
            {names.system, [&](std::string_view field) { system = read_optional_string(cursor, field); }},
            {names.tools, [&](std::string_view field) { row.tools = read_tools(cursor, field); }},
            {kVariables, [&](std::string_view field) { row.variables = cursor.read_tree(field); }}});
  const std::string_view place = cursor.place();
  const std::string& field = names.conversations;
  if (!turns) throw_missing(place, field, "an array of turns");
  if (!turns->is_array() || turns->empty())
    throw_unexpected(place, field, *turns, "an array of turns, at least one");
  Json messages = Json::array();
  bool has_system = false, user_spoke = false;
  for (size_t i = 0; i < turns->size(); ++i) {
    Json& turn = (*turns)[i];
    const std::string name = fmt::format("{}[{}]", field, i);
    if (!turn.is_object())
      throw_unexpected(place, name, turn, fmt::format(R"({{"{}": …, "{}": …}})", names.from, names.value));
    // Some have the names of messages.
    const bool as_message = !turn.contains(names.from) && turn.contains("role");
    const std::string from_name = as_message ? "role" : names.from,
                      value_name = as_message ? "content" : names.value;
    const auto from = turn.find(from_name);
    if (from == turn.end()) throw_missing(place, name + "." + from_name, known_roles(names));
    const std::string_view role = role_of(*from, names);
    if (role.empty()) throw_unexpected(place, name + "." + from_name, *from, known_roles(names));
    const auto value = turn.find(value_name);
    if (value == turn.end()) throw_missing(place, name + "." + value_name, "a string");
    if (value->is_array() && as_message) join_parts(*value, place, name + "." + value_name);
    if (!value->is_string()) throw_unexpected(place, name + "." + value_name, *value, "a string");
    auto& text = value->get_ref<std::string&>();
    has_system = has_system || role == "system";
    user_spoke = user_spoke || role == "user";
    if (role == "function_call") {
      Json made = message("assistant", "");
      made["tool_calls"] = function_calls(text, place, name + "." + value_name);
      messages.push_back(std::move(made));
    } else if (role == "assistant" && !user_spoke) {
      row.began_with_answer = true;
    } else {
      messages.push_back(message(role, std::move(text)));
    }
  }
  if (!user_spoke)
    throw_user(ExitCode::kBadFile, "{}: {} has no turn of {}; expected one", place, field,
               names.roles.empty() ? "human" : names.roles.front().first);
  if (system && !system->empty() && !has_system)
    messages.insert(messages.begin(), message("system", std::move(*system)));
  row.messages = std::move(messages);
  return row;
}

// --- Instructions -------------------------------------------------------------------------------------------------------------

struct AlpacaFields {
  std::string instruction, input, output, system;
  std::vector<std::pair<std::string, std::string>> history;
};

std::vector<std::pair<std::string, std::string>> read_history(JsonCursor& cursor, std::string_view field) {
  std::vector<std::pair<std::string, std::string>> pairs;
  if (is_null(cursor)) return pairs;
  const Json history = cursor.read_tree(field);
  if (!history.is_array()) throw_unexpected(cursor.place(), field, history, "an array of [question, answer]");
  for (size_t i = 0; i < history.size(); ++i) {
    const Json& pair = history[i];
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      throw_unexpected(cursor.place(), fmt::format("{}[{}]", field, i), pair,
                       "[question, answer], two strings");
    pairs.emplace_back(pair[0].get<std::string>(), pair[1].get<std::string>());
  }
  return pairs;
}

AlpacaFields read_alpaca(JsonCursor& cursor, const RowNames& names) {
  std::optional<std::string> instruction, output;
  AlpacaFields row;
  const auto read_optional = [&](std::string& text, std::string_view field) {
    text = read_optional_string(cursor, field).value_or("");
  };
  read_row(cursor,
           {{names.instruction, [&](std::string_view field) { instruction = cursor.read_string(field); }},
            {names.input, [&](std::string_view field) { read_optional(row.input, field); }},
            {names.output, [&](std::string_view field) { output = cursor.read_string(field); }},
            {names.system, [&](std::string_view field) { read_optional(row.system, field); }},
            {names.history, [&](std::string_view field) { row.history = read_history(cursor, field); }}});
  if (!instruction) throw_missing(cursor.place(), names.instruction, "a string");
  if (!output) throw_missing(cursor.place(), names.output, "a string");
  row.instruction = std::move(*instruction);
  row.output = std::move(*output);
  return row;
}

// As LLaMA-Factory has it: the input on a line of its own below the instruction.
ChatRow alpaca_chat(AlpacaFields fields) {
  ChatRow row;
  row.messages = Json::array();
  if (!fields.system.empty()) row.messages.push_back(message("system", std::move(fields.system)));
  for (auto& [question, answer] : fields.history) {
    row.messages.push_back(message("user", std::move(question)));
    row.messages.push_back(message("assistant", std::move(answer)));
  }
  std::string question = std::move(fields.instruction);
  if (!fields.input.empty()) {
    question.reserve(question.size() + 1 + fields.input.size());
    question += "\n";
    question += fields.input;
  }
  row.messages.push_back(message("user", std::move(question)));
  row.messages.push_back(message("assistant", std::move(fields.output)));
  return row;
}

// The prompt of tatsu-lab/stanford_alpaca (train.py), with a line feed behind the last heading as today's trainers have it.
CompletionRow alpaca_completion(AlpacaFields fields) {
  constexpr std::string_view kWithoutInput =
      "Below is an instruction that describes a task. Write a response that appropriately completes the "
      "request.";
  constexpr std::string_view kWithInput =
      "Below is an instruction that describes a task, paired with an input that provides further context. "
      "Write a response that "
      "appropriately completes the request.";
  std::vector<std::string_view> parts;
  parts.push_back(!fields.system.empty() ? fields.system : fields.input.empty() ? kWithoutInput : kWithInput);
  for (const auto& [question, answer] : fields.history)
    parts.insert(parts.end(), {"\n\n### Instruction:\n", question, "\n\n### Response:\n", answer});
  parts.insert(parts.end(), {"\n\n### Instruction:\n", fields.instruction});
  if (!fields.input.empty()) parts.insert(parts.end(), {"\n\n### Input:\n", fields.input});
  parts.emplace_back("\n\n### Response:\n");
  CompletionRow row;
  size_t bytes = 0;
  for (const std::string_view part : parts) bytes += part.size();
  row.prompt.reserve(bytes);
  for (const std::string_view part : parts) row.prompt += part;
  row.completion = std::move(fields.output);
  return row;
}

Row parse_prompt_completion(JsonCursor& cursor) {
  using Side = std::variant<std::monostate, std::string, Json>;
  Side prompt, completion;
  Json tools, variables;
  const auto read = [&](Side& side, std::string_view field) {
    switch (cursor.peek()) {
      case JsonCursor::Kind::kString:
        side = cursor.read_string(field);
        break;
      case JsonCursor::Kind::kArray:
        side = cursor.read_tree(field);
        break;
      default:
        cursor.throw_expected(field, "a string or an array of messages");
    }
  };
  read_row(cursor, {{"prompt", [&](std::string_view field) { read(prompt, field); }},
                    {"completion", [&](std::string_view field) { read(completion, field); }},
                    {"tools", [&](std::string_view field) { tools = read_tools(cursor, field); }},
                    {kVariables, [&](std::string_view field) { variables = cursor.read_tree(field); }}});
  const std::string_view place = cursor.place();
  if (prompt.index() == 0) throw_missing(place, "prompt", "a string or an array of messages");
  if (completion.index() == 0) throw_missing(place, "completion", "a string or an array of messages");
  if (prompt.index() != completion.index())
    throw_user(ExitCode::kBadFile,
               "{}: prompt is {} and completion {}; expected both strings or both arrays of messages", place,
               prompt.index() == 1 ? "a string" : "an array",
               completion.index() == 1 ? "a string" : "an array");
  if (prompt.index() == 1)
    return CompletionRow{std::move(std::get<1>(prompt)), std::move(std::get<1>(completion))};
  check_messages(std::get<2>(prompt), place, "prompt");
  check_messages(std::get<2>(completion), place, "completion");
  ChatRow row{.messages = std::move(std::get<2>(prompt)),
              .tools = std::move(tools),
              .variables = std::move(variables)};
  row.learned_from = static_cast<int64_t>(row.messages.size());
  for (Json& made : std::get<2>(completion)) row.messages.push_back(std::move(made));
  return row;
}

// --- Segments -----------------------------------------------------------------------------------------------------------------

Segment read_segment(JsonCursor& cursor, const std::string& name) {
  std::optional<std::string> text;
  std::optional<bool> learned;
  cursor.enter_object(name);
  for (std::string key; cursor.next_key(key);) {
    if (key != "text" && key != "label") {
      cursor.skip_value();
      continue;
    }
    const std::string field = fmt::format("{}.{}", name, key);
    if (key == "text" ? text.has_value() : learned.has_value())
      throw_user(ExitCode::kBadFile, "{}: {} occurs twice; expected it once", cursor.place(), field);
    if (key == "text")
      text = cursor.read_string(field);
    else
      learned = cursor.read_boolean(field);
  }
  if (!text) throw_missing(cursor.place(), name + ".text", "a string");
  if (!learned) throw_missing(cursor.place(), name + ".label", "true for what is learned, or false");
  return {.text = std::move(*text), .learned = *learned};
}

SegmentRow parse_segments(JsonCursor& cursor) {
  std::optional<SegmentRow> row;
  read_row(cursor,
           {{"segments", [&](std::string_view field) {
               cursor.enter_array(field);
               std::vector<Segment>& segments = row.emplace().segments;
               while (cursor.next_element()) {
                 if (std::ssize(segments) == JsonCursor::kMostTreeValues)
                   throw_user(ExitCode::kBadFile, "{}: {} has more than {} elements; expected fewer",
                              cursor.place(), field, segments.size());
                 segments.push_back(read_segment(cursor, fmt::format("{}[{}]", field, segments.size())));
               }
             }}});
  constexpr std::string_view kSegments = R"(an array of {"text": …, "label": true or false}, at least one)";
  if (!row) throw_missing(cursor.place(), "segments", kSegments);
  if (row->segments.empty())
    throw_user(ExitCode::kBadFile, "{}: segments is empty; expected {}", cursor.place(), kSegments);
  return std::move(*row);
}

// --- Tokens -------------------------------------------------------------------------------------------------------------------

std::vector<int32_t> read_ids(JsonCursor& cursor, std::string_view field, int32_t least,
                              std::string_view expected) {
  cursor.enter_array(field);
  std::vector<int32_t> ids;
  ids.reserve(cursor.count_elements());
  while (cursor.next_element()) {
    const std::optional<int64_t> value = cursor.take_integer();
    if (!value) cursor.throw_expected(fmt::format("{}[{}]", field, ids.size()), expected);
    if (*value < least || *value > std::numeric_limits<int32_t>::max())
      throw_user(ExitCode::kBadFile, "{}: {}[{}] is {}; expected {}", cursor.place(), field, ids.size(),
                 *value, expected);
    ids.push_back(static_cast<int32_t>(*value));
  }
  return ids;
}

// An array of 0 and 1.
std::vector<bool> read_marks(JsonCursor& cursor, std::string_view field) {
  std::vector<bool> marks;
  cursor.enter_array(field);
  while (cursor.next_element()) {
    const std::optional<int64_t> value = cursor.take_integer();
    if (!value) cursor.throw_expected(fmt::format("{}[{}]", field, marks.size()), "0 or 1");
    if (*value != 0 && *value != 1)
      throw_user(ExitCode::kBadFile, "{}: {}[{}] is {}; expected 0 or 1", cursor.place(), field, marks.size(),
                 *value);
    marks.push_back(*value == 1);
  }
  return marks;
}

TokenRow parse_tokens(JsonCursor& cursor) {
  TokenRow row;
  bool has_ids = false, has_labels = false;
  std::optional<std::vector<bool>> attended, completion, assistant;
  const auto marks = [&](std::optional<std::vector<bool>>& to) {
    return [&](std::string_view field) {
      if (!is_null(cursor)) to = read_marks(cursor, field);
    };
  };
  read_row(cursor, {{"input_ids",
                     [&](std::string_view field) {
                       row.ids = read_ids(cursor, field, 0, "the id of a token");
                       has_ids = true;
                     }},
                    {"labels",
                     [&](std::string_view field) {
                       if (is_null(cursor)) return;
                       row.labels = read_ids(cursor, field, -100, "an id, or -100 for what is not learned");
                       has_labels = true;
                     }},
                    {"completion_mask", marks(completion)},
                    {"assistant_masks", marks(assistant)},
                    {"attention_mask", marks(attended)}});
  const std::string_view place = cursor.place();
  if (!has_ids) throw_missing(place, "input_ids", "an array of ids");
  const auto check_length = [&](std::string_view field, size_t length) {
    if (length != row.ids.size())
      throw_user(ExitCode::kBadFile, "{}: {} has {} elements; expected {}, as input_ids has", place, field,
                 length, row.ids.size());
  };
  if (has_labels) {
    check_length("labels", row.labels.size());
    for (size_t i = 0; i < row.ids.size(); ++i)
      if (row.labels[i] != -100 && row.labels[i] != row.ids[i])
        throw_user(
            ExitCode::kBadFile,
            "{}: labels[{}] is {}; expected -100 or input_ids[{}], which is {} (labels are not shifted)",
            place, i, row.labels[i], i, row.ids[i]);
  }
  for (const auto& [field, learned] :
       {std::pair("completion_mask", &completion), {"assistant_masks", &assistant}}) {
    if (!*learned) continue;
    check_length(field, (*learned)->size());
    if (!has_labels) row.labels = row.ids;
    has_labels = true;
    for (size_t i = 0; i < row.ids.size(); ++i)
      if (!(**learned)[i]) row.labels[i] = -100;
  }
  if (!attended) return row;
  check_length("attention_mask", attended->size());
  // What is not attended to is padding, at one end or both: it is told by its place and never by its id.
  const auto first = std::find(attended->begin(), attended->end(), true);
  const auto last = std::find(attended->rbegin(), attended->rend(), true).base();
  if (const auto hole = std::find(first, last, false); first < last && hole != last)
    throw_user(ExitCode::kBadFile,
               "{}: attention_mask[{}] is 0 between ones; expected zeros at the ends alone", place,
               hole - attended->begin());
  const auto keep = [&](std::vector<int32_t>& values) {
    if (first >= last) return values.clear();
    values.erase(values.begin() + (last - attended->begin()), values.end());
    values.erase(values.begin(), values.begin() + (first - attended->begin()));
  };
  keep(row.ids);
  if (has_labels) keep(row.labels);
  return row;
}

}  // namespace

DatasetFormat detect_row_format(std::string_view row, std::string_view place) {
  JsonCursor cursor(row, place);
  cursor.enter_object();
  std::vector<std::string> keys;
  for (std::string key; cursor.next_key(key); cursor.skip_value())
    if (keys.size() < 1000) keys.push_back(key);
  cursor.finish();
  const auto has = [&](std::string_view key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  if (has("input_ids")) return DatasetFormat::kTokens;
  if (has("messages")) return DatasetFormat::kMessages;
  if (has("conversations")) return DatasetFormat::kShareGpt;
  if (has("prompt") && has("completion")) return DatasetFormat::kPromptCompletion;
  if (has("segments")) return DatasetFormat::kSegments;
  if (has("instruction") && has("output")) return DatasetFormat::kAlpaca;
  if (has("chosen") && has("rejected"))
    throw_user(ExitCode::kBadFile,
               "{}: has the fields of preference data (chosen, rejected), which Snug does not train on",
               place);
  if (has("text") || has("content")) return DatasetFormat::kJsonText;
  Json found = Json::array();
  for (size_t i = 0; i < keys.size() && i < 20; ++i) found.push_back(keys[i].substr(0, 80));
  throw_user(ExitCode::kBadFile,
             "{}: has the fields {}; expected those of a known format: text; instruction and output "
             "(alpaca); conversations "
             "(sharegpt); messages; prompt and completion; segments; input_ids (tokens)",
             place, found.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Row parse_row(DatasetFormat format, std::string_view row, std::string_view place, const RowReading& reading) {
  JsonCursor cursor(row, place);
  const RowNames& names = reading.names;
  switch (format) {
    case DatasetFormat::kJsonText:
      return parse_text(cursor, names.text);
    case DatasetFormat::kAlpaca:
      if (reading.has_chat_template) return alpaca_chat(read_alpaca(cursor, names));
      return alpaca_completion(read_alpaca(cursor, names));
    case DatasetFormat::kShareGpt:
      return parse_sharegpt(cursor, names);
    case DatasetFormat::kMessages:
      return parse_messages(cursor);
    case DatasetFormat::kPromptCompletion:
      return parse_prompt_completion(cursor);
    case DatasetFormat::kSegments:
      return parse_segments(cursor);
    case DatasetFormat::kTokens:
      return parse_tokens(cursor);
    case DatasetFormat::kText:
    case DatasetFormat::kShards:
      break;
  }
  throw_internal("{} has no rows", dataset_format_name(format));
}

}  // namespace snug
