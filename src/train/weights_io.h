// train/weights_io.h — parameters between files and the arena, tensor by tensor through the plan's staging bytes
//
// No tensor is held a second time: the host operations read_tensor and write_tensor of the phases load and save move each
// parameter in pieces of half the staging scratch, converting between the file's element type and the plan's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/weights.h"
#include "models/model.h"
#include "runtime/executor.h"

namespace snug {

// Where each parameter comes from and how it is stored when saved.
struct ParameterFile {
  std::string stored_name;                // the name in the file, which may be another spelling of the parameter's
  FileDType dtype = FileDType::kF32;      // element type to save in
  const WeightEntry* source = nullptr;    // none: initialised from the seed
};

class ParameterFiles {
 public:
  // Matches the model's parameters with the tensors of the directory's weights. Throws UserError(kBadFile) that lists missing,
  // unexpected and wrongly shaped tensors by name with what was found and expected, and for element types that no parameter has.
  static ParameterFiles from_weights(const Model& model, WeightSource source);
  // Parameters of a run from scratch: canonical names, f32.
  static ParameterFiles from_scratch(const Model& model, uint64_t seed);

  // Every parameter saved as `dtype` instead of its own type.
  void save_as(FileDType dtype);

  // Carries out one read_tensor operation. Throws UserError(kBadFile) for a tensor of a file that holds a NaN or an infinity.
  void read(const PlanOp& op, Executor& executor) const;
  // What a saved file holds, in the model's order.
  std::vector<TensorSpec> specs() const;
  // Carries out one write_tensor operation into `sink`. "wte.weight holds a NaN (element 17)" when what it wrote is not all finite.
  std::optional<std::string> write(const PlanOp& op, Executor& executor, WeightSink& sink) const;
  // The stored name of the parameter that `op` reads or writes.
  const std::string& stored_name(const PlanOp& op, const Plan& plan) const;

 private:
  const ParameterSpec& spec_of(const std::string& parameter) const;
  void require_finite(const ParameterFile& file, int64_t first, std::span<const float> values) const;

  const Model* model_ = nullptr;
  std::shared_ptr<WeightSource> source_;
  std::map<std::string, ParameterFile> files_;       // by the model's name
  std::map<std::string, size_t> index_;              // of the model's parameters
  uint64_t seed_ = 0;
};

// Saves all parameters into `directory` (which exists): the operations of phase save, in the order of the file. Returns what is said of
// the first tensor that is not finite, as it was trained or as its file's type holds it; none while all are.
std::optional<std::string> save_weights(const ParameterFiles& files, Executor& executor,
                                        const std::string& directory);

// n elements of `from` bytes as f32, and back. f16 and bf16 round to nearest even, or for parameters kept in bf16 by
// narrow_weight's rule (docs/numerics.md).
void widen(FileDType type, const std::byte* from, float* to, int64_t n);
void narrow(const float* from, FileDType type, std::byte* to, int64_t n);
void narrow_weight(const float* from, uint16_t* to, int64_t n);
// A split master: narrow_weight and the 16 low bits, which together are every number exactly; a NaN stays one.
void split_master(const float* from, uint16_t* weight, uint16_t* low, int64_t n);
void join_master(const uint16_t* weight, const uint16_t* low, float* to, int64_t n);

}  // namespace snug
