// runtime/fake_backend_test.h — a backend of the tests: a few operations on f32 over real bytes, with
// faults on request
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/errors.h"

namespace snug {

class FakeTarget : public Target {
 public:
  std::string name() const override { return "fake"; }
  std::optional<std::string> refusal(const OpQuery&) const override { return std::nullopt; }
  Bytes scratch_bytes(const OpQuery&) const override { return Bytes(0); }
  Bytes alignment() const override { return Bytes(64); }
  double seconds(const OpQuery&, const OpCost&) const override { return 0; }
};

// Operations: `fill` (attribute value), `sum` (output = sum of the inputs, or without the last input at
// repetition 0 when overwrite_first=1). Everything is done at once.
class FakeBackend : public Backend {
 public:
  // Called after the kernel of `op` ran, with the arena: to write where it should not.
  std::function<void(const PlanOp& op, std::span<std::byte> arena)> fault;

  const Target& target() const override { return target_; }

  void reserve(const Plan& plan, MemoryId memory) override {
    arena_.assign(static_cast<size_t>(plan.memories.at(memory.index()).arena_bytes.value), std::byte{0});
    ++reserved;
  }

  KernelId bind(const Plan& plan, const PlanOp& op) override {
    require(op.op == "fill" || op.op == "sum", "fake: {} is not supported", op.op);
    Kernel kernel;
    kernel.op = &op;
    kernel.output = floats(plan.tensor(op.outputs.at(0)));
    for (PlanTensorId id : op.inputs) kernel.inputs.push_back(floats(plan.tensor(id)));
    if (op.op == "fill") kernel.value = static_cast<float>(op.attributes.real("value"));
    kernel.overwrite_first = op.attributes.integer_or("overwrite_first", 0) == 1;
    kernels_.push_back(kernel);
    return KernelId(kernels_.size() - 1);
  }

  Event enqueue(KernelId id, LaneId, std::span<const Event>, int64_t repetition) override {
    const Kernel& kernel = kernels_.at(id.index());
    const size_t inputs = kernel.inputs.size() - (kernel.overwrite_first && repetition == 0 ? 1 : 0);
    for (size_t i = 0; i < kernel.output.size(); ++i) {
      float sum = kernel.value;
      for (size_t k = 0; k < inputs; ++k) sum += kernel.inputs[k][i];
      kernel.output[i] = sum;
    }
    if (fault) fault(*kernel.op, arena_);
    return Event{++enqueued};
  }

  void wait(Event event) override { waited = std::max(waited, event.value); }

  void write(const PlanTensor& tensor, int64_t begin, std::span<const std::byte> source) override {
    std::memcpy(bytes(tensor, begin, source.size()), source.data(), source.size());
  }
  void read(const PlanTensor& tensor, int64_t begin, std::span<std::byte> destination) override {
    std::memcpy(destination.data(), bytes(tensor, begin, destination.size()), destination.size());
  }
  std::span<std::byte> host_view(const PlanTensor&) override { return {}; }

  int reserved = 0;
  uint64_t enqueued = 0, waited = 0;

 private:
  struct Kernel {
    const PlanOp* op = nullptr;
    std::span<float> output;
    std::vector<std::span<float>> inputs;
    float value = 0;
    bool overwrite_first = false;
  };

  std::byte* bytes(const PlanTensor& tensor, int64_t begin, size_t size) {
    require(begin >= 0 && begin + static_cast<int64_t>(size) <= tensor.shape.bytes(tensor.dtype).value,
            "fake: bytes outside {}", tensor.name);
    return arena_.data() + tensor.place.offset.value + begin;
  }
  std::span<float> floats(const PlanTensor& tensor) {
    const auto count = static_cast<size_t>(tensor.shape.elements());
    return {reinterpret_cast<float*>(bytes(tensor, 0, 4 * count)), count};
  }

  FakeTarget target_;
  std::vector<std::byte> arena_;
  std::vector<Kernel> kernels_;
};

}  // namespace snug
