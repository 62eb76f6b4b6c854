#include "formats/run_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <sstream>

#include "base/errors.h"
#include "base/file.h"

namespace snug {
namespace {

constexpr Bytes kLargestFile = kMiB;

int line_of(const YAML::Node& node) { return node.Mark().line + 1; }

// Whether a quoted value that begins at `mark` ends on its line. yaml-cpp takes the end of the file for a missing quote, so
// that one forgotten quote would swallow every setting after it.
bool ends_on_its_line(std::string_view text, const YAML::Mark& mark) {
  for (int line = 0; line < mark.line; ++line) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  const auto column = static_cast<size_t>(mark.column);
  if (column >= text.size() || (text[column] != '"' && text[column] != '\''))
    return true;  // it stands behind an anchor
  const char quote = text[column];
  for (size_t i = column + 1; i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"')
      ++i;
    else if (text[i] == quote && quote == '\'' && text.substr(i + 1, 1) == "'")
      ++i;
    else if (text[i] == quote)
      return true;
  }
  return false;
}

// A plain scalar that every YAML reader takes for this very text, or for the number or truth value it looks
// like.
bool is_safe_plain(std::string_view value) {
  // Words YAML 1.1 reads as a boolean or null.
  static constexpr std::array<std::string_view, 9> kTaken = {"y",   "n",    "yes", "no", "on",
                                                             "off", "null", "~",   ""};
  std::string lower;
  for (char c : value) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (std::find(kTaken.begin(), kTaken.end(), lower) != kTaken.end()) return false;
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("_./+-").find(c) != std::string_view::npos;
  };
  // A leading '-' or '.' is left to numbers; a lone "-" begins a list.
  return std::all_of(value.begin(), value.end(), is_plain) &&
         (value.size() > 1 || std::isalnum(static_cast<unsigned char>(value[0])));
}

std::string quoted(std::string_view value) {
  std::string text = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text + '"';
}

}  // namespace

std::vector<RunSetting> parse_run_config(std::string_view text, const std::string& file) {
  std::vector<YAML::Node> documents;
  try {
    documents = YAML::LoadAll(std::string(text));
  } catch (const YAML::Exception& error) {
    throw_user(ExitCode::kUsage, "{}: line {}: not valid YAML: {}", file, error.mark.line + 1, error.msg);
  }
  std::vector<RunSetting> settings;
  if (documents.empty() || (documents.size() == 1 && documents[0].IsNull())) return settings;
  if (documents.size() > 1)
    throw_user(ExitCode::kUsage, "{}: line {}: a second document; expected one", file, line_of(documents[1]));
  const YAML::Node& top = documents[0];
  if (!top.IsMap())
    throw_user(ExitCode::kUsage, "{}: line {}: expected \"key: value\" lines", file, line_of(top));

  std::map<std::string, int> line_of_key;
  for (const auto& item : top) {
    const YAML::Node& key = item.first;
    const YAML::Node& value = item.second;
    if (!key.IsScalar())
      throw_user(ExitCode::kUsage, "{}: line {}: a key that is not a word", file, line_of(key));
    const std::string& name = key.Scalar();
    const int line = line_of(key);
    const auto refuse = [&](std::string_view what, std::string_view expected) {
      throw_user(ExitCode::kUsage, "{}: line {}: {} {}; expected {}", file, line, name, what, expected);
    };
    if (const auto [before, is_new] = line_of_key.emplace(name, line); !is_new)
      refuse(fmt::format("is given again (first on line {})", before->second), "each key once");
    if (value.IsMap()) refuse("has a nested map", "one value");
    if (value.IsSequence()) refuse("has a list", "one value");
    if (value.IsNull()) refuse("has no value", "one (\"\" for an empty text)");
    // "?" is the tag of a plain scalar and "!" of a quoted one.
    if (value.Tag() != "?" && value.Tag() != "!" && !value.Tag().empty())
      refuse(fmt::format("has the tag {}", value.Tag()), "a plain value");
    if (value.Tag() == "!" && !ends_on_its_line(text, value.Mark()))
      refuse("has a quote that is not closed", "it closed on its line");
    settings.push_back({name, value.Scalar(), line});
  }
  return settings;
}

std::vector<RunSetting> read_run_config(const std::string& path) {
  return parse_run_config(read_small_file(path, kLargestFile), path);
}

std::string format_run_config(const std::vector<RunSetting>& settings) {
  std::string text;
  for (const RunSetting& setting : settings)
    text += fmt::format("{}: {}\n", is_safe_plain(setting.key) ? setting.key : quoted(setting.key),
                        is_safe_plain(setting.value) ? setting.value : quoted(setting.value));
  return text;
}

}  // namespace snug
