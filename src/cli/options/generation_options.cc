// Options: snug generate.

#include "cli/options/option_kinds.h"

namespace snug {
namespace {

std::vector<int32_t> read_token_list(const std::string& value) {
  std::vector<int32_t> tokens;
  size_t begin = 0;
  while (begin < value.size()) {
    const size_t end = value.find_first_of(", \t\n", begin);
    const std::string word = value.substr(begin, end == std::string::npos ? end : end - begin);
    if (!word.empty())
      tokens.push_back(read_number<int32_t>(word, 0, INT32_MAX, "token ids ≥ 0 separated by commas"));
    begin = end == std::string::npos ? value.size() : end + 1;
  }
  return tokens;
}

}  // namespace

std::vector<OptionInfo> generation_options() {
  return option_group(
      "Generation",
      {text("prompt", &RunOptions::prompt,
            {.value = "TEXT", .commands = kGenerate, .help = "Text to continue."}),
       boolean("chat", &RunOptions::chat,
               {.commands = kGenerate,
                .help = "The prompt is a user's turn of a conversation, written as the model's chat template "
                        "writes it; prints the answer, up to the template's end-of-turn token."}),
       text("system", &RunOptions::system,
            {.value = "TEXT",
             .commands = kGenerate,
             .help = "With --chat: the system message before the prompt."}),
       OptionInfo{.name = "prompt_tokens",
                  .value = "IDS",
                  .many = OptionInfo::Many::kCommas,
                  .commands = kGenerate,
                  .help = "Token ids to continue, separated by commas; prints ids. For tokenizers that Snug "
                          "does not read.",
                  .set = [](ProgramOptions& o,
                            const std::string& value) { o.run.prompt_tokens = read_token_list(value); },
                  .get =
                      [](const ProgramOptions& o) {
                        return fmt::format("{}", fmt::join(o.run.prompt_tokens, ","));
                      }},
       integer("max_new_tokens", &RunOptions::max_new_tokens, 1,
               {.commands = kGenerate, .help = "Tokens to add; ends earlier at end of text."}),
       real("temperature", &RunOptions::temperature, 0, kLargestReal,
            {.commands = kGenerate, .help = "0 always takes the likeliest token."}),
       integer("top_k", &RunOptions::top_k, 0,
               {.commands = kGenerate, .help = "Sample from the k likeliest tokens. 0: from all."}),
       real(
           "top_p", &RunOptions::top_p, 1e-9, 1,
           {.commands = kGenerate, .help = "Sample from the likeliest tokens that hold this probability."})});
}

}  // namespace snug
