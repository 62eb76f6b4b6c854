#include <cstdio>
#include <optional>

#include "base/errors.h"
#include "cli/commands.h"
#include "formats/byte_tokenizer.h"
#include "train/fit.h"
#include "train/generator.h"

namespace snug {

int generate_command(const ProgramOptions& options) {
  const bool as_ids = !options.run.prompt_tokens.empty();
  if (!as_ids && options.run.prompt.empty())
    throw_user(ExitCode::kUsage, "--prompt is missing; expected a text to continue (or --prompt_tokens with ids)");
  if (as_ids && !options.run.prompt.empty())
    throw_user(ExitCode::kUsage, "--prompt and --prompt_tokens are both given; expected one of them");
  Prepared run = prepare(options.run, RunKind::kGenerate);
  require_budget_allowed(run);
  require_plan_fits(run);

  const bool has_ids = as_ids || run.tokenizer;
  const std::vector<int32_t> prompt = has_ids ? run.options.prompt_tokens : encode_bytes(options.run.prompt);
  if (!as_ids) std::fwrite(options.run.prompt.data(), 1, options.run.prompt.size(), stdout);
  // What is generated is decoded behind the prompt, which may leave it a space or the rest of a character.
  std::optional<TextDecoder> decoder;
  std::string text;
  if (run.tokenizer) {
    decoder.emplace(*run.tokenizer);
    for (const int32_t id : prompt) decoder->push(id, text);
    text.clear();
  }
  generate(run, prompt, [&](int32_t token) {
    if (as_ids) {
      std::printf("%d ", token);
    } else {
      if (decoder)
        decoder->push(token, text);
      else
        text = decode_bytes(std::span(&token, 1));
      std::fwrite(text.data(), 1, text.size(), stdout);
      text.clear();
    }
    std::fflush(stdout);
  });
  if (decoder) decoder->finish(text);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::printf("\n");
  return 0;
}

}  // namespace snug
