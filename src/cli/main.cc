// snug — trains large language models inside the memory you have. This file only finds the command and reports errors.

#include <csignal>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "base/count_new.h"
#include "base/errors.h"
#include "base/library_pool.h"
#include "base/nearest.h"
#include "cli/commands.h"
#include "cli/openmp_waits.h"
#include "cli/options/options.h"
#include "cli/standard_streams.h"

namespace snug {
namespace {

struct CommandInfo {
  const char* name;
  Command command;
  const char* summary;
  const char* example;
  int (*run)(const ProgramOptions&);
};

constexpr CommandInfo kCommands[] = {
    {"plan", kPlan, "Show what a training run needs, byte by byte, without running it.",
     "snug plan --model DIR --memory 3GiB --per_device_train_batch_size 4 --max_length 1024", plan_command},
    {"train", kTrain, "Plan a run, prove that it fits, and train in exactly that memory.",
     "snug train --model DIR --train_file text.txt --memory 3GiB --output_dir runs/mine", train_command},
    {"eval", kEval, "Loss of a model on a file.", "snug eval --model DIR --validation_file text.txt",
     eval_command},
    {"generate", kGenerate, "Continue a prompt.",
     "snug generate --model DIR --prompt \"In the beginning\" --temperature 0.8", generate_command},
    {"inspect", kInspect, "Print the graph after a pass, the schedule, the layout, the kernels or the plan.",
     "snug inspect --model DIR --at differentiate --phase micro_step", inspect_command},
    {"data inspect", kDataInspect,
     "What data are: counts, lengths, what is learned, what a length cuts off, samples.",
     "snug data inspect train.jsonl --model DIR --max_length 1024", data_inspect_command},
    {"tokenizer encode", kTokenizerEncode, "Text to token ids.",
     "snug tokenizer encode --tokenizer DIR --file text.txt --output ids.txt", tokenizer_encode_command},
    {"tokenizer decode", kTokenizerDecode, "Token ids to text.",
     "snug tokenizer decode --tokenizer DIR --file ids.txt --output text.txt", tokenizer_decode_command},
    {"tokenizer train", kTokenizerTrain, "A byte-level BPE tokenizer from text.",
     "snug tokenizer train --file text.txt --vocab_size 8192 --output tokenizer.json",
     tokenizer_train_command},
    {"version", kVersion, "Build, libraries, processor and the kernels chosen for it.", "snug version --json",
     version_command},
};

void print_overview() {
  std::printf(
      "Snug trains large language models inside the memory you have.\n\nUsage: snug COMMAND [OPTIONS]\n\n");
  for (const CommandInfo& info : kCommands) std::printf("  %-17s %s\n", info.name, info.summary);
  std::printf(
      "\nsnug COMMAND --help explains a command's options.\n\n"
      "Exit codes: 0 done, 1 bug in Snug, 2 wrong option or configuration, 3 bad file, 4 does not fit the "
      "budget,\n"
      "5 non-finite numbers, 6 the system refused a read, write or allocation, 7 interrupted (finished the "
      "step and saved).\n");
  require_printed();
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    print_overview();
    return static_cast<int>(arguments.empty() ? ExitCode::kUsage : ExitCode::kSuccess);
  }
  std::string name = arguments[0] == "--version" ? "version" : arguments[0];
  size_t words = 1;
  if (name == "tokenizer" || name == "data") {  // their commands have two words
    if (arguments.size() > 1 && !arguments[1].starts_with('-')) name += " " + arguments[words++];
    if (arguments.size() == 1 || arguments[1] == "--help" || arguments[1] == "-h") {
      print_overview();
      return static_cast<int>(arguments.size() == 1 ? ExitCode::kUsage : ExitCode::kSuccess);
    }
  }
  std::vector<std::string> names;
  for (const CommandInfo& info : kCommands) {
    names.emplace_back(info.name);
    if (name != info.name) continue;
    const ParsedOptions parsed = parse_options(info.command, std::span(arguments).subspan(words));
    if (parsed.help) {
      std::printf("%s\n\nUsage: snug %s [OPTIONS]\nExample: %s\n%s", info.summary, info.name, info.example,
                  options_help(info.command).c_str());
      require_printed();
      return 0;
    }
    for (const std::string& note : parsed.notes) std::fprintf(stderr, "snug: note: %s\n", note.c_str());
    const int code = info.run(parsed.options);
    // What training prints tells how far it is; its result is the model.
    if (info.command != kTrain) require_printed();
    return code;
  }
  const std::string guess = nearest(name, names);
  throw_user(ExitCode::kUsage, "unknown command {}{}", name,
             guess.empty() ? "; snug --help lists them" : fmt::format("; did you mean {}?", guess));
}

}  // namespace
}  // namespace snug

int main(int count, char** values) {
  snug::shorten_openmp_waits(values);
  snug::open_missing_standard_streams();
  // Beyond a file-size limit a write fails, so that it is told like a full disk, instead of a signal that ends the process.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return snug::run(std::vector<std::string>(values + 1, values + count));
  } catch (const snug::UserError& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "snug: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "snug: the system refused an allocation outside the planned arena\n");
    return static_cast<int>(snug::ExitCode::kIo);
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr,
                 "snug: internal error: %s\nThis is a bug in Snug; please report it with the command line.\n",
                 error.what());
    return static_cast<int>(snug::ExitCode::kInternal);
  }
}
