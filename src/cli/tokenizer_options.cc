// The options of snug tokenizer ….

#include <fmt/ranges.h>

#include "cli/option_values.h"
#include "cli/options.h"
#include "formats/tokenizer/tokenizer_spec.h"

namespace snug {
namespace {

constexpr unsigned kTokenizing = kTokenizerEncode | kTokenizerDecode | kTokenizerTrain;

OptionInfo tokenizer_text(std::string name, std::string TokenizerOptions::*field, OptionInfo info) {
  info.name = std::move(name);
  info.saved = false;
  info.set = [field](ProgramOptions& o, const std::string& value) { o.tokenizer.*field = value; };
  info.get = [field](const ProgramOptions& o) { return o.tokenizer.*field; };
  return info;
}

OptionInfo tokenizer_boolean(std::string name, bool TokenizerOptions::*field, OptionInfo info) {
  info.name = std::move(name);
  info.saved = false;
  info.set = [field](ProgramOptions& o, const std::string& value) { o.tokenizer.*field = read_bool(value); };
  info.get = [field](const ProgramOptions& o) { return std::string(o.tokenizer.*field ? "true" : "false"); };
  return info;
}

}  // namespace

std::vector<OptionInfo> tokenizer_options() {
  const std::string tokenizer = "Tokenizer";
  std::vector<OptionInfo> list;
  const auto add = [&](OptionInfo info) { list.push_back(std::move(info)); };
  add(tokenizer_text(
      "tokenizer", &TokenizerOptions::tokenizer,
      {.group = tokenizer,
       .value = "PATH",
       .commands = kTokenizerEncode | kTokenizerDecode,
       .help = "tokenizer.json (BPE), or a model directory with one, or with vocab.json and merges.txt."}));
  {
    OptionInfo info{
        .group = tokenizer,
        .value = "FILE",
        .commands = kTokenizing,
        .help =
            "encode: text of any size. decode: token ids separated by white space. train: text; several "
            "files by repeating the option.",
        .saved = false};
    info.name = "file";
    info.set = [](ProgramOptions& o, const std::string& value) { o.tokenizer.files.push_back(value); };
    info.get = [](const ProgramOptions& o) { return fmt::format("{}", fmt::join(o.tokenizer.files, " ")); };
    add(info);
  }
  add(tokenizer_text("output", &TokenizerOptions::output,
                     {.group = tokenizer,
                      .value = "FILE",
                      .commands = kTokenizing,
                      .help = "Where the result goes, whole or not at all. Default: standard output."}));
  add(tokenizer_boolean("add_special_tokens", &TokenizerOptions::add_special_tokens,
                        {.group = tokenizer,
                         .commands = kTokenizerEncode,
                         .help = "Ids that the tokenizer puts around a text, such as its beginning."}));
  add(tokenizer_boolean(
      "skip_special_tokens", &TokenizerOptions::skip_special_tokens,
      {.group = tokenizer, .commands = kTokenizerDecode, .help = "Leave special tokens out of the text."}));
  {
    OptionInfo info{.group = tokenizer,
                    .value = "N",
                    .commands = kTokenizerTrain,
                    .help = "Tokens in all: special ones, 256 bytes, and what merges make.",
                    .saved = false};
    info.name = "vocab_size";
    info.set = [](ProgramOptions& o, const std::string& value) {
      o.tokenizer.training.vocabulary =
          read_number<int64_t>(value, 1, kMostIds, fmt::format("a whole number from 1 to {}", kMostIds));
    };
    info.get = [](const ProgramOptions& o) { return fmt::format("{}", o.tokenizer.training.vocabulary); };
    add(info);
    info.help = "Pairs that occur less often are not merged.";
    info.name = "min_frequency";
    info.set = [](ProgramOptions& o, const std::string& value) {
      o.tokenizer.training.min_frequency =
          read_number<int64_t>(value, 0, int64_t{1} << 50, "a whole number ≥ 0");
    };
    info.get = [](const ProgramOptions& o) { return fmt::format("{}", o.tokenizer.training.min_frequency); };
    add(info);
    info.help = "Tokens that get the first ids, separated by commas.";
    info.name = "special_tokens";
    info.value = "TOKENS";
    info.set = [](ProgramOptions& o, const std::string& value) {
      std::vector<std::string>& tokens = o.tokenizer.training.special_tokens;
      tokens.clear();
      for (size_t begin = 0; begin < value.size();) {
        const size_t comma = std::min(value.find(',', begin), value.size());
        tokens.push_back(value.substr(begin, comma - begin));
        begin = comma + 1;
      }
    };
    info.get = [](const ProgramOptions& o) {
      return fmt::format("{}", fmt::join(o.tokenizer.training.special_tokens, ","));
    };
    add(info);
    info.help = "What the distinct pieces of the text and their pairs may take.";
    info.name = "memory";
    info.value = "SIZE";
    info.set = [](ProgramOptions& o, const std::string& value) {
      o.tokenizer.training.memory = parse_bytes(value);
      if (o.tokenizer.training.memory <= Bytes(0)) refuse("found \"{}\"; expected a size above 0", value);
    };
    info.get = [](const ProgramOptions& o) { return format_bytes(o.tokenizer.training.memory); };
    add(info);
    info.help = "Threads that count pieces. 0: what affinity and the cgroup's CPU quota allow.";
    info.name = "threads";
    info.value = "N";
    info.set = [](ProgramOptions& o, const std::string& value) {
      o.tokenizer.training.threads = read_number<int>(value, 0, 4096, "a whole number from 0 to 4096");
    };
    info.get = [](const ProgramOptions& o) { return fmt::format("{}", o.tokenizer.training.threads); };
    add(info);
  }
  return list;
}

}  // namespace snug
