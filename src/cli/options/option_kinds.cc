#include "cli/options/option_kinds.h"

namespace snug {

OptionInfo or_unset(OptionInfo info) {
  info.get = [number = info.get](const ProgramOptions& o) {
    std::string text = number(o);
    return text == "0" ? std::string() : text;
  };
  return info;
}

bool means(const std::string& value, const std::string& word) {
  if (lowercase(without_blanks(value)) == lowercase(word)) return true;
  const auto truth = truth_value(value);
  return truth && word == (*truth ? "true" : "false");
}

OptionInfo files(std::string name, std::vector<std::string> RunOptions::*field, OptionInfo info) {
  info.name = std::move(name);
  info.value = "FILE";
  info.many = OptionInfo::Many::kRepeats;
  info.set = [field](ProgramOptions& o, const std::string& value) {
    for (std::string& file : read_paths(value)) (o.run.*field).push_back(std::move(file));
  };
  info.get = [field](const ProgramOptions& o) { return fmt::format("{}", fmt::join(o.run.*field, ",")); };
  return info;
}

OptionInfo shorthand(std::string name, std::string of, OptionInfo info,
                     std::function<void(RunOptions&, bool)> apply) {
  info.name = std::move(name);
  info.sets = std::move(of);
  info.saved = false;
  info.set = [apply = std::move(apply)](ProgramOptions& o, const std::string& value) {
    apply(o.run, read_bool(value));
  };
  info.get = [](const ProgramOptions&) { return std::string(); };
  return info;
}

OptionInfo strategy(std::string name, std::string of, int64_t RunOptions::*steps, OptionInfo info) {
  info.name = std::move(name);
  info.value = "no|steps";
  info.saved = false;
  info.set = [steps, of](ProgramOptions& o, const std::string& value) {
    const std::string word = lowercase(without_blanks(value));
    if (truth_value(value) == false)
      o.run.*steps = 0;
    else if (word != "steps")
      refuse("found \"{}\"; expected no, or steps with {} beside it{}", value, of,
             word == "epoch" || word == "best" ? fmt::format(" ({} is not there yet)", word) : "");
  };
  info.get = [](const ProgramOptions&) { return std::string(); };
  info.sets = std::move(of);
  return info;
}

std::vector<OptionInfo> option_group(const std::string& heading, std::vector<OptionInfo> entries,
                                     bool saved) {
  for (OptionInfo& entry : entries) {
    entry.group = heading;
    entry.saved = entry.saved && saved;
  }
  return entries;
}

}  // namespace snug
