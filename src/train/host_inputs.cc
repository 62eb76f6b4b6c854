#include "train/host_inputs.h"

namespace snug {

PlanTensorId phase_tensor(const Executor& executor, std::string_view phase, std::string_view name) {
  return executor.plan().find(fmt::format("{}/{}", phase, name));
}

BatchInputs::BatchInputs(const Executor& executor, std::string_view phase)
    : tokens_(phase_tensor(executor, phase, "tokens")),
      targets_(phase_tensor(executor, phase, "targets")),
      positions_(phase_tensor(executor, phase, "positions")),
      document_starts_(phase_tensor(executor, phase, "document_starts")),
      inverse_tokens_(phase_tensor(executor, phase, "inverse_tokens")),
      randomness_(phase_tensor(executor, phase, "randomness")) {}

void BatchInputs::write(Executor& executor, const Batch& batch, float inverse_tokens) const {
  const auto put = [&](PlanTensorId id, std::span<const std::byte> bytes) {
    if (id.valid()) executor.write_input(id, bytes);
  };
  put(tokens_, std::as_bytes(std::span(batch.tokens)));
  put(targets_, std::as_bytes(std::span(batch.targets)));
  put(positions_, std::as_bytes(std::span(batch.positions)));
  put(document_starts_, std::as_bytes(std::span(batch.document_starts)));
  put(inverse_tokens_, std::as_bytes(std::span(&inverse_tokens, 1)));
  put(randomness_, std::as_bytes(std::span(batch.randomness)));
}

}  // namespace snug
