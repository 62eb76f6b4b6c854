#include "train/generator.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "runtime/executor.h"
#include "train/first_non_finite.h"
#include "train/host_inputs.h"
#include "train/sampling.h"
#include "train/weights_io.h"

namespace snug {

std::vector<int32_t> generate(Prepared& run, std::span<const int32_t> prompt, const std::function<bool(int32_t)>& emit) {
  require(run.kind == RunKind::kGenerate, "generate() needs a run that was prepared for generation");
  if (prompt.empty()) throw_user(ExitCode::kUsage, "the prompt is empty; expected at least one token");
  if (static_cast<int64_t>(prompt.size()) > run.model.max_positions)
    throw_user(ExitCode::kUsage, "the prompt has {} tokens; the model has {} positions", prompt.size(), run.model.max_positions);
  for (int32_t token : prompt)
    if (token < 0 || token >= run.model.vocabulary)
      throw_user(ExitCode::kUsage, "the prompt holds token id {}; expected 0 to {}", token, run.model.vocabulary - 1);

  const ParameterFiles files = ParameterFiles::from_weights(run.model, run.directory.open_weights());
  Executor* loading = nullptr;
  Executor executor(run.compiled.plan, *run.backend, [&](const PlanOp& op) { files.read(op, *loading); });
  loading = &executor;
  executor.run_phase("load");

  std::vector<int32_t> ends = run.directory.end_of_text_ids();
  if (run.chat && run.chat->end_id) ends.push_back(*run.chat->end_id);
  Sampler sampler({.temperature = run.options.temperature, .top_k = run.options.top_k, .top_p = run.options.top_p},
                  run.options.seed, run.model.vocabulary);
  std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  std::vector<float> logits(static_cast<size_t>(run.model.vocabulary));
  for (int64_t made = 0; made < run.options.max_new_tokens; ++made) {
    const auto length = static_cast<int64_t>(tokens.size());
    if (length > run.model.max_positions) break;
    const auto planned = std::lower_bound(run.compile_options.generate_lengths.begin(),
                                          run.compile_options.generate_lengths.end(), length);
    require(planned != run.compile_options.generate_lengths.end(), "no generate phase holds {} tokens", length);
    const std::string phase = fmt::format("generate_{}", *planned);
    Batch batch = make_batch(1, *planned);
    std::copy(tokens.begin(), tokens.end(), batch.tokens.begin());
    BatchInputs(executor, phase).write(executor, batch, 1.0f);
    const auto position = static_cast<int32_t>(length - 1);
    executor.write_input(phase + "/position", std::as_bytes(std::span(&position, 1)));
    executor.run_phase(phase);
    executor.read_result(phase + "/logits", std::as_writable_bytes(std::span(logits)));
    if (!std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); }))
      throw_non_finite(executor, run.options.precision,
                       fmt::format("the logits behind token {} are not finite", length),
                       [&](const FirstNonFinite&) {
                         BatchInputs(executor, phase).write(executor, batch, 1.0f);
                         executor.write_input(phase + "/position", std::as_bytes(std::span(&position, 1)));
                         executor.run_phase(phase);
                       });
    const int32_t next = sampler.next(logits);
    if (std::count(ends.begin(), ends.end(), next) > 0) break;
    tokens.push_back(next);
    if (!emit(next)) break;
  }
  return tokens;
}

}  // namespace snug
