#include "cli/options/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/errors.h"
#include "base/nearest.h"
#include "cli/options/option_kinds.h"
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

// The option that `written` names among those of `command`; throws with the nearest name.
const OptionInfo& find_option(Command command, std::string_view written, std::string_view where) {
  const std::string name = canonical(written);
  std::vector<std::string> names;
  bool is_anothers = false;  // commands may have options of the same name and different meanings
  for (const OptionInfo& info : all_options()) {
    const bool matches = info.name == name || std::count(info.aliases.begin(), info.aliases.end(), name) > 0;
    const bool belongs = (info.commands & command) != 0;
    if (matches && belongs) return info;
    is_anothers = is_anothers || matches;
    if (!belongs) continue;
    names.push_back(info.name);
    names.insert(names.end(), info.aliases.begin(), info.aliases.end());
  }
  if (is_anothers)
    refuse("{}: option {} does not belong to this command (snug COMMAND --help lists what does)", where, name);
  for (const char* general : {"config", "help"}) names.emplace_back(general);
  const std::string guess = nearest(name, names);
  refuse("{}: unknown option {}{}", where, written,
         guess.empty() ? "; --help lists all" : fmt::format("; did you mean {}?", guess));
}

// The option whose values `command` takes without its name; null where there is none.
const OptionInfo* positional_option(Command command) {
  for (const OptionInfo& info : all_options())
    if ((info.positional & command) != 0) return &info;
  return nullptr;
}

void apply(const OptionInfo& info, ProgramOptions& options, const std::string& value,
           std::string_view where) {
  try {
    info.set(options, value);
  } catch (const UserError& error) {
    throw UserError(error.code(), fmt::format("{}: {}: {}", where, info.name, error.what()));
  }
}

bool is_bool_word(const std::string& word) {
  static const std::set<std::string> kWords = {"true", "false", "yes", "no", "on", "off", "1", "0"};
  return kWords.contains(lowercase(word));
}

// `text` broken at spaces into lines of at most `width` characters; a longer word has a line of its own.
std::vector<std::string> wrapped(std::string_view text, size_t width) {
  const auto characters = [](std::string_view part) {
    return std::count_if(part.begin(), part.end(), [](char c) { return (c & 0xC0) != 0x80; });
  };
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (lines.empty() || static_cast<size_t>(characters(lines.back()) + 1 + characters(word)) > width)
      lines.emplace_back(word);
    else
      lines.back().append(" ").append(word);
    begin = end + 1;
  }
  return lines;
}

// One option as written: its entry and its value.
struct Given {
  const OptionInfo* info;
  std::string value;
};

}  // namespace

std::span<const OptionInfo> all_options() {
  static const std::vector<OptionInfo> kOptions = make_options();
  return kOptions;
}

ParsedOptions parse_options(Command command, std::span<const std::string> arguments) {
  ParsedOptions parsed;
  std::vector<Given> given;
  std::string config;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      parsed.help = true;
      return parsed;
    }
    if (const OptionInfo* info = positional_option(command); info != nullptr && !argument.starts_with("-")) {
      given.push_back({info, argument});
      continue;
    }
    if (!argument.starts_with("--"))
      refuse("found \"{}\" where an option was expected; options are written --name value or --name=value",
             argument);
    const size_t equals = argument.find('=');
    const std::string written = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    const bool is_config = canonical(written) == "config";
    const OptionInfo* info = is_config ? nullptr : &find_option(command, written, "command line");
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (info != nullptr && info->value.empty()) {
      // A switch: an explicit true or false may follow.
      value = i + 1 < arguments.size() && is_bool_word(arguments[i + 1]) ? arguments[++i] : "true";
    } else {
      const bool negative = i + 1 < arguments.size() && arguments[i + 1].size() > 1 &&
                            arguments[i + 1][0] == '-' &&
                            std::isdigit(static_cast<unsigned char>(arguments[i + 1][1]));
      if (i + 1 >= arguments.size() || (arguments[i + 1].starts_with("--") && !negative))
        refuse("command line: {} needs a value", written);
      value = arguments[++i];
    }
    if (is_config)
      config = value;
    else
      given.push_back({info, value});
  }

  // What the command line says replaces what the file says, for repeatable options as a whole.
  std::set<std::string> on_command_line;
  for (const Given& g : given) on_command_line.insert(g.info->name);
  if (!config.empty())
    for (const RunSetting& setting : read_run_config(config)) {
      const std::string where = fmt::format("{}:{}", config, setting.line);
      const OptionInfo& info = find_option(command, setting.key, where);
      if (!on_command_line.contains(info.name)) apply(info, parsed.options, setting.value, where);
    }
  for (const Given& g : given) apply(*g.info, parsed.options, g.value, "command line");
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
