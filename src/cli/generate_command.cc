#include <cstdio>

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
  if (!as_ids) require_byte_tokenizer(run.directory.path());
  require_budget_allowed(run);
  require_plan_fits(run);

  std::vector<int32_t> prompt = as_ids ? options.run.prompt_tokens : encode_bytes(options.run.prompt);
  if (!as_ids) std::fwrite(options.run.prompt.data(), 1, options.run.prompt.size(), stdout);
  generate(run, prompt, [&](int32_t token) {
    if (as_ids) {
      std::printf("%d ", token);
    } else {
      const std::string bytes = decode_bytes(std::span(&token, 1));
      std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    }
    std::fflush(stdout);
  });
  std::printf("\n");
  return 0;
}

}  // namespace snug
