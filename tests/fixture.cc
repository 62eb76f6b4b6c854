#include "fixture.h"

#include <algorithm>
#include <filesystem>

#include "base/errors.h"

namespace snug {
namespace {

std::string fixture_path(const std::string& name) {
  return fmt::format("{}/tests/fixtures/{}", SNUG_SOURCE_DIR, name);
}

}  // namespace

Fixture::Fixture(const std::string& name)
    : name_(name),
      path_(fixture_path(name)),
      directory_(ModelDirectory::open(path_)),
      model_(load_model(directory_)),
      weights_(ParameterFiles::from_weights(model_, directory_.open_weights())),
      batches_(path_ + "/batch.safetensors"),
      expected_(path_ + "/expected.safetensors") {
  const Json json = read_json_object(path_ + "/expected.json");
  batch_ = json.at("batch").get<int64_t>();
  length_ = json.at("length").get<int64_t>();
  learning_rate_ = json.at("learning_rate").get<float>();
  optimizer_ = {.beta1 = json.at("adam_beta1").get<double>(),
                .beta2 = json.at("adam_beta2").get<double>(),
                .eps = json.at("adam_epsilon").get<double>(),
                .weight_decay = json.at("weight_decay").get<double>(),
                .max_grad_norm = json.at("max_grad_norm").get<double>()};
  require(json.at("steps").get<int64_t>() == kSteps, "{}: not ten steps", path_);
}

Batch Fixture::step(int64_t step) const {
  Batch batch = make_batch(batch_, length_);
  const auto bytes = batch.tokens.size() * sizeof(int32_t);
  const auto read = [&](const char* tensor, std::vector<int32_t>& into) {
    const SafetensorsEntry* entry = batches_.find(tensor);
    require(entry != nullptr && entry->dtype == FileDType::kI32, "{}: no i32 {}", path_, tensor);
    batches_.read(*entry, step * static_cast<int64_t>(bytes), std::as_writable_bytes(std::span(into)));
  };
  read("tokens", batch.tokens);
  read("targets", batch.targets);
  batch.supervised_tokens = static_cast<int64_t>(batch.targets.size()) -
                            std::count(batch.targets.begin(), batch.targets.end(), kIgnoredTarget);
  batch.windows = batch_;
  return batch;
}

std::vector<double> Fixture::expected(const std::string& tensor) const {
  const SafetensorsEntry* entry = expected_.find(tensor);
  require(entry != nullptr, "{}: no {}", expected_.path(), tensor);
  const auto elements = static_cast<size_t>(entry->shape.elements());
  if (entry->dtype == FileDType::kF64) {
    std::vector<double> values(elements);
    expected_.read(*entry, 0, std::as_writable_bytes(std::span(values)));
    return values;
  }
  require(entry->dtype == FileDType::kF32, "{}: {} is not f32", expected_.path(), tensor);
  std::vector<float> values(elements);
  expected_.read(*entry, 0, std::as_writable_bytes(std::span(values)));
  return {values.begin(), values.end()};
}

std::string Fixture::stored(const ParameterSpec& parameter) const {
  for (const TensorSpec& spec : weights_.specs())
    if (model_parameter(model_, spec.name) == parameter.name) return spec.name;
  throw_internal("{}: {} is in no file", path_, parameter.name);
}

std::vector<std::string> fixture_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(fixture_path("")))
    if (std::filesystem::exists(entry.path() / "config.json")) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  require(names.size() >= 8, "fixtures are missing: found {}", names.size());
  return names;
}

}  // namespace snug
