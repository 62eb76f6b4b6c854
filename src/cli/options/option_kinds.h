// cli/options/option_kinds.h — entries of the table of options by kind, so that reading and writing an option's text stand side by side
//
// Each takes a field of RunOptions, of TokenizerOptions or of ProgramOptions itself, and what is particular to the entry: placeholder, commands, help.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cli/options/option_values.h"
#include "cli/options/options.h"
#include "cli/options/path_values.h"

namespace snug {

inline constexpr unsigned kModelCommands = kPlan | kTrain | kEval | kGenerate | kInspect;
inline constexpr unsigned kTraining = kPlan | kTrain | kInspect;

// The field of whichever part of `options` has it.
template <typename Options, typename Part, typename T>
auto& field_of(Options& options, T Part::*field) {
  if constexpr (std::is_same_v<Part, RunOptions>)
    return options.run.*field;
  else if constexpr (std::is_same_v<Part, TokenizerOptions>)
    return options.tokenizer.*field;
  else if constexpr (std::is_same_v<Part, BpeTraining>)
    return options.tokenizer.training.*field;
  else
    return options.*field;
}

template <typename Part>
OptionInfo boolean(std::string name, bool Part::*field, OptionInfo info) {
  info.name = std::move(name);
  info.set = [field](ProgramOptions& o, const std::string& text) { field_of(o, field) = read_bool(text); };
  info.get = [field](const ProgramOptions& o) { return std::string(field_of(o, field) ? "true" : "false"); };
  return info;
}

// Of at least `least`. A `most` that is given is named in messages.
template <typename Part, typename T>
OptionInfo integer(std::string name, T Part::*field, std::type_identity_t<T> least, OptionInfo info,
                   std::type_identity_t<T> most = std::numeric_limits<T>::max()) {
  info.name = std::move(name);
  if (info.value.empty()) info.value.push_back('N');
  const std::string expected = most == std::numeric_limits<T>::max()
                                   ? fmt::format("a whole number ≥ {}", least)
                                   : fmt::format("a whole number from {} to {}", least, most);
  // Leaves room for sums of a few.
  if constexpr (std::is_same_v<T, int64_t>) most = std::min(most, int64_t{1} << 50);
  info.set = [=](ProgramOptions& o, const std::string& text) {
    field_of(o, field) = read_number<T>(text, least, most, expected);
  };
  info.get = [field](const ProgramOptions& o) { return fmt::format("{}", field_of(o, field)); };
  return info;
}

// An integer option for which 0 means that it was not given.
OptionInfo or_unset(OptionInfo info);

template <typename Part>
OptionInfo real(std::string name, double Part::*field, double least, double most, OptionInfo info) {
  info.name = std::move(name);
  if (info.value.empty()) info.value.push_back('X');
  info.set = [=](ProgramOptions& o, const std::string& text) {
    field_of(o, field) =
        read_number<double>(text, least, most,
                            most == kLargestReal ? fmt::format("a number ≥ {} that fp32 can hold", least)
                                                 : fmt::format("a number from {} to {}", least, most));
  };
  info.get = [field](const ProgramOptions& o) { return fmt::format("{}", field_of(o, field)); };
  return info;
}

template <typename Part>
OptionInfo text(std::string name, std::string Part::*field, OptionInfo info) {
  info.name = std::move(name);
  info.set = [field](ProgramOptions& o, const std::string& value) { field_of(o, field) = value; };
  info.get = [field](const ProgramOptions& o) { return field_of(o, field); };
  return info;
}

// The name of a file or folder (path_values.h).
template <typename Part>
OptionInfo path(std::string name, std::string Part::*field, OptionInfo info) {
  info.name = std::move(name);
  info.set = [field](ProgramOptions& o, const std::string& value) { field_of(o, field) = read_path(value); };
  info.get = [field](const ProgramOptions& o) { return field_of(o, field); };
  return info;
}

// Names of files, separated by commas, as a list, or by repeating the option.
OptionInfo files(std::string name, std::vector<std::string> RunOptions::*field, OptionInfo info);

// Whether `value` is how someone writes `word`: in any case, and true and false in every word for them.
bool means(const std::string& value, const std::string& word);

// One of a fixed set of words. `words` pairs the text with the value; several words may mean one value, the first is printed.
template <typename Part, typename T>
OptionInfo choice(std::string name, T Part::*field,
                  std::vector<std::pair<std::string, std::type_identity_t<T>>> words, OptionInfo info) {
  info.name = std::move(name);
  info.set = [field, words](ProgramOptions& o, const std::string& value) {
    std::vector<std::string> names;
    for (const auto& [word, meaning] : words) {
      if (means(value, word)) {
        field_of(o, field) = meaning;
        return;
      }
      if (!word.empty()) names.push_back(word);
    }
    refuse("found \"{}\"; expected one of {}", value, fmt::join(names, ", "));
  };
  info.get = [field, words](const ProgramOptions& o) {
    for (const auto& [word, meaning] : words)
      if (meaning == field_of(o, field)) return word;
    return std::string();
  };
  return info;
}

// A second name that sets option `of` to a fixed value, the way users of other programs write it.
OptionInfo shorthand(std::string name, std::string of, OptionInfo info,
                     std::function<void(RunOptions&, bool)> apply);

// Hugging Face's word for whether option `of`, a number of updates, counts: `no` makes it 0, `steps` leaves it.
OptionInfo strategy(std::string name, std::string of, int64_t RunOptions::*steps, OptionInfo info);

// `entries` with their heading in --help. Those that are not `saved` are no part of the effective configuration.
std::vector<OptionInfo> option_group(const std::string& heading, std::vector<OptionInfo> entries,
                                     bool saved = true);

// The groups, in the order of --help.
std::vector<OptionInfo> model_options();
std::vector<OptionInfo> data_options();
std::vector<OptionInfo> batch_options();
std::vector<OptionInfo> optimizer_options();
std::vector<OptionInfo> memory_options();
std::vector<OptionInfo> output_options();
std::vector<OptionInfo> generation_options();
std::vector<OptionInfo> tokenizer_options();
std::vector<OptionInfo> program_options();

}  // namespace snug
