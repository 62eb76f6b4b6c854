// formats/run_config.h — a run's settings as a flat YAML file
//
// Values are kept as the text that stands there: what a word or number means is decided by the option it is
// for. So `no`, `on` and `NO`, which YAML 1.1 reads as booleans, are plain text here. A value may be missing (nothing, ~ or null), be
// a list of plain values, or be nested deeper, of which only that is kept: files of other programs hold such, and whether one matters
// is decided by who knows the key. Refused with key and line: a repeated key, one of more than 200 bytes, tags, anchors and aliases,
// nesting of more than 16 levels, and a second document.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace snug {

enum class RunSettingKind : uint8_t {
  kValue,
  kNull,    // no value: format_run_config writes ~
  kList,    // of plain values, in `items`; perhaps empty
  kNested,  // a map, or a list with something other than plain values
  kEmptyMap,
};

struct RunSetting {
  std::string key;
  std::string value = {};
  int line = 0;  // of the key, from 1
  RunSettingKind kind = RunSettingKind::kValue;
  std::vector<std::string> items = {};

  friend bool operator==(const RunSetting&, const RunSetting&) = default;
};

// The settings in the order of the file. `file` is for messages. Throws UserError(kUsage) for what the first
// lines of this header refuse and for invalid YAML.
std::vector<RunSetting> parse_run_config(std::string_view text, const std::string& file);

// Reads and parses. Throws UserError(kBadFile) for a file that cannot be read or is above 1 MiB.
std::vector<RunSetting> read_run_config(const std::string& path);

// The text form, one `key: value` a line; parse_run_config gives the same settings back, but a nested one as an empty map. Words that YAML 1.1
// readers take for something else are quoted, except true and false.
std::string format_run_config(const std::vector<RunSetting>& settings);

}  // namespace snug
