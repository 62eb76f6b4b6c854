#include "training_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "backends/cpu/dispatch.h"
#include "base/errors.h"
#include "data/permutation.h"

namespace snug {
namespace {

// The rates only weigh estimates of time; measuring them would cost each of some hundred runs 0.2 s.
constexpr cpu::CpuRates kRates{.product_flops_per_second = 1e11, .bytes_per_second = 1e10};

}  // namespace

TrainingRun::TrainingRun(const Model& model, const ParameterFiles& weights, Setup setup)
    : setup_(std::move(setup)),
      backend_(cpu::choose_dispatch(setup_.threads), kRates),
      compiled_(compile(model, setup_.compile, backend_.target())) {
  if (setup_.rewrite) setup_.rewrite(compiled_.plan);
  executor_ = std::make_unique<Executor>(plan(), backend_, [&weights, this](const PlanOp& op) {
    require(op.op == "read_tensor", "test: only phase load runs here");
    weights.read(op, *executor_);
  });
  for (size_t i = 0; i < plan().tensors.size(); ++i) {
    const PlanTensor& tensor = plan().tensors[i];
    if (tensor.storage != "state" || tensor.parameter.empty()) continue;
    if (tensor.dtype == DType::kU8) continue;  // the low bits of a split master
    if (tensor.category == "master_weights" || !weights_.contains(tensor.parameter))
      weights_[tensor.parameter] = PlanTensorId(i);
  }
  if (setup_.check_memory) executor_->observe(&canary_.emplace(plan(), backend_));
  executor_->run_phase("load");
}

template <typename T>
void TrainingRun::write_if_used(const std::string& name, const std::vector<T>& source) {
  if (plan().find(name).valid()) executor_->write_input(name, std::as_bytes(std::span(source)));
}

void TrainingRun::write_batch(const std::string& phase, const Batch& batch) {
  write_if_used(phase + "/tokens", batch.tokens);
  write_if_used(phase + "/targets", batch.targets);
  write_if_used(phase + "/positions", batch.positions);
  write_if_used(phase + "/document_starts", batch.document_starts);
  write_if_used(phase + "/randomness", batch.randomness);
}

float TrainingRun::micro_step(const Batch& batch, float inverse_tokens, int64_t repetition) {
  write_batch("micro_step", batch);
  write_if_used<float>("micro_step/inverse_tokens", {inverse_tokens});
  write_if_used<float>("micro_step/loss_scale", {setup_.loss_scale});
  executor_->run_phase("micro_step", repetition);
  return values("micro_step/loss").at(0);
}

void TrainingRun::write_hyperparameters(float learning_rate, bool loss_is_finite) {
  const auto t = static_cast<double>(applied_updates_ + 1);
  const std::vector<float> hyperparameters = {
      learning_rate, static_cast<float>(1 - std::pow(optimizer().beta1, t)),
      static_cast<float>(1 - std::pow(optimizer().beta2, t)), loss_is_finite ? 1.0f : 0.0f};
  const std::string phase = updates_in_backward() ? "micro_step/" : "update/";
  executor_->write_input(phase + "hyperparameters", std::as_bytes(std::span(hyperparameters)));
  write_if_used<uint32_t>(phase + std::string(kUpdateRandomness),
                          {7, 0, static_cast<uint32_t>(applied_updates_), 0});
}

Control TrainingRun::apply(float learning_rate, bool loss_is_finite) {
  write_hyperparameters(learning_rate, loss_is_finite);
  write_if_used<float>("update/loss_scale", {setup_.loss_scale});
  executor_->run_phase("update");
  const std::vector<float> control = values("update/control");
  if (control.at(1) != 0) ++applied_updates_;
  return {control.at(0), control.at(1), control.at(2), control.at(3)};
}

UpdateResult TrainingRun::update(std::span<const Batch> micro_batches, float learning_rate) {
  int64_t supervised = 0;
  for (const Batch& batch : micro_batches) supervised += batch.supervised_tokens;
  const float inverse_tokens = supervised == 0 ? 0.0f : 1.0f / static_cast<float>(supervised);
  UpdateResult result;
  if (updates_in_backward()) write_hyperparameters(learning_rate, true);
  for (size_t i = 0; i < micro_batches.size(); ++i)
    result.loss += micro_step(micro_batches[i], inverse_tokens, static_cast<int64_t>(i));
  if (!updates_in_backward()) {
    result.control = apply(learning_rate, std::isfinite(result.loss));
    return result;
  }
  const std::vector<float> control = values("micro_step/control"), gate = values("micro_step/gate");
  result.control = {gate.at(0), gate.at(1), control.at(2), control.at(3)};
  result.gates_passed = gate.at(2);
  if (gate.at(1) != 0) ++applied_updates_;
  return result;
}

float TrainingRun::evaluate(const Batch& batch) {
  write_batch("evaluate", batch);
  write_if_used<float>("evaluate/inverse_tokens", {1.0f / static_cast<float>(batch.supervised_tokens)});
  executor_->run_phase("evaluate");
  return values("evaluate/loss").at(0);
}

std::vector<float> TrainingRun::next_logits(std::span<const int32_t> tokens, int32_t position,
                                            int64_t length) {
  const std::string phase = fmt::format("generate_{}", length);
  Batch batch = make_batch(1, length);
  std::copy(tokens.begin(), tokens.end(), batch.tokens.begin());
  write_batch(phase, batch);
  write_if_used<int32_t>(phase + "/position", {position});
  executor_->run_phase(phase);
  return values(phase + "/logits");
}

std::vector<std::byte> TrainingRun::bytes(std::string_view tensor) {
  const PlanTensorId id = executor_->tensor(tensor);
  const PlanTensor& planned = plan().tensor(id);
  std::vector<std::byte> bytes(static_cast<size_t>(planned.shape.bytes(planned.dtype).value));
  executor_->read(id, 0, bytes);
  return bytes;
}

std::vector<float> TrainingRun::values(std::string_view tensor) {
  const std::vector<std::byte> stored = bytes(tensor);
  const DType dtype = plan().tensor(executor_->tensor(tensor)).dtype;
  std::vector<float> values(stored.size() / static_cast<size_t>(dtype_bytes(dtype)));
  widen(file_dtype(dtype), stored.data(), values.data(), static_cast<int64_t>(values.size()));
  return values;
}

std::vector<float> TrainingRun::weight(const std::string& parameter) {
  const std::string& stored = plan().tensor(weights_.at(parameter)).name;
  if (!plan().find("low." + parameter).valid()) return values(stored);
  const std::vector<std::byte> high = bytes(stored), low = bytes("low." + parameter);
  std::vector<float> joined(high.size() / 2);
  join_master(reinterpret_cast<const uint16_t*>(high.data()), reinterpret_cast<const uint16_t*>(low.data()),
              joined.data(), static_cast<int64_t>(joined.size()));
  return joined;
}

std::map<std::string, std::vector<std::byte>> TrainingRun::state() {
  std::map<std::string, std::vector<std::byte>> state;
  for (const PlanTensor& tensor : plan().tensors)
    if (tensor.storage == "state") state[tensor.name] = bytes(tensor.name);
  return state;
}

Batch random_batch(int64_t batch, int64_t length, int64_t vocabulary, uint64_t seed, int64_t update,
                   int64_t first_sample) {
  Batch made = make_batch(batch, length);
  for (int64_t b = 0; b < batch; ++b) {
    const auto sample = static_cast<uint64_t>(first_sample + b);
    // A permutation of all (token, ignored) pairs repeats nothing and needs no generator's state.
    const int64_t pairs = vocabulary * 3;
    const Permutation draw(pairs, seed ^ sample << 32, static_cast<uint64_t>(update));
    const auto pair = [&](int64_t t) { return draw(t % pairs); };
    const int64_t second_document = sample % 2 == 1 ? length / 3 : length;
    for (int64_t t = 0; t < length; ++t) {
      const auto i = static_cast<size_t>(b * length + t);
      made.tokens[i] = static_cast<int32_t>(pair(t) / 3);
      const int64_t next = pair(t + 1);
      made.targets[i] = next % 3 == 0 ? kIgnoredTarget : static_cast<int32_t>(next / 3);
      made.supervised_tokens += made.targets[i] != kIgnoredTarget ? 1 : 0;
      const bool in_second = t >= second_document;
      made.document_starts[i] = static_cast<int32_t>(in_second ? second_document : 0);
      made.positions[i] = static_cast<int32_t>(in_second ? t - second_document : t);
    }
    const auto at = static_cast<size_t>(b) * 4;
    made.randomness[at] = static_cast<uint32_t>(seed);
    made.randomness[at + 1] = static_cast<uint32_t>(seed >> 32);
    made.randomness[at + 2] = static_cast<uint32_t>(update);
    made.randomness[at + 3] = static_cast<uint32_t>(sample);
  }
  made.windows = batch;
  return made;
}

namespace {

struct BufferSpan {
  std::vector<size_t> tensors;
  int64_t first = INT64_MAX, last = 0, bytes = 0, offset = 0;
};

constexpr int64_t kAlignment = 64;

std::vector<BufferSpan> buffers_of(const Plan& plan) {
  std::map<int32_t, BufferSpan> buffers;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlanTensor& tensor = plan.tensors[i];
    BufferSpan& buffer = buffers[tensor.buffer];
    buffer.tensors.push_back(i);
    buffer.first = std::min(buffer.first, tensor.first);
    buffer.last = std::max(buffer.last, tensor.last);
    buffer.bytes = std::max(buffer.bytes, round_up(tensor.shape.bytes(tensor.dtype).value, kAlignment));
  }
  require(!buffers.contains(-1), "test: a tensor has no buffer");
  std::vector<BufferSpan> list;
  for (auto& [number, buffer] : buffers) list.push_back(std::move(buffer));
  return list;
}

void place(Plan& plan, const std::vector<BufferSpan>& buffers) {
  require(plan.memories.size() == 1, "test: one memory");
  Bytes end;
  for (const BufferSpan& buffer : buffers) {
    for (size_t tensor : buffer.tensors) plan.tensors[tensor].place.offset = Bytes(buffer.offset);
    end = std::max(end, Bytes(buffer.offset + buffer.bytes));
  }
  plan.memories[0].arena_bytes = end;
}

}  // namespace

void spread_layout(Plan& plan) {
  std::vector<BufferSpan> buffers = buffers_of(plan);
  int64_t offset = 0;
  for (BufferSpan& buffer : buffers) buffer.offset = std::exchange(offset, offset + buffer.bytes);
  place(plan, buffers);
}

void shuffled_layout(Plan& plan, uint64_t seed) {
  const std::vector<BufferSpan> buffers = buffers_of(plan);
  const Permutation order(static_cast<int64_t>(buffers.size()), seed, 0);
  std::vector<BufferSpan> placed;
  for (size_t i = 0; i < buffers.size(); ++i) {
    BufferSpan buffer = buffers[static_cast<size_t>(order(static_cast<int64_t>(i)))];
    // First fit: the lowest offset that no placed buffer with a common moment takes.
    std::sort(placed.begin(), placed.end(),
              [](const BufferSpan& a, const BufferSpan& b) { return a.offset < b.offset; });
    for (const BufferSpan& other : placed) {
      if (other.last <= buffer.first || buffer.last <= other.first) continue;
      if (buffer.offset + buffer.bytes <= other.offset) break;
      buffer.offset = std::max(buffer.offset, other.offset + other.bytes);
    }
    placed.push_back(std::move(buffer));
  }
  place(plan, placed);
}

}  // namespace snug
