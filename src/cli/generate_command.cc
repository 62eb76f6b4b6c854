#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "base/errors.h"
#include "cli/commands.h"
#include "cli/standard_streams.h"
#include "formats/byte_tokenizer.h"
#include "train/fit.h"
#include "train/generator.h"

namespace snug {
namespace {

void check_prompt(const RunOptions& options) {
  const bool as_ids = !options.prompt_tokens.empty();
  if (!as_ids && options.prompt.empty())
    throw_user(ExitCode::kUsage,
               "--prompt is missing; expected a text to continue (or --prompt_tokens with ids)");
  if (as_ids && !options.prompt.empty())
    throw_user(ExitCode::kUsage, "--prompt and --prompt_tokens are both given; expected one of them");
  if (as_ids && options.chat)
    throw_user(ExitCode::kUsage, "--chat and --prompt_tokens are both given; expected --prompt with a text");
  if (options.chat) return;
  for (const auto& [name, value] :
       {std::pair("system", &options.system), std::pair("chat_template", &options.chat_template),
        std::pair("chat_template_kwargs", &options.chat_template_kwargs)})
    if (!value->empty()) throw_user(ExitCode::kUsage, "--{} is given without --chat", name);
}

// Writes text as it comes, but what may be the beginning of `end` only when it is not.
class AnswerWriter {
 public:
  explicit AnswerWriter(std::string end) : end_(std::move(end)) {}

  // False when `end` was found: what stands before it is written.
  bool add(std::string_view text) {
    held_ += text;
    size_t ready = held_.size();
    const size_t found = end_.empty() ? std::string::npos : held_.find(end_);
    if (found != std::string::npos) {
      ready = found;
    } else if (!end_.empty()) {
      for (size_t at = held_.size() - std::min(held_.size(), end_.size() - 1); at < held_.size(); ++at)
        if (std::string_view(end_).starts_with(std::string_view(held_).substr(at))) {
          ready = at;
          break;
        }
    }
    write(ready);
    return found == std::string::npos;
  }
  void finish() { write(held_.size()); }

 private:
  void write(size_t bytes) {
    std::fwrite(held_.data(), 1, bytes, stdout);
    require_printed();
    held_.erase(0, bytes);
  }

  std::string end_, held_;
};

}  // namespace

int generate_command(const ProgramOptions& options) {
  check_prompt(options.run);
  const bool as_ids = !options.run.prompt_tokens.empty();
  Prepared run = prepare(options.run, RunKind::kGenerate);
  require_budget_allowed(run);
  require_plan_fits(run);

  const std::vector<int32_t> prompt =
      run.options.prompt_tokens.empty() ? encode_bytes(options.run.prompt) : run.options.prompt_tokens;
  if (!as_ids && !run.chat) std::fwrite(options.run.prompt.data(), 1, options.run.prompt.size(), stdout);
  // What is generated is decoded behind the prompt, which may leave it a space or the rest of a character.
  std::optional<TextDecoder> decoder;
  std::string text;
  if (run.tokenizer) {
    decoder.emplace(*run.tokenizer);
    for (const int32_t id : prompt) decoder->push(id, text);
    text.clear();
  }
  // An end of turn that is no token of its own is found in the text.
  AnswerWriter answer(run.chat && !run.chat->end_id ? run.chat->end_of_turn : "");
  bool ended = false;
  generate(run, prompt, [&](int32_t token) {
    if (as_ids) {
      std::printf("%d ", token);
      require_printed();
      return true;
    }
    if (decoder)
      decoder->push(token, text);
    else
      text = decode_bytes(std::span(&token, 1));
    ended = !answer.add(text);
    text.clear();
    return !ended;
  });
  if (!ended) {
    if (decoder) decoder->finish(text);
    answer.add(text);
    answer.finish();
  }
  std::printf("\n");
  return 0;
}

}  // namespace snug
