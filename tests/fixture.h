// tests/fixture.h — a model fixture of tests/fixtures (tools/README.md) as C++ values
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/model_directory.h"
#include "formats/safetensors.h"
#include "models/load_model.h"
#include "train/weights_io.h"
#include "training_run.h"

namespace snug {

class Fixture {
 public:
  static constexpr int64_t kSteps = 10;

  explicit Fixture(const std::string& name);

  const std::string& name() const { return name_; }
  const ModelDirectory& directory() const { return directory_; }
  const Model& model() const { return model_; }
  const ParameterFiles& weights() const { return weights_; }
  int64_t batch() const { return batch_; }
  int64_t length() const { return length_; }
  float learning_rate() const { return learning_rate_; }
  OptimizerOptions optimizer() const { return optimizer_; }
  // The batch of one step.
  Batch step(int64_t step) const;

  // Expected values, as f64 from f32 or f64.
  std::vector<double> expected(const std::string& tensor) const;
  bool has(const std::string& tensor) const { return expected_.find(tensor) != nullptr; }
  // A parameter's name in the fixture's files.
  std::string stored(const ParameterSpec& parameter) const;

 private:
  std::string name_, path_;
  ModelDirectory directory_;
  Model model_;
  ParameterFiles weights_;
  SafetensorsFile batches_, expected_;
  int64_t batch_ = 0, length_ = 0;
  float learning_rate_ = 0;
  OptimizerOptions optimizer_;
};

// Names of all model fixtures.
std::vector<std::string> fixture_names();

}  // namespace snug
