#include "formats/run_config.h"

#include <yaml-cpp/eventhandler.h>
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
constexpr size_t kLongestKey = 200;  // far beyond the name of any option
constexpr int kDeepest = 16;         // levels of a value; far beyond any program's settings

// Whether a quoted value that begins at `column` of `line` ends there. yaml-cpp takes the end of the file for a missing quote, so
// that one forgotten quote would swallow every setting after it.
bool ends_on_its_line(std::string_view line, size_t column) {
  if (column >= line.size() || (line[column] != '"' && line[column] != '\''))
    return true;  // it stands behind an anchor
  const char quote = line[column];
  for (size_t i = column + 1; i < line.size(); ++i) {
    if (line[i] == '\\' && quote == '"')
      ++i;
    else if (line[i] == quote && quote == '\'' && line.substr(i + 1, 1) == "'")
      ++i;
    else if (line[i] == quote)
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

// Takes the parser's events and refuses at the first that a file of settings has not. Building yaml-cpp's own nodes first would be
// unsafe: its LoadAll never ends on a file with a stray bracket, and adds an empty document for ever.
class SettingsReader : public YAML::EventHandler {
 public:
  SettingsReader(std::string_view text, const std::string& file) : rest_(text), file_(file) {}

  std::vector<RunSetting> take() { return std::move(settings_); }
  // The setting whose list or map has begun and not ended; null where there is none.
  const RunSetting* open_setting() const { return depth_ > 0 ? &container_ : nullptr; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) refuse_line(mark, "a second document; expected one");
  }
  void OnDocumentEnd() override {}

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    if (!in_map_) {
      in_map_ = true;
      return;
    }
    begin_container(mark, tag, anchor, RunSettingKind::kEmptyMap);
  }
  void OnMapEnd() override { end_container(); }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin_container(mark, tag, anchor, RunSettingKind::kList);
  }
  void OnSequenceEnd() override { end_container(); }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    if (!in_map_) return;  // an empty file
    if (depth_ > 0) return inside();
    if (!has_key_) refuse_line(mark, "a key that is not a word");
    add({.key = key_, .line = line_, .kind = RunSettingKind::kNull});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { expect_value(mark, "an alias"); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (!in_map_) refuse_line(mark, "expected \"key: value\" lines");
    if (anchor != 0) expect_value(mark, "an anchor");
    if (!has_key_) {
      // Quoted, a long one could not be written so that YAML readers take it for a key.
      if (value.size() > kLongestKey)
        refuse_line(mark, fmt::format("a key of {} bytes; expected at most {}", value.size(), kLongestKey));
      key_ = value;
      line_ = mark.line + 1;
      has_key_ = true;
      if (const auto [before, is_new] = line_of_key_.emplace(key_, line_); !is_new)
        refuse(fmt::format("is given again (first on line {})", before->second), "each key once");
      return;
    }
    check_tag(tag);
    if (tag == "!" && !ends_on_its_line(line_of(mark), static_cast<size_t>(mark.column)))
      refuse("has a quote that is not closed", "it closed on its line");
    const bool is_null =
        tag == "?" && (value == "~" || value == "null" || value == "Null" || value == "NULL");
    if (depth_ == 1 && container_.kind == RunSettingKind::kList && !is_null) {
      container_.items.push_back(value);
    } else if (depth_ > 0) {
      inside();
    } else if (is_null) {
      add({.key = key_, .line = line_, .kind = RunSettingKind::kNull});
    } else {
      add({.key = key_, .value = value, .line = line_});
    }
  }

 private:
  [[noreturn]] void refuse_line(const YAML::Mark& mark, std::string_view what) const {
    throw_user(ExitCode::kUsage, "{}: line {}: {}", file_, mark.line + 1, what);
  }
  [[noreturn]] void refuse(std::string_view what, std::string_view expected) const {
    throw_user(ExitCode::kUsage, "{}: line {}: {} {}; expected {}", file_, line_, key_, what, expected);
  }
  // Something stands where a key, a value or the whole map is expected.
  [[noreturn]] void expect_value(const YAML::Mark& mark, std::string_view what) const {
    if (!in_map_) refuse_line(mark, "expected \"key: value\" lines");
    if (!has_key_) refuse_line(mark, "a key that is not a word");
    refuse(fmt::format("has {}", what), "one value");
  }
  // "?" is the tag of a plain scalar and "!" of a quoted one.
  void check_tag(const std::string& tag) const {
    if (tag != "?" && tag != "!" && !tag.empty()) refuse(fmt::format("has the tag {}", tag), "a plain value");
  }

  void begin_container(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       RunSettingKind kind) {
    if (!in_map_ || !has_key_) expect_value(mark, "a list");
    if (anchor != 0) expect_value(mark, "an anchor");
    check_tag(tag);
    if (depth_ == kDeepest) refuse(fmt::format("is nested {} levels deep", kDeepest + 1), "less");
    if (depth_++ > 0)
      inside();
    else
      container_ = {.key = key_, .line = line_, .kind = kind};
  }
  void end_container() {
    if (depth_ == 0) return;  // the whole map
    if (--depth_ == 0) add(std::move(container_));
  }
  // Something stands inside the container that is not one of a list's plain values.
  void inside() {
    container_.kind = RunSettingKind::kNested;
    container_.items.clear();
  }
  void add(RunSetting setting) {
    settings_.push_back(std::move(setting));
    has_key_ = false;
  }

  // Marks come in the order of the text, so the whole of it is gone through once.
  std::string_view line_of(const YAML::Mark& mark) {
    for (; first_line_ < mark.line; ++first_line_) {
      const size_t end = rest_.find('\n');
      rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    }
    return rest_.substr(0, rest_.find('\n'));
  }

  std::string_view rest_;  // from line first_line_ on
  int first_line_ = 0;
  const std::string& file_;
  std::vector<RunSetting> settings_;
  std::map<std::string, int> line_of_key_;
  int documents_ = 0;
  bool in_map_ = false;
  bool has_key_ = false;
  int depth_ = 0;         // of containers in the value of key_
  RunSetting container_;  // the outermost of them
  std::string key_;
  int line_ = 0;
};

}  // namespace

std::vector<RunSetting> parse_run_config(std::string_view text, const std::string& file) {
  SettingsReader reader(text, file);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(reader)) {
    }
  } catch (const YAML::Exception& error) {
    if (const RunSetting* open = reader.open_setting())
      throw_user(ExitCode::kUsage, "{}: line {}: {}: not valid YAML on line {}: {}", file, open->line,
                 open->key, error.mark.line + 1, error.msg);
    throw_user(ExitCode::kUsage, "{}: line {}: not valid YAML: {}", file, error.mark.line + 1, error.msg);
  }
  return reader.take();
}

std::vector<RunSetting> read_run_config(const std::string& path) {
  return parse_run_config(read_small_file(path, kLargestFile), path);
}

std::string format_run_config(const std::vector<RunSetting>& settings) {
  const auto word = [](const std::string& text) { return is_safe_plain(text) ? text : quoted(text); };
  std::string text;
  for (const RunSetting& setting : settings) {
    text += word(setting.key) + ":";
    switch (setting.kind) {
      case RunSettingKind::kValue:
        text += fmt::format(" {}\n", word(setting.value));
        break;
      case RunSettingKind::kNull:
        text += " ~\n";
        break;
      case RunSettingKind::kList:
        text += setting.items.empty() ? " []\n" : "\n";
        for (const std::string& item : setting.items) text += fmt::format("  - {}\n", word(item));
        break;
      case RunSettingKind::kNested:
      case RunSettingKind::kEmptyMap:
        text += " {}\n";
        break;
    }
  }
  return text;
}

}  // namespace snug
