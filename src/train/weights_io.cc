#include "train/weights_io.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/float16.h"
#include "train/initialize.h"

namespace snug {
namespace {

uint16_t narrow_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(bits >> 16 | ((bits & 0x7F0000) == 0 ? 1 : 0));
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

bool is_parameter_type(FileDType type) {
  return type == FileDType::kF32 || type == FileDType::kBF16 || type == FileDType::kF16;
}

// Byte by byte, in pieces.
bool same_values(const WeightSource& source, const WeightEntry& a, const WeightEntry& b) {
  if (a.bytes != b.bytes || a.dtype != b.dtype) return false;
  constexpr int64_t kPiece = 1 << 16;
  std::vector<std::byte> left(kPiece), right(kPiece);
  for (int64_t first = 0; first < a.bytes; first += kPiece) {
    const auto size = static_cast<size_t>(std::min(kPiece, a.bytes - first));
    source.read(a, first, std::span(left.data(), size));
    source.read(b, first, std::span(right.data(), size));
    if (std::memcmp(left.data(), right.data(), size) != 0) return false;
  }
  return true;
}

// The first of `values` that is a NaN or an infinity; −1: none.
int64_t first_non_finite(std::span<const float> values) {
  uint32_t largest = 0;  // exponent: one pass without a branch, for nearly every piece is finite
  for (const float value : values) largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7F800000u);
  if (largest != 0x7F800000u) return -1;
  return std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); }) -
         values.begin();
}

// The first of n stored halves whose exponent is all ones; −1: none.
int64_t first_beyond_range(FileDType type, const std::byte* stored, int64_t n) {
  const uint16_t exponent = type == FileDType::kBF16 ? 0x7F80 : 0x7C00;
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, stored + 2 * i, 2);
    if ((bits & exponent) == exponent) return i;
  }
  return -1;
}

// "an infinity (element 17)"
std::string describe_non_finite(float value, int64_t element) {
  return fmt::format("{} (element {})", std::isnan(value) ? "a NaN" : "an infinity", element);
}

// The staging scratch of a host operation, in two halves: as stored in the file, and as f32.
struct Staging {
  std::byte* stored;
  float* widened;
  int64_t elements;  // of one piece
};

Staging staging_of(const PlanOp& op, Executor& executor) {
  require(op.scratch.valid(), "{} has no staging scratch", op.name);
  const std::span<std::byte> bytes = executor.backend().host_view(executor.plan().tensor(op.scratch));
  require(bytes.size() >= 128, "{}: {} bytes of staging are not host-visible enough", op.name, bytes.size());
  const size_t half = bytes.size() / 2 / 64 * 64;
  return {bytes.data(), reinterpret_cast<float*>(bytes.data() + half), static_cast<int64_t>(half / sizeof(float))};
}

}  // namespace

void widen(FileDType type, const std::byte* from, float* to, int64_t n) {
  if (type == FileDType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  require(type == FileDType::kBF16 || type == FileDType::kF16, "{} is no type of parameters", file_dtype_name(type));
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, 2);
    to[i] = type == FileDType::kBF16 ? std::bit_cast<float>(static_cast<uint32_t>(bits) << 16) : widen_f16(bits);
  }
}

void narrow(const float* from, FileDType type, std::byte* to, int64_t n) {
  if (type == FileDType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  require(type == FileDType::kBF16 || type == FileDType::kF16, "{} is no type of parameters", file_dtype_name(type));
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = type == FileDType::kBF16 ? narrow_bf16(from[i]) : narrow_f16(from[i]);
    std::memcpy(to + 2 * i, &bits, 2);
  }
}

void narrow_weight(const float* from, uint16_t* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(from[i]);
    const bool finite = (bits & 0x7F800000) != 0x7F800000;
    to[i] = finite ? static_cast<uint16_t>((bits + 0x8000) >> 16) : narrow_bf16(from[i]);
  }
}

void split_master(const float* from, uint16_t* weight, uint16_t* low, int64_t n) {
  narrow_weight(from, weight, n);
  for (int64_t i = 0; i < n; ++i) low[i] = std::isnan(from[i]) ? uint16_t{0} : static_cast<uint16_t>(std::bit_cast<uint32_t>(from[i]));
}

void join_master(const uint16_t* weight, const uint16_t* low, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = static_cast<uint32_t>(weight[i]) << 16 | low[i];
    to[i] = std::bit_cast<float>(bits - ((bits & 0x8000u) << 1));
  }
}

ParameterFiles ParameterFiles::from_scratch(const Model& model, uint64_t seed) {
  ParameterFiles files;
  files.model_ = &model;
  files.seed_ = seed;
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    const std::string& name = model.parameters[i].name;
    files.index_[name] = i;
    files.files_[name] = {.stored_name = name};
  }
  return files;
}

ParameterFiles ParameterFiles::from_weights(const Model& model, WeightSource weights) {
  ParameterFiles files = from_scratch(model, 0);
  files.source_ = std::make_shared<WeightSource>(std::move(weights));
  std::vector<std::string> problems;
  std::map<std::string, std::string> found;  // parameter → name in the file
  for (const WeightEntry& entry : files.source_->tensors()) {
    const std::optional<std::string> parameter = model_parameter(model, entry.name);
    if (!parameter) {
      if (!is_ignorable_tensor(model, entry.name))
        problems.push_back(fmt::format("unexpected tensor {} {} in {}", entry.name, to_string(entry.shape),
                                       files.source_->file_of(entry)));
      continue;
    }
    ParameterFile& file = files.files_.at(*parameter);
    const ParameterSpec& spec = files.spec_of(*parameter);
    if (file.source != nullptr) {
      // A tied head stored beside its embedding is accepted; the embedding's own name is the one that is read and written.
      const bool tied = is_tied_copy(model, entry.name) || is_tied_copy(model, file.stored_name);
      if (tied && !same_values(*files.source_, *file.source, entry))
        problems.push_back(fmt::format("{} and {} differ, but tie_word_embeddings says that they are one tensor",
                                       file.stored_name, entry.name));
      if (is_tied_copy(model, entry.name)) continue;
      if (!tied) problems.push_back(fmt::format("{} is there twice, as {} and {}", *parameter, file.stored_name, entry.name));
    }
    if (entry.shape != spec.shape)
      problems.push_back(fmt::format("tensor {} has shape {}; expected {}", entry.name, to_string(entry.shape),
                                     to_string(spec.shape)));
    if (!is_parameter_type(entry.dtype))
      problems.push_back(fmt::format("tensor {} has type {}; expected F32, BF16 or F16", entry.name,
                                     file_dtype_name(entry.dtype)));
    file = {.stored_name = entry.name, .dtype = entry.dtype, .source = &entry};
  }
  for (const ParameterSpec& spec : model.parameters)
    if (files.files_.at(spec.name).source == nullptr)
      problems.push_back(fmt::format("missing tensor {} {}", spec.name, to_string(spec.shape)));
  if (!problems.empty()) {
    constexpr size_t kShown = 10;
    const size_t more = problems.size() > kShown ? problems.size() - kShown : 0;
    problems.resize(std::min(problems.size(), kShown));
    throw_user(ExitCode::kBadFile, "the weights do not match config.json:\n  {}{}", fmt::join(problems, "\n  "),
               more > 0 ? fmt::format("\n  and {} more", more) : "");
  }
  return files;
}

void ParameterFiles::save_as(FileDType dtype) {
  for (auto& [name, file] : files_) file.dtype = dtype;
}

const ParameterSpec& ParameterFiles::spec_of(const std::string& parameter) const {
  const auto found = index_.find(parameter);
  require(found != index_.end(), "parameter {} is not in the model", parameter);
  return model_->parameters[found->second];
}

const std::string& ParameterFiles::stored_name(const PlanOp& op, const Plan& plan) const {
  const PlanTensorId id = op.outputs.empty() ? op.inputs.at(0) : op.outputs.at(0);
  return files_.at(plan.tensor(id).parameter).stored_name;
}

void ParameterFiles::require_finite(const ParameterFile& file, int64_t first,
                                    std::span<const float> values) const {
  if (const int64_t bad = first_non_finite(values); bad >= 0)
    throw_user(ExitCode::kBadFile, "{}: tensor {} holds {}; expected finite numbers",
               source_->file_of(*file.source), file.stored_name,
               describe_non_finite(values[static_cast<size_t>(bad)], first + bad));
}

void ParameterFiles::read(const PlanOp& op, Executor& executor) const {
  const PlanTensorId id = op.outputs.at(0);
  const PlanTensor& tensor = executor.plan().tensor(id);
  const ParameterFile& file = files_.at(tensor.parameter);
  const ParameterSpec& spec = spec_of(tensor.parameter);
  const Staging staging = staging_of(op, executor);
  const int64_t elements = tensor.shape.elements();
  for (int64_t first = 0; first < elements; first += staging.elements) {
    const int64_t n = std::min(staging.elements, elements - first);
    if (file.source != nullptr) {
      const int64_t width = file_dtype_bytes(file.source->dtype);
      source_->read(*file.source, first * width, std::span(staging.stored, static_cast<size_t>(n * width)));
      widen(file.source->dtype, staging.stored, staging.widened, n);
      require_finite(file, first, std::span(staging.widened, static_cast<size_t>(n)));
    } else {
      initialize(spec, seed_, first, std::span(staging.widened, static_cast<size_t>(n)));
    }
    if (op.outputs.size() == 2) {
      auto* weight = reinterpret_cast<uint16_t*>(staging.stored);
      split_master(staging.widened, weight, weight + n, n);
      const auto halves = std::as_bytes(std::span(weight, static_cast<size_t>(2 * n)));
      executor.write(id, 2 * first, halves.first(static_cast<size_t>(2 * n)));
      executor.write(op.outputs[1], 2 * first, halves.last(static_cast<size_t>(2 * n)));
    } else if (is_half(tensor.dtype)) {
      if (tensor.dtype == DType::kBF16)
        narrow_weight(staging.widened, reinterpret_cast<uint16_t*>(staging.stored), n);
      else
        narrow(staging.widened, FileDType::kF16, staging.stored, n);
      executor.write(id, 2 * first, std::span<const std::byte>(staging.stored, static_cast<size_t>(2 * n)));
    } else {
      require(tensor.dtype == DType::kF32, "parameter {} is kept as {}", tensor.parameter, dtype_name(tensor.dtype));
      executor.write(id, 4 * first, std::as_bytes(std::span(staging.widened, static_cast<size_t>(n))));
    }
  }
}

std::vector<TensorSpec> ParameterFiles::specs() const {
  std::vector<TensorSpec> specs;
  for (const ParameterSpec& spec : model_->parameters) {
    const ParameterFile& file = files_.at(spec.name);
    specs.push_back({.name = file.stored_name, .dtype = file.dtype, .shape = spec.shape});
  }
  return specs;
}

std::optional<std::string> ParameterFiles::write(const PlanOp& op, Executor& executor,
                                                 WeightSink& sink) const {
  const PlanTensorId id = op.inputs.at(0);
  const PlanTensor& tensor = executor.plan().tensor(id);
  const bool split = op.inputs.size() == 2;
  const bool is_bf16 = tensor.dtype == DType::kBF16;
  require(is_bf16 || (!split && tensor.dtype == DType::kF32), "parameter {} is saved from {}",
          tensor.parameter, dtype_name(tensor.dtype));
  const ParameterFile& file = files_.at(tensor.parameter);
  const Staging staging = staging_of(op, executor);
  const int64_t width = file_dtype_bytes(file.dtype), elements = tensor.shape.elements();
  std::optional<std::string> problem;
  for (int64_t first = 0; first < elements; first += staging.elements) {
    const int64_t n = std::min(staging.elements, elements - first);
    if (split) {
      auto* weight = reinterpret_cast<uint16_t*>(staging.stored);
      const auto halves = std::as_writable_bytes(std::span(weight, static_cast<size_t>(2 * n)));
      executor.read(id, 2 * first, halves.first(static_cast<size_t>(2 * n)));
      executor.read(op.inputs[1], 2 * first, halves.last(static_cast<size_t>(2 * n)));
      join_master(weight, weight + n, staging.widened, n);
    } else if (is_bf16) {
      executor.read(id, 2 * first, std::span(staging.stored, static_cast<size_t>(2 * n)));
      widen(FileDType::kBF16, staging.stored, staging.widened, n);
    } else {
      executor.read(id, 4 * first, std::as_writable_bytes(std::span(staging.widened, static_cast<size_t>(n))));
    }
    narrow(staging.widened, file.dtype, staging.stored, n);
    if (!problem) {
      // Looked at as it lies in the file, which may have a shorter range.
      const std::span values(staging.widened, static_cast<size_t>(n));
      int64_t bad = first_non_finite(values);
      const bool was_finite = bad < 0;
      if (was_finite && file.dtype != FileDType::kF32)
        bad = first_beyond_range(file.dtype, staging.stored, n);
      if (bad >= 0) {
        const float value = values[static_cast<size_t>(bad)];
        problem = was_finite
                      ? fmt::format("{} holds {} (element {}), which {} cannot hold", file.stored_name, value,
                                    first + bad, file_dtype_name(file.dtype))
                      : fmt::format("{} holds {}", file.stored_name, describe_non_finite(value, first + bad));
      }
    }
    sink.write(file.stored_name, first * width, std::span<const std::byte>(staging.stored, static_cast<size_t>(n * width)));
  }
  if (elements == 0) sink.write(file.stored_name, 0, {});
  return problem;
}

std::optional<std::string> save_weights(const ParameterFiles& files, Executor& executor,
                                        const std::string& directory) {
  const PlanPhase* phase = executor.plan().phase("save");
  require(phase != nullptr, "the plan has no phase save");
  std::map<std::string, const PlanOp*> writers;
  for (const PlanOp& op : phase->ops) writers[files.stored_name(op, executor.plan())] = &op;
  WeightSink sink(directory, files.specs());
  std::optional<std::string> problem;
  for (const TensorSpec& spec : sink.order())
    if (auto found = files.write(*writers.at(spec.name), executor, sink); found && !problem)
      problem = std::move(found);
  sink.commit();
  return problem;
}

}  // namespace snug
