// formats/config_reader.h — reads a config.json key by key and refuses what nobody read
//
// Why:       a key that is passed over in silence may change the mathematics of the model (a wrong RoPE
// trains quietly). So
//            every key is read, is required to stand at a stated value, or is on the list of keys known to be
//            harmless; finish() refuses the rest by name.
// Null:      a key that is null reads as absent, as in the Hugging Face classes whose default is None.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "base/json.h"

namespace snug {

class ConfigReader {
 public:
  // `json` is an object and outlives the reader; `file` is for messages.
  ConfigReader(const Json& json, std::string file);

  const std::string& file() const { return file_; }
  bool has(std::string_view key) const;

  int64_t positive(std::string_view key, int64_t otherwise);
  std::optional<int64_t> optional_positive(std::string_view key);
  std::optional<int64_t> optional_not_negative(std::string_view key);
  double positive_real(std::string_view key, double otherwise);
  double not_negative_real(std::string_view key, double otherwise);
  // A probability of dropping: in [0, 1).
  double dropout(std::string_view key, double otherwise);
  bool boolean(std::string_view key, bool otherwise);
  std::string word(std::string_view key, std::string_view otherwise);
  // The value itself, null when absent.
  const Json& value(std::string_view key);

  // The key is absent, null or exactly `value`, else UserError naming both: a feature Snug does not have is
  // switched on.
  void must_be(std::string_view key, const Json& value);
  // The key changes nothing that Snug computes.
  void harmless(std::string_view key) { read_.emplace(key); }
  // The keys of the base class of every Hugging Face configuration: bookkeeping, generation defaults, labels.
  // Those that could change the computation must be at their defaults.
  void base_class_keys();
  // Refuses every key that was neither read nor declared.
  void finish() const;

 private:
  template <typename T>
  std::optional<T> get(std::string_view key, const NumberRange& range = kAnyNumber);

  const Json& json_;
  std::string file_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace snug
