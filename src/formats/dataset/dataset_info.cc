#include "formats/dataset/dataset_info.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/file.h"
#include "base/json.h"

namespace snug {
namespace {

constexpr JsonLimits kLimits{.depth = 8, .values = 10'000};
constexpr size_t kMostListed = 20;

// One dataset's entry, or an object in it: its keys are all known, or refused.
class Entry {
 public:
  Entry(const Json& json, std::string place) : json_(json), place_(std::move(place)) {
    if (!json_.is_object())
      throw_user(ExitCode::kBadFile, "{} is {}; expected an object", place_, quote_json(json_));
  }

  // Null counts as missing.
  const Json* find(std::string_view key) const {
    const auto found = json_.find(std::string(key));
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  std::optional<std::string> text(std::string_view key) const {
    const Json* found = find(key);
    if (found == nullptr) return std::nullopt;
    if (!found->is_string() || found->get_ref<const std::string&>().empty()) refuse(key, "a name");
    return found->get<std::string>();
  }
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const {
    throw_user(ExitCode::kBadFile, "{}.{} is {}; expected {}", place_, key,
               quote_json(json_.at(std::string(key))), expected);
  }
  // Refuses a key that is there.
  void refuse_if_given(std::initializer_list<std::string_view> keys, std::string_view expected) const {
    for (const std::string_view key : keys)
      if (find(key) != nullptr) refuse(key, expected);
  }
  void refuse_others(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : json_.items())
      if (std::find(known.begin(), known.end(), key) == known.end())
        throw_user(ExitCode::kBadFile, "{} has the key {}; expected some of {}", place_,
                   quote_json(Json(key)), fmt::join(known, ", "));
  }
  const std::string& place() const { return place_; }

 private:
  const Json& json_;
  std::string place_;
};

void check_distinct(const Entry& entry,
                    const std::vector<std::pair<std::string_view, std::string_view>>& names) {
  std::map<std::string_view, std::string_view> seen;  // name → key
  for (const auto& [key, name] : names) {
    if (name.empty()) continue;
    if (const auto [first, is_new] = seen.emplace(name, key); !is_new)
      throw_user(ExitCode::kBadFile, "{}.{} is \"{}\", as {} is; expected different names", entry.place(),
                 key, name, first->second);
  }
}

// The usual names where nothing is said of columns.
void read_columns(const Entry& entry, DatasetInfo& info) {
  RowNames& names = info.names;
  const bool is_sharegpt = info.format == DatasetFormat::kShareGpt;
  names.system = names.history = names.tools = "";
  const Json* json = entry.find("columns");
  if (json == nullptr) return;
  const Entry columns(*json, entry.place() + ".columns");
  columns.refuse_others({"prompt", "query", "response", "history", "messages", "system", "tools", "images",
                         "videos", "audios", "chosen", "rejected", "kto_tag"});
  columns.refuse_if_given({"images", "videos", "audios"}, "none: Snug trains models of text");
  columns.refuse_if_given({"chosen", "rejected", "kto_tag"}, "none: Snug does not train on preferences");
  names.system = columns.text("system").value_or("");
  if (is_sharegpt) {
    columns.refuse_if_given({"prompt", "query", "response", "history"}, "none: formatting is sharegpt");
    names.conversations = columns.text("messages").value_or("");
    names.tools = columns.text("tools").value_or("");
    if (names.conversations.empty())
      throw_user(ExitCode::kBadFile, "{}.messages is missing; expected the field of the conversations",
                 columns.place());
    check_distinct(columns,
                   {{"messages", names.conversations}, {"system", names.system}, {"tools", names.tools}});
    return;
  }
  columns.refuse_if_given({"messages", "tools"},
                          "none: formatting is alpaca, which has no turns and no tools");
  names.instruction = columns.text("prompt").value_or("");
  names.input = columns.text("query").value_or("");
  names.output = columns.text("response").value_or("");
  names.history = columns.text("history").value_or("");
  if (names.instruction.empty())
    throw_user(ExitCode::kBadFile, "{}.prompt is missing; expected the field of the prompts",
               columns.place());
  check_distinct(columns, {{"prompt", names.instruction},
                           {"query", names.input},
                           {"response", names.output},
                           {"history", names.history},
                           {"system", names.system}});
  if (!names.output.empty()) return;
  columns.refuse_if_given({"query", "history", "system"},
                          "response beside it, or prompt alone, which is a document");
  info.format = DatasetFormat::kJsonText;
  info.names = {.text = names.instruction};
}

void read_tags(const Entry& entry, RowNames& names) {
  const Json* json = entry.find("tags");
  if (json == nullptr) return;
  const Entry tags(*json, entry.place() + ".tags");
  tags.refuse_others({"role_tag", "content_tag", "user_tag", "assistant_tag", "observation_tag",
                      "function_tag", "system_tag"});
  names.from = tags.text("role_tag").value_or(names.from);
  names.value = tags.text("content_tag").value_or(names.value);
  check_distinct(tags, {{"role_tag", names.from}, {"content_tag", names.value}});
  names.roles = {{tags.text("user_tag").value_or("human"), "user"},
                 {tags.text("assistant_tag").value_or("gpt"), "assistant"},
                 {tags.text("observation_tag").value_or("observation"), "tool"},
                 {tags.text("function_tag").value_or("function_call"), "function_call"},
                 {tags.text("system_tag").value_or("system"), "system"}};
  check_distinct(tags, {{"user_tag", names.roles[0].first},
                        {"assistant_tag", names.roles[1].first},
                        {"observation_tag", names.roles[2].first},
                        {"function_tag", names.roles[3].first},
                        {"system_tag", names.roles[4].first}});
}

DatasetInfo read_entry(const Entry& entry, const std::string& folder) {
  entry.refuse_if_given({"hf_hub_url", "ms_hub_url", "om_hub_url", "cloud_file_name"},
                        "file_name: download the dataset and name its file");
  entry.refuse_if_given({"script_url"}, "file_name: run the script and save its rows as JSON");
  // file_sha1 is passed over, as LLaMA-Factory only warns of another.
  entry.refuse_others({"file_name", "formatting", "columns", "tags", "ranking", "split", "subset", "folder",
                       "num_samples", "file_sha1", "hf_hub_url", "ms_hub_url", "om_hub_url",
                       "cloud_file_name", "script_url"});
  entry.refuse_if_given({"subset", "folder", "num_samples"}, "none: Snug reads all rows of file_name");
  if (const Json* split = entry.find("split"); split != nullptr && *split != "train")
    entry.refuse("split", "\"train\": files have no other");
  if (const Json* ranking = entry.find("ranking"); ranking != nullptr && *ranking != false)
    entry.refuse("ranking", "false: Snug does not train on preferences");

  DatasetInfo info;
  const std::string formatting = entry.text("formatting").value_or("alpaca");
  if (formatting == "sharegpt")
    info.format = DatasetFormat::kShareGpt;
  else if (formatting != "alpaca")
    entry.refuse("formatting",
                 "alpaca or sharegpt; rows of another format need no description: name their file");
  const std::optional<std::string> file = entry.text("file_name");
  if (!file)
    throw_user(ExitCode::kBadFile, "{}.file_name is missing; expected a file or a folder", entry.place());
  info.path = file->starts_with('/') ? *file : join_path(folder, *file);
  if (!file_exists(info.path) && !directory_exists(info.path))
    entry.refuse("file_name", fmt::format("a file or a folder; there is no {}", info.path));
  read_columns(entry, info);
  if (info.format == DatasetFormat::kShareGpt)
    read_tags(entry, info.names);
  else
    entry.refuse_if_given({"tags"}, "none: formatting is not sharegpt");
  return info;
}

}  // namespace

std::string to_string(const RowNames& names) {
  const Json all = {names.text,    names.instruction,   names.input, names.output,
                    names.history, names.conversations, names.from,  names.value,
                    names.tools,   names.system,        names.roles};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

DatasetInfo read_dataset_info(const std::string& path, const std::string& dataset) {
  const std::string text = read_small_file(path, kLimits.size);
  std::optional<Json> found;
  std::vector<std::string> names;
  parse_json_members(text, path, kLimits, "", [&](std::string&& name, Json&& value) {
    if (name == dataset && found)
      throw_user(ExitCode::kBadFile, "{}: \"{}\" occurs twice; expected it once", path, name);
    if (name == dataset) found = std::move(value);
    if (names.size() < kMostListed) names.push_back(std::move(name));
  });
  if (!found)
    throw_user(ExitCode::kBadFile, "{}: has no dataset \"{}\"; expected one of those it has: {}", path,
               dataset, fmt::join(names, ", "));
  return read_entry(Entry(*found, fmt::format("{}: {}", path, dataset)), parent_directory(path));
}

}  // namespace snug
