// cli/options/options.h — the one table of options: names, aliases, groups, defaults, meaning; command line and YAML read through it
//
// An option may be written --name value or --name=value, with dashes or underscores. A YAML file given by --config holds the same
// keys; the command line wins, under any of an option's names. Unknown names are errors that suggest the nearest one. `--help`, the echo of the effective configuration,
// config.yaml and docs/options.md all come from this table.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/tokenizer/bpe_trainer.h"
#include "train/run_options.h"

namespace snug {

// Commands an option belongs to, as a set of bits.
enum Command : unsigned {
  kPlan = 1,
  kTrain = 2,
  kEval = 4,
  kGenerate = 8,
  kInspect = 16,
  kVersion = 32,
  kTokenizerEncode = 64,
  kTokenizerDecode = 128,
  kTokenizerTrain = 256,
  kDataInspect = 512,
};

// snug tokenizer ….
struct TokenizerOptions {
  std::string tokenizer;           // tokenizer.json or model directory
  std::vector<std::string> files;  // text to encode or to train on, or ids to decode
  std::string output;              // empty: standard output
  bool add_special_tokens = true, skip_special_tokens = true;
  BpeTraining training = {.threads = 0};  // threads 0: as for other commands
};

// What only the program knows, beside the run itself.
struct ProgramOptions {
  RunOptions run;
  bool json = false;  // plan, version: one JSON object instead of the table
  bool sweep =
      false;  // plan: memory against speed, from the smallest budget that works to keeping everything
  std::string sweep_svg;     // plan: the same drawn into this file
  std::string at = "final";  // inspect: which pass, or layout, kernels, plan
  std::string phase;         // inspect: which phase
  int64_t samples = 3;       // data inspect: how many are shown
  TokenizerOptions tokenizer;
};

struct OptionInfo {
  std::string name = {};                  // canonical, with underscores
  std::vector<std::string> aliases = {};  // other spellings people type; each means exactly the same value
  std::string sets = {};                  // the option that it sets in another way; empty: itself
  std::string group = {};
  std::string value = {};  // placeholder as in --help; empty for a switch
  std::string bare =
      {};  // the value of a name with nothing behind it on the command line; empty: one must follow
  enum class Many : uint8_t {
    kOne,
    kRepeats,  // each value adds to those before: the option may be repeated, or be a list in YAML
    kCommas,   // a list in YAML is the same as its items with commas between them
  } many = Many::kOne;
  unsigned commands = 0;
  unsigned positional = 0;  // commands for which words without an option's name are its values
  std::string help = {};
  std::function<void(ProgramOptions&, const std::string&)> set =
      {};  // throws UserError(kUsage) without the option's name
  std::function<std::string(const ProgramOptions&)> get = {};  // text that `set` reads back
  bool saved = true;                                           // part of the effective configuration
};

std::span<const OptionInfo> all_options();

struct ParsedOptions {
  ProgramOptions options;
  bool help = false;
  // For people, a sentence each: what was ignored and why, and which of two options goes before the other.
  std::vector<std::string> notes = {};
};

// Reads `arguments` (without program and command). Throws UserError(kUsage) that names option, value found and value expected, or
// for YAML the file and line; several wrong ones are told together. Two settings of one source, the command line or the file, whose order
// would matter contradict each other, and are refused unless Hugging Face says which goes first (a note says it, too). Names of other
// trainers' options that change nothing here are ignored with a note (foreign_options.h).
ParsedOptions parse_options(Command command, std::span<const std::string> arguments);

// Every option of `command` with its effective value, in table order; the default where nothing else was said.
std::vector<std::pair<std::string, std::string>> effective_configuration(Command command,
                                                                         const ProgramOptions& options);

// Text of `snug COMMAND --help`: grouped, with defaults.
std::string options_help(Command command);

}  // namespace snug
