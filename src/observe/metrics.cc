#include "observe/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/errors.h"

namespace snug {
namespace {

template <size_t N, typename... Args>
void append(std::array<char, N>& row, size_t& size, fmt::format_string<Args...> format, Args&&... args) {
  const auto result = fmt::format_to_n(row.data() + size, N - size, format, std::forward<Args>(args)...);
  require(result.size <= N - size, "metrics: a row is longer than {} bytes", N);
  size += result.size;
}

}  // namespace

MetricsWriter::MetricsWriter(std::string path, bool append_to_it)
    : file_(std::move(path), append_to_it ? OutputFile::Mode::kAppend : OutputFile::Mode::kReplace) {}

void MetricsWriter::write(const StepMetrics& row) {
  add("step", row.step);
  add("total_steps", row.total_steps);
  add("epoch", row.epoch);
  add("loss", row.loss);
  add("learning_rate", row.learning_rate);
  add("grad_norm", row.grad_norm);
  add("tokens_per_second", row.tokens_per_second);
  add("tokens_seen", row.tokens_seen);
  add("supervised_tokens", row.supervised_tokens);
  add("skipped_steps", row.skipped_steps);
  add("step_seconds", row.step_seconds);
  add("data_wait_share", row.data_wait_share);
  add("memory_rss_bytes", row.memory_rss_bytes);
  add("memory_peak_bytes", row.memory_peak_bytes);
  add("memory_planned_bytes", row.memory_planned_bytes);
  if (row.loss_scale) {
    add("loss_scale", *row.loss_scale);
    add("loss_scale_good_updates", row.loss_scale_good_updates);
  }
  end_row();
}

void MetricsWriter::write(const EvaluationMetrics& row) {
  add("step", row.step);
  add("epoch", row.epoch);
  add("eval_loss", row.eval_loss);
  add("eval_tokens", row.eval_tokens);
  add("eval_seconds", row.eval_seconds);
  add("data_wait_share", row.data_wait_share);
  end_row();
}

void MetricsWriter::write(const RunMetrics& row) {
  add("step", row.step);
  add("train_loss", row.train_loss.value_or(std::nan("")));
  add("train_runtime", row.train_runtime);
  add("train_steps_per_second", row.train_steps_per_second);
  add("train_samples_per_second", row.train_samples_per_second);
  add("tokens_seen", row.tokens_seen);
  add("skipped_steps", row.skipped_steps);
  end_row();
}

void MetricsWriter::add_key(std::string_view key) {
  append(row_, size_, "{}\"{}\":", size_ == 0 ? "{" : ",", key);
}

void MetricsWriter::add(std::string_view key, int64_t value) {
  add_key(key);
  append(row_, size_, "{}", value);
}

void MetricsWriter::add(std::string_view key, double value) {
  add_key(key);
  if (std::isfinite(value))
    append(row_, size_, "{}", value);  // the shortest form that reads back to the same number
  else
    append(row_, size_, "null");
}

void MetricsWriter::end_row() {
  append(row_, size_, "}}\n");
  file_.write(std::string_view(row_.data(), std::exchange(size_, 0)));
}

}  // namespace snug
