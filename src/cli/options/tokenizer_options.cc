// Options: snug tokenizer ….

#include "cli/options/option_kinds.h"
#include "formats/tokenizer/tokenizer_spec.h"

namespace snug {
namespace {

constexpr unsigned kTokenizing = kTokenizerEncode | kTokenizerDecode | kTokenizerTrain;

}  // namespace

std::vector<OptionInfo> tokenizer_options() {
  return option_group(
      "Tokenizer",
      {path("tokenizer", &TokenizerOptions::tokenizer,
            {.value = "PATH",
             .commands = kTokenizerEncode | kTokenizerDecode,
             .help =
                 "tokenizer.json (BPE), or a model directory with one, or with vocab.json and merges.txt."}),
       OptionInfo{
           .name = "file",
           .value = "FILE",
           .many = OptionInfo::Many::kRepeats,
           .commands = kTokenizing,
           .help = "encode: text of any size. decode: token ids separated by white space. train: text; "
                   "several files by repeating the option.",
           .set = [](ProgramOptions& o,
                     const std::string& value) { o.tokenizer.files.push_back(read_path(value)); },
           .get =
               [](const ProgramOptions& o) { return fmt::format("{}", fmt::join(o.tokenizer.files, " ")); }},
       path("output", &TokenizerOptions::output,
            {.value = "FILE",
             .commands = kTokenizing,
             .help = "Where the result goes, whole or not at all. Default: standard output."}),
       boolean("add_special_tokens", &TokenizerOptions::add_special_tokens,
               {.commands = kTokenizerEncode,
                .help = "Ids that the tokenizer puts around a text, such as its beginning."}),
       boolean("skip_special_tokens", &TokenizerOptions::skip_special_tokens,
               {.commands = kTokenizerDecode, .help = "Leave special tokens out of the text."}),
       integer("vocab_size", &BpeTraining::vocabulary, 1,
               {.commands = kTokenizerTrain,
                .help = "Tokens in all: special ones, 256 bytes, and what merges make."},
               kMostIds),
       integer("min_frequency", &BpeTraining::min_frequency, 0,
               {.commands = kTokenizerTrain, .help = "Pairs that occur less often are not merged."}),
       OptionInfo{.name = "special_tokens",
                  .value = "TOKENS",
                  .many = OptionInfo::Many::kCommas,
                  .commands = kTokenizerTrain,
                  .help = "Tokens that get the first ids, separated by commas.",
                  .set =
                      [](ProgramOptions& o, const std::string& value) {
                        std::vector<std::string>& tokens = o.tokenizer.training.special_tokens;
                        tokens.clear();
                        for (size_t begin = 0; begin < value.size();) {
                          const size_t comma = std::min(value.find(',', begin), value.size());
                          tokens.push_back(value.substr(begin, comma - begin));
                          begin = comma + 1;
                        }
                      },
                  .get =
                      [](const ProgramOptions& o) {
                        return fmt::format("{}", fmt::join(o.tokenizer.training.special_tokens, ","));
                      }},
       OptionInfo{.name = "memory",
                  .value = "SIZE",
                  .commands = kTokenizerTrain,
                  .help = "What the distinct pieces of the text and their pairs may take.",
                  .set =
                      [](ProgramOptions& o, const std::string& value) {
                        o.tokenizer.training.memory = parse_bytes(value);
                        if (o.tokenizer.training.memory <= Bytes(0))
                          refuse("found \"{}\"; expected a size above 0", value);
                      },
                  .get = [](const ProgramOptions& o) { return format_bytes(o.tokenizer.training.memory); }},
       integer("threads", &BpeTraining::threads, 0,
               {.commands = kTokenizerTrain,
                .help = "Threads that count pieces. 0: what affinity and the cgroup's CPU quota allow."},
               4096)},
      false);
}

}  // namespace snug
