#include "cli/options/option_kinds.h"

namespace snug {

OptionInfo or_unset(OptionInfo info) {
  info.get = [number = info.get](const ProgramOptions& o) {
    std::string text = number(o);
    return text == "0" ? std::string() : text;
  };
  return info;
}

OptionInfo files(std::string name, std::vector<std::string> RunOptions::*field, OptionInfo info) {
  info.name = std::move(name);
  info.value = "FILE";
  info.set = [field](ProgramOptions& o, const std::string& value) {
    size_t begin = 0;
    while (begin <= value.size()) {
      const size_t comma = std::min(value.find(',', begin), value.size());
      if (comma == begin) refuse("found \"{}\"; expected file names separated by commas", value);
      (o.run.*field).push_back(value.substr(begin, comma - begin));
      begin = comma + 1;
    }
  };
  info.get = [field](const ProgramOptions& o) { return fmt::format("{}", fmt::join(o.run.*field, ",")); };
  return info;
}

OptionInfo shorthand(std::string name, OptionInfo info, std::function<void(RunOptions&, bool)> apply) {
  info.name = std::move(name);
  info.saved = false;
  info.set = [apply = std::move(apply)](ProgramOptions& o, const std::string& value) {
    apply(o.run, read_bool(value));
  };
  info.get = [](const ProgramOptions&) { return std::string(); };
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
