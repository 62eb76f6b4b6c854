#include "observe/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace snug {
namespace {

constexpr double kRedrawSeconds = 0.1;

// Appends to a buffer of fixed size and drops what does not fit.
class Text {
 public:
  explicit Text(std::span<char> buffer) : buffer_(buffer) {}

  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    const size_t left = buffer_.size() - size_;
    const auto result = fmt::format_to_n(buffer_.data() + size_, left, format, std::forward<Args>(args)...);
    size_ += std::min(left, result.size);
  }
  // A number by `format`, or the word for what is none.
  void add_number(fmt::format_string<double&> format, double value) {
    if (std::isfinite(value))
      add(format, value);
    else
      add("{}", kNoNumber);
  }
  std::string_view view() const { return {buffer_.data(), size_}; }

 private:
  std::span<char> buffer_;
  size_t size_ = 0;
};

// "37.9/80 GiB": both in the unit of the second.
void add_memory(Text& text, Bytes used, Bytes planned) {
  const bool in_gibibytes = planned >= kGiB;
  const auto unit = static_cast<double>(in_gibibytes ? kGiB.value : kMiB.value);
  const auto add = [&](Bytes bytes) {
    const double scaled = std::round(static_cast<double>(bytes.value) / unit * 10) / 10;
    text.add("{}", scaled);  // the shortest form: no ".0"
  };
  add(used);
  text.add("/");
  add(planned);
  text.add(" {}", in_gibibytes ? "GiB" : "MiB");
}

// Those that a bar may take: the last one of a terminal stays free, for behind it some begin a line.
int columns_of(std::FILE* file) {
  winsize size{};
  const bool is_known = ::ioctl(::fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return is_known ? std::min(kProgressColumns, size.ws_col - 1) : kProgressColumns;
}

double seconds_left(const StepMetrics& step, const Speed& speed) {
  return static_cast<double>(std::max<int64_t>(0, step.total_steps - step.step)) * speed.seconds_per_step();
}

}  // namespace

void Speed::add(double step_seconds, double tokens) {
  ++steps_;
  if (steps_ == 1) {
    first_seconds_ = step_seconds;
    first_tokens_ = tokens;
  } else if (steps_ == 2) {
    seconds_ = step_seconds;
    tokens_ = tokens;
  } else {
    seconds_ += kWeight * (step_seconds - seconds_);
    tokens_ += kWeight * (tokens - tokens_);
  }
}

double Speed::tokens_per_second() const {
  const double seconds = seconds_per_step();
  return seconds > 0 ? (steps_ < 2 ? first_tokens_ : tokens_) / seconds : 0;
}

std::string_view format_time(double seconds, std::span<char> buffer) {
  Text text(buffer);
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) {
    text.add("?");
    return text.view();
  }
  const auto whole = static_cast<int64_t>(seconds);
  if (whole >= 3600) text.add("{}:", whole / 3600);
  text.add("{:02}:{:02}", whole / 60 % 60, whole % 60);
  return text.view();
}

std::string format_number(double value, int decimals) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : std::string(kNoNumber);
}

std::string_view format_count(double count, std::span<char> buffer) {
  Text text(buffer);
  constexpr std::array<std::string_view, 5> kUnits = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  while (count >= 999.5 && unit + 1 < kUnits.size()) count /= 1000, ++unit;
  text.add("{:.3g}{}", count, kUnits[unit]);
  return text.view();
}

std::string_view progress_bar(const StepMetrics& step, const Speed& speed, double elapsed_seconds,
                              int columns, std::span<char> buffer) {
  constexpr int64_t kCells = 10;
  std::array<char, 32> elapsed, left, tokens;
  const int64_t total = std::max<int64_t>(1, step.total_steps);
  const int64_t done = std::clamp<int64_t>(step.step, 0, total);
  const double seconds = speed.seconds_per_step();
  // What is left out first where columns are few comes last here.
  enum Part { kMemory = 1, kRate, kNorm, kBar, kAll };
  for (int parts = kAll;; --parts) {
    Text text(buffer);
    text.add("{:3}%", done * 100 / total);
    if (parts > kBar)
      text.add("|{:<10}|",
               std::string_view("##########").substr(0, static_cast<size_t>(done * kCells / total)));
    text.add(" {}/{} [{}<{}, ", step.step, step.total_steps, format_time(elapsed_seconds, elapsed),
             format_time(seconds_left(step, speed), left));
    if (seconds >= 1 || seconds <= 0)
      text.add("{:.2f}s/it", seconds);
    else
      text.add("{:.2f}it/s", 1 / seconds);
    text.add(", loss=");
    text.add_number("{:.4g}", step.loss);
    if (parts > kRate) text.add(", lr={:.3g}", step.learning_rate);
    if (parts > kNorm) {
      text.add(", gnorm=");
      text.add_number("{:.3g}", step.grad_norm);
    }
    text.add(", tok/s={}", format_count(speed.tokens_per_second(), tokens));
    if (parts > kMemory) {
      text.add(", mem=");
      add_memory(text, step.memory_peak_bytes, step.memory_planned_bytes);
    }
    text.add("]");
    const auto most = static_cast<size_t>(std::max(0, columns));
    if (text.view().size() <= most || parts == kMemory) return text.view().substr(0, most);
  }
}

std::string_view progress_line(const StepMetrics& step, const Speed& speed, std::span<char> buffer) {
  std::array<char, 32> left, tokens;
  enum Part { kNorm = 1, kMemory, kEpoch, kAll };  // as in the bar
  for (int parts = kAll;; --parts) {
    Text text(buffer);
    text.add("step={}/{}", step.step, step.total_steps);
    if (parts > kEpoch) text.add(" epoch={:.3g}", step.epoch);
    text.add(" loss=");
    text.add_number("{:.4g}", step.loss);
    text.add(" lr={:.3g}", step.learning_rate);
    if (parts > kNorm) {
      text.add(" gnorm=");
      text.add_number("{:.3g}", step.grad_norm);
    }
    if (step.skipped_steps > 0) text.add(" skipped={}", step.skipped_steps);
    text.add(" tok/s={}", format_count(speed.tokens_per_second(), tokens));
    if (parts > kMemory) {
      text.add(" mem=");
      add_memory(text, step.memory_peak_bytes, step.memory_planned_bytes);
    }
    text.add(" left={}", format_time(seconds_left(step, speed), left));
    if (text.view().size() <= kProgressColumns || parts == kNorm) return text.view();
  }
}

ProgressForm progress_form(std::FILE* file, bool wanted) {
  if (!wanted) return ProgressForm::kNone;
  return isatty(fileno(file)) != 0 ? ProgressForm::kBar : ProgressForm::kLines;
}

void Progress::step(const StepMetrics& step, double tokens, bool logged) {
  speed_.add(step.step_seconds, tokens);
  last_ = step;
  if (form_ == ProgressForm::kBar) {
    const bool due = elapsed_seconds() - drawn_at_seconds_ >= kRedrawSeconds || drawn_at_seconds_ < 0;
    if (due || logged || step.step >= step.total_steps) draw();
  } else if (form_ == ProgressForm::kLines && logged) {
    const std::string_view line = progress_line(step, speed_, text_);
    std::fwrite(line.data(), 1, line.size(), file_);
    std::fputc('\n', file_);
    std::fflush(file_);
  }
}

void Progress::note(std::string_view text) {
  const bool shown = bar_is_shown_;
  clear();
  std::fwrite(text.data(), 1, text.size(), file_);
  std::fputc('\n', file_);
  if (shown) draw();
  std::fflush(file_);
}

void Progress::finish() {
  if (bar_is_shown_) std::fputc('\n', file_);
  bar_is_shown_ = false;
  std::fflush(file_);
}

double Progress::elapsed_seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

void Progress::draw() {
  const std::string_view bar = progress_bar(last_, speed_, elapsed_seconds(), columns_of(file_), text_);
  std::fputc('\r', file_);
  std::fwrite(bar.data(), 1, bar.size(), file_);
  std::fputs("\x1b[K", file_);  // clears what a longer bar left
  std::fflush(file_);
  bar_is_shown_ = true;
  drawn_at_seconds_ = elapsed_seconds();
}

void Progress::clear() {
  if (bar_is_shown_) std::fputs("\r\x1b[K", file_);
  bar_is_shown_ = false;
}

}  // namespace snug
