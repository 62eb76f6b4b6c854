// observe/progress.h — how far a run is, for eyes on a terminal and as lines for a log
//
// On a terminal one line that is drawn over itself, with a bar of ten cells behind the share where there is room:
//   12% 120/1000 [02:10<15:53, 1.08s/it, loss=2.314, lr=1.8e-05, tok/s=41.2k, mem=37.9/80 GiB]
// Otherwise one line per logged step:
//   step=120/1000 epoch=0.12 loss=2.314 lr=1.8e-05 gnorm=0.912 tok/s=41.2k mem=37.9/80 GiB left=15:54
// Neither takes more columns than kProgressColumns, the bar no more than the terminal has: where they are few, parts of
// less weight are left out. metrics.jsonl has all of it. With --no-progress neither; notes are always printed.
//
// Seconds per step and tokens per second are exponential moving averages (weight 0.1) that leave out the
// run's first step: it pays for what happens once. Memory is the peak so far beside the planned peak.
// Nothing here allocates after construction.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "observe/metrics.h"

namespace snug {

// Averages of a run's speed.
class Speed {
 public:
  void add(double step_seconds, double tokens);
  double seconds_per_step() const { return steps_ < 2 ? first_seconds_ : seconds_; }
  double tokens_per_second() const;

 private:
  static constexpr double kWeight = 0.1;
  int64_t steps_ = 0;
  double first_seconds_ = 0, first_tokens_ = 0;  // stand in until there is a second step
  double seconds_ = 0, tokens_ = 0;
};

inline constexpr int kProgressColumns = 100;

// The texts, each written into `buffer`; what does not fit is cut off. The bar takes at most `columns`.
std::string_view progress_bar(const StepMetrics& step, const Speed& speed, double elapsed_seconds,
                              int columns, std::span<char> buffer);
std::string_view progress_line(const StepMetrics& step, const Speed& speed, std::span<char> buffer);
// "02:10", "1:02:10"; "?" for what is no time.
std::string_view format_time(double seconds, std::span<char> buffer);
// What stands for a number that is none, or infinite, in every text.
inline constexpr std::string_view kNoNumber = "non-finite";
// `value` with `decimals` behind the point, or kNoNumber.
std::string format_number(double value, int decimals);
// "950", "41.2k", "1.25M"
std::string_view format_count(double count, std::span<char> buffer);

enum class ProgressForm : uint8_t { kNone, kBar, kLines };

// The form for `file`: a bar if it is a terminal, otherwise lines; none unless `wanted`.
ProgressForm progress_form(std::FILE* file, bool wanted);

class Progress {
 public:
  // `file` stays the caller's.
  Progress(std::FILE* file, ProgressForm form) : file_(file), form_(form) {}
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // After every update; `tokens` are this update's, without padding. `logged`: this step's values are
  // complete and a line is due. A bar is drawn at most ten times a second, but always for the last step.
  void step(const StepMetrics& step, double tokens, bool logged);
  // A line of text between the progress: evaluation results, warnings.
  void note(std::string_view text);
  // Ends the bar's line. Also done at the end of life.
  void finish();

  const Speed& speed() const { return speed_; }

 private:
  double elapsed_seconds() const;
  void draw();
  void clear();

  std::FILE* file_;
  ProgressForm form_;
  Speed speed_;
  StepMetrics last_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  double drawn_at_seconds_ = -1;  // since began_; -1: not yet
  bool bar_is_shown_ = false;
  std::array<char, 1024> text_;
};

}  // namespace snug
