#include "train/first_non_finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/errors.h"

namespace snug {
namespace {

constexpr int64_t kPieceBytes = 1 << 16;

enum class Finding { kFinite, kInfinity, kNan };

// Elements of `bytes` whose exponent (the bits of `exponent`) is all ones: NaNs where a bit of the mantissa below it is set.
template <typename Word>
Finding find_in(std::span<const std::byte> bytes, Word exponent) {
  const Word mantissa = static_cast<Word>((exponent & (~exponent + 1)) - 1);
  for (size_t at = 0; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    if ((word & exponent) == exponent) return (word & mantissa) != 0 ? Finding::kNan : Finding::kInfinity;
  }
  return Finding::kFinite;
}

Finding find_in(std::span<const std::byte> bytes, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return find_in<uint64_t>(bytes, 0x7FF0000000000000u);
    case DType::kF32:
      return find_in<uint32_t>(bytes, 0x7F800000u);
    case DType::kBF16:
      return find_in<uint16_t>(bytes, 0x7F80u);
    case DType::kF16:
      return find_in<uint16_t>(bytes, 0x7C00u);
    default:
      return Finding::kFinite;
  }
}

std::string_view without_phase(std::string_view name, std::string_view phase) {
  const bool is_local = name.size() > phase.size() && name.starts_with(phase) && name[phase.size()] == '/';
  return is_local ? name.substr(phase.size() + 1) : name;
}

}  // namespace

FirstNonFinite::FirstNonFinite(Executor& executor)
    : executor_(executor), piece_(kPieceBytes), seen_(executor.plan().tensors.size()) {}

void FirstNonFinite::before_operation(const PlanPhase& phase, const PlanOp& op, int64_t, int64_t) {
  for (PlanTensorId id : op.inputs) {
    if (executor_.plan().tensor(id).storage != "state" || seen_[id.index()]) continue;
    seen_[id.index()] = true;
    look_at(id, phase, op);
  }
}

void FirstNonFinite::after_operation(const PlanPhase& phase, const PlanOp& op, int64_t, int64_t) {
  for (PlanTensorId id : op.outputs) look_at(id, phase, op);
}

void FirstNonFinite::look_at(PlanTensorId id, const PlanPhase& phase, const PlanOp& op) {
  const PlanTensor& tensor = executor_.plan().tensor(id);
  if (found_ || !is_floating(tensor.dtype)) return;
  const int64_t bytes = tensor.shape.bytes(tensor.dtype).value;
  for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const std::span piece(piece_.data(), static_cast<size_t>(std::min(kPieceBytes, bytes - begin)));
    executor_.read(id, begin, piece);
    const Finding finding = find_in(piece, tensor.dtype);
    if (finding == Finding::kFinite) continue;
    found_ = fmt::format("{} ({}{}, operation {}) holds {}", without_phase(tensor.name, phase.name),
                         dtype_name(tensor.dtype), to_string(tensor.shape), op.name,
                         finding == Finding::kNan ? "a NaN" : "an infinity");
    return;
  }
}

void throw_non_finite(Executor& executor, Precision precision, const std::string& why,
                      const std::function<void(const FirstNonFinite&)>& again) {
  FirstNonFinite first(executor);
  executor.observe(&first);
  again(first);
  executor.observe(nullptr);
  std::string message = why;
  if (first.found()) message += fmt::format(".\nThe first tensor that is not finite: {}", *first.found());
  if (precision == Precision::kF16)
    message += ".\nNumbers of fp16 end at 65,504: use --precision bf16, which has fp32's range, or fp32";
  throw UserError(ExitCode::kNonFinite, message);
}

}  // namespace snug
