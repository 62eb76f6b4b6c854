#include "cli/options/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/errors.h"
#include "base/nearest.h"
#include "base/wrapped.h"
#include "cli/options/foreign_options.h"
#include "cli/options/option_kinds.h"
#include "cli/options/option_sources.h"
#include "formats/run_config.h"

namespace snug {
namespace {

std::vector<OptionInfo> make_options() {
  std::vector<OptionInfo> list;
  for (const auto& group : {model_options, data_options, batch_options, optimizer_options, memory_options,
                            output_options, generation_options, tokenizer_options, program_options})
    for (OptionInfo& info : group()) list.push_back(std::move(info));
  return list;
}

std::string canonical(std::string_view written) {
  std::string name(written);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// The option that `name` names among those of `command`; null where none does.
const OptionInfo* find_option(Command command, std::string_view name) {
  for (const OptionInfo& info : all_options())
    if ((info.commands & command) != 0 &&
        (info.name == name || std::count(info.aliases.begin(), info.aliases.end(), name) > 0))
      return &info;
  return nullptr;
}

// Why there is no option `written` of `command`, with the nearest name.
std::string unknown_option(Command command, std::string_view written, std::string_view where) {
  const std::string name = canonical(written);
  std::vector<std::string> names;
  for (const OptionInfo& info : all_options()) {
    if ((info.commands & command) ==
        0) {  // commands may have options of the same name and different meanings
      if (info.name == name || std::count(info.aliases.begin(), info.aliases.end(), name) > 0)
        return fmt::format(
            "{}: option {} does not belong to this command (snug COMMAND --help lists what does)", where,
            name);
      continue;
    }
    names.push_back(info.name);
    names.insert(names.end(), info.aliases.begin(), info.aliases.end());
  }
  for (const char* general : {"config", "help"}) names.emplace_back(general);
  const std::string guess = nearest(name, names);
  return fmt::format("{}: unknown option {}{}", where, written,
                     guess.empty() ? "; --help lists all" : fmt::format("; did you mean {}?", guess));
}

// The option whose values `command` takes without its name; null where there is none.
const OptionInfo* positional_option(Command command) {
  for (const OptionInfo& info : all_options())
    if ((info.positional & command) != 0) return &info;
  return nullptr;
}

constexpr std::string_view kNoValue = "no value was given";

// Settings of one source as they are read: those of Snug's own options, and what was found about the others.
class Source {
 public:
  Source(Command command, Findings& findings, std::vector<std::pair<std::string_view, std::string>>& ignored)
      : command_(command), findings_(findings), ignored_(ignored) {}

  // `setting.key` as it is written there.
  void add(const RunSetting& setting, const std::string& where) {
    const std::string name = canonical(setting.key);
    const OptionInfo* info = find_option(command_, name);
    if (info == nullptr) return add_foreign(setting, name, where);
    using enum RunSettingKind;
    const bool many = info->many != OptionInfo::Many::kOne;
    if (setting.kind == kNull && info->value.empty())  // files of axolotl name every switch
      ignored_.emplace_back(kNoValue, fmt::format("{} ({})", name, where));
    else if (setting.kind == kValue)
      given.push_back({info, name, {setting.value}, where});
    else if (setting.kind == kList && info->many == OptionInfo::Many::kRepeats)
      given.push_back({info, name, setting.items, where});
    else if (setting.kind == kList && many)
      given.push_back({info, name, {fmt::format("{}", fmt::join(setting.items, ","))}, where});
    else
      findings_.problems.push_back(fmt::format(
          "{}: {} {}", where, setting.key,
          setting.kind == kNull ? "has no value; expected one (\"\" for an empty text)"
          : setting.kind == kList
              ? "has a list; expected one value"
              : fmt::format("has a nested map or list; expected one value{}", many ? " or a list" : "")));
  }

  std::vector<GivenOption> given;

 private:
  void add_foreign(const RunSetting& setting, const std::string& name, const std::string& where) {
    const ForeignOption* foreign = takes_foreign_options(command_) ? find_foreign_option(name) : nullptr;
    if (foreign == nullptr) {
      findings_.problems.push_back(unknown_option(command_, setting.key, where));
    } else if (is_harmless(*foreign, setting)) {
      const bool is_empty = setting.kind == RunSettingKind::kNull && foreign->harmless != "*";
      ignored_.emplace_back(is_empty ? kNoValue : foreign->because, fmt::format("{} ({})", name, where));
    } else {
      const std::string value = setting.kind == RunSettingKind::kValue ? " " + setting.value
                                : setting.kind == RunSettingKind::kList
                                    ? fmt::format(" [{}]", fmt::join(setting.items, ", "))
                                    : "";
      findings_.problems.push_back(fmt::format("{}: {}{}: {}", where, setting.key, value, foreign->instead));
    }
  }

  static bool takes_foreign_options(Command command) {
    return (command & (kModelCommands | kDataInspect)) != 0;
  }

  Command command_;
  Findings& findings_;
  std::vector<std::pair<std::string_view, std::string>>& ignored_;
};

// A line for each reason, in the order of the first name that has it.
std::vector<std::string> ignored_lines(std::span<const std::pair<std::string_view, std::string>> ignored) {
  std::vector<std::string> lines;
  std::set<std::string_view> told;
  for (const auto& [because, first] : ignored) {
    if (!told.insert(because).second) continue;
    std::vector<std::string> names;
    for (const auto& [reason, name] : ignored)
      if (reason == because) names.push_back(name);
    lines.push_back(fmt::format("ignored because {}: {}", because, fmt::join(names, ", ")));
  }
  return lines;
}

constexpr std::string_view kCommandLine = "command line";

}  // namespace

std::span<const OptionInfo> all_options() {
  static const std::vector<OptionInfo> kOptions = make_options();
  return kOptions;
}

ParsedOptions parse_options(Command command, std::span<const std::string> arguments) {
  ParsedOptions parsed;
  Findings findings;
  std::vector<std::pair<std::string_view, std::string>> ignored;
  Source line(command, findings, ignored), file(command, findings, ignored);
  std::optional<std::string> config;
  const std::string on_line(kCommandLine);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      parsed.help = true;
      return parsed;
    }
    if (const OptionInfo* info = positional_option(command); info != nullptr && !argument.starts_with("-")) {
      line.given.push_back({info, info->name, {argument}, on_line});
      continue;
    }
    if (!argument.starts_with("--"))
      refuse("found \"{}\" where an option was expected; options are written --name value or --name=value",
             argument);
    const size_t equals = argument.find('=');
    const std::string written = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    const std::string name = canonical(written);
    const OptionInfo* info = find_option(command, name);
    RunSetting setting{.key = written};
    const bool has_word = i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
    if (equals != std::string::npos) {
      setting.value = argument.substr(equals + 1);
    } else if (info != nullptr && (info->value.empty() || !info->bare.empty())) {
      // A switch: an explicit value may follow.
      const bool follows = has_word && (info->value.empty() ? truth_value(arguments[i + 1]).has_value()
                                                            : !arguments[i + 1].starts_with('-'));
      setting.value = follows ? arguments[++i] : info->bare.empty() ? "true" : info->bare;
    } else if (info == nullptr && name != "config") {
      // Nobody here knows whether a value belongs to it: --no_X is a switch of Hugging Face's that is off.
      if (find_foreign_option(name) == nullptr && name.starts_with("no_") &&
          find_foreign_option(name.substr(3)) != nullptr)
        setting = {.key = written.substr(3), .value = "false"};
      else
        setting.value = has_word ? arguments[++i] : "true";
    } else if (has_word) {
      setting.value = arguments[++i];
    } else {
      refuse("command line: {} needs a value", written);
    }
    if (name != "config") {
      line.add(setting, on_line);
    } else if (config && *config != setting.value) {
      refuse("command line: config {} and config {} are both given; expected one file", *config,
             setting.value);
    } else {
      config = setting.value;
    }
  }
  if (config && !config->empty())
    for (const std::string path = read_path(*config); const RunSetting& setting : read_run_config(path))
      file.add(setting, fmt::format("{}:{}", path, setting.line));

  settle_source(file.given, findings);
  settle_source(line.given, findings);
  // What the command line says replaces what the file says, for repeatable options as a whole.
  std::erase_if(file.given, [&](const GivenOption& in_file) {
    return std::any_of(line.given.begin(), line.given.end(),
                       [&](const GivenOption& g) { return g.info == in_file.info; });
  });
  std::vector<GivenOption> given = std::move(file.given);
  given.insert(given.end(), line.given.begin(), line.given.end());
  for (const GivenOption& g : given) apply(g, parsed.options, findings);
  if (findings.problems.empty()) check_together(given, parsed.options, findings);

  if (findings.problems.size() == 1) refuse("{}", findings.problems.front());
  if (!findings.problems.empty())
    refuse("{} options cannot be used:\n  {}", findings.problems.size(),
           fmt::join(findings.problems, "\n  "));
  parsed.notes = ignored_lines(ignored);
  parsed.notes.insert(parsed.notes.end(), findings.notes.begin(), findings.notes.end());
  return parsed;
}

std::vector<std::pair<std::string, std::string>> effective_configuration(Command command,
                                                                         const ProgramOptions& options) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const OptionInfo& info : all_options()) {
    if (!info.saved || (info.commands & command) == 0) continue;
    entries.emplace_back(info.name, info.get(options));
  }
  return entries;
}

std::string options_help(Command command) {
  constexpr size_t kLeftWidth = 36, kHelpWidth = 72;
  const ProgramOptions defaults;
  std::string text;
  std::vector<std::string> groups;
  for (const OptionInfo& info : all_options())
    if ((info.commands & command) != 0 && std::count(groups.begin(), groups.end(), info.group) == 0)
      groups.push_back(info.group);
  const auto entry = [&](const std::string& left, const std::string& help) {
    std::string_view name = left;
    for (const std::string& line : wrapped(help, kHelpWidth)) {
      text += fmt::format("  {:<{}} {}\n", name, kLeftWidth, line);
      name = {};
    }
  };
  for (const std::string& group : groups) {
    text += fmt::format("\n{}\n", group);
    for (const OptionInfo& info : all_options()) {
      if (info.group != group || (info.commands & command) == 0) continue;
      const std::string value = info.get(defaults);
      entry(info.value.empty() ? "--" + info.name : fmt::format("--{} {}", info.name, info.value),
            value.empty() ? info.help : fmt::format("{} [{}]", info.help, value));
      if (!info.aliases.empty()) entry("", fmt::format("also --{}", fmt::join(info.aliases, ", --")));
    }
  }
  text += "\nGeneral\n";
  entry("--config FILE.yaml", "Options from a file, by the same names; the command line wins.");
  entry("--help", "This text.");
  return text;
}

}  // namespace snug
