// formats/model_directory.h — a Hugging Face model directory: its configuration, its weights, and the files
// beside them
//
// Planning needs config.json alone; weights are opened when asked for. The configuration is kept as it was
// read and written back with every key it had; tokenizer and other side files are copied byte for byte
// (converters fingerprint them). Refused by name: no config.json, unknown model_type, an architecture with
// another head, quantization_config, auto_map (code from the model's author), weights only in other formats
// (formats/weights.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/gpt2_config.h"
#include "formats/llama_config.h"
#include "formats/weights.h"

namespace snug {

enum class ModelFamily : uint8_t { kGpt2, kLlama };

// Whether a file of this name is a model's configuration or beside it decides what the model says and reads: generation_config.json,
// tokenizer files, chat templates. Model cards and licences do not.
bool is_model_file(std::string_view name);

class ModelDirectory {
 public:
  // Reads and checks config.json. Throws UserError(kBadFile).
  static ModelDirectory open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string config_path() const;
  ModelFamily family() const { return family_; }
  const Json& config() const { return config_; }

  // The configuration as a checked struct; InternalError when the family is another.
  Gpt2Config gpt2_config() const;
  LlamaConfig llama_config() const;
  // Common to the families: ids a data file may hold.
  int64_t vocab_size() const;
  // The ids at which generation ends: eos_token_id (an id or a list) of generation_config.json, else of config.json; empty when neither
  // says. Throws UserError(kBadFile) for anything else there.
  std::vector<int32_t> end_of_text_ids() const;

  bool has_weights() const { return WeightSource::present(path_); }
  WeightSource open_weights() const { return WeightSource::open(path_); }

  // Names of the files that belong to the model and are neither its configuration nor its weights:
  // generation_config.json, tokenizer files, chat template, model card, licence. Sorted; only those that are
  // there.
  std::vector<std::string> side_files() const;

  // Writes config.json into `directory`: a byte-for-byte copy without changes, else every key it had in its
  // order, with `changes` set (new keys at the end).
  void write_config(const std::string& directory,
                    const std::vector<std::pair<std::string, Json>>& changes = {}) const;
  // Copies the side files into `directory`. Those of the same path (saving over the model itself) are left
  // alone.
  void copy_side_files(const std::string& directory) const;

 private:
  ModelDirectory() = default;

  std::string path_;
  std::string config_text_;
  Json config_;
  ModelFamily family_ = ModelFamily::kGpt2;
};

}  // namespace snug
