// observe/metrics.h — metrics.jsonl: one JSON object a line, written at once so that no crash loses it
//
// Rows are built in a buffer that exists from the start: writing one allocates nothing. Numbers that are
// not finite are null: JSON has no others. Keys are in the order of the fields below and never change their
// meaning.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/file.h"

namespace snug {

// One logged update. `loss` is the mean over the supervised tokens of all updates since the last row,
// `grad_norm` that of the last one before clipping.
struct StepMetrics {
  int64_t step = 0, total_steps = 0;
  double epoch = 0;
  double loss = 0, learning_rate = 0, grad_norm = 0;
  double tokens_per_second = 0;   // without padding
  int64_t tokens_seen = 0;        // without padding, since the run's beginning
  int64_t supervised_tokens = 0;  // those with a target, since the run's beginning
  int64_t skipped_steps = 0;      // updates that were skipped because something was not finite
  double step_seconds = 0;        // of one update
  double data_wait_share = 0;  // of the seconds of all updates since the last row: spent waiting for batches
  Bytes memory_rss_bytes;         // resident now
  Bytes memory_peak_bytes;        // VmHWM + VmPTE so far
  Bytes memory_planned_bytes;     // planned process peak
  std::optional<double> loss_scale;       // after this update; fp16 only, as is the next
  int64_t loss_scale_good_updates = 0;    // applied ones since it changed or an update was skipped
};

struct EvaluationMetrics {
  int64_t step = 0;
  double epoch = 0;
  double eval_loss = 0;     // mean over all targets, each counted once
  int64_t eval_tokens = 0;  // targets
  double eval_seconds = 0;
  double data_wait_share = 0;  // of these seconds: spent waiting for batches
};

// The end of a run, with Hugging Face's names.
struct RunMetrics {
  int64_t step = 0;
  std::optional<double> train_loss;  // mean over all updates that were applied; null without one
  double train_runtime = 0, train_steps_per_second = 0, train_samples_per_second = 0;
  int64_t tokens_seen = 0, skipped_steps = 0;
};

class MetricsWriter {
 public:
  // Throws UserError(kIo) when the file cannot be written, here and below. Appends to an existing file when
  // `append`.
  MetricsWriter(std::string path, bool append);

  void write(const StepMetrics& row);
  void write(const EvaluationMetrics& row);
  void write(const RunMetrics& row);
  // Reports what the system says at closing.
  void close() { file_.close(); }

 private:
  void add(std::string_view key, int64_t value);
  void add(std::string_view key, double value);
  void add(std::string_view key, Bytes value) { add(key, value.value); }
  void add_key(std::string_view key);
  void end_row();

  OutputFile file_;
  std::array<char, 4096> row_;
  size_t size_ = 0;
};

}  // namespace snug
