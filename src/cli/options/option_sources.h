// cli/options/option_sources.h — settings of one source, the command line or a file: which of them cannot stand together
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/options/options.h"

namespace snug {

// One option as a source has it.
struct GivenOption {
  const OptionInfo* info;
  std::string name;                 // as it is written there, with underscores
  std::vector<std::string> values;  // several of an option that repeats
  std::string where;                // "command line", or file and line
};

// What is told once all settings are read.
struct Findings {
  std::vector<std::string> problems;  // each ends the run
  std::vector<std::string> notes;
};

// The option that `given` sets, perhaps in another way than by its own name.
const OptionInfo& target_of(const OptionInfo& info);

// Sets it; problems go to `findings`.
void apply(const GivenOption& given, ProgramOptions& options, Findings& findings);

// Leaves of `source` what counts: of a name that is repeated on a command line the last, as of any program's; of two options of which Hugging
// Face says which goes first that one, both with a note. Two others that set one option, so that their order would matter, are a problem.
void settle_source(std::vector<GivenOption>& source, Findings& findings);

// Settings of all sources that say something about each other: what Hugging Face's Trainer passes over, too, is passed over with a note,
// the rest is a problem. `given` has what counts, `options` the values.
void check_together(std::span<const GivenOption> given, const ProgramOptions& options, Findings& findings);

}  // namespace snug
