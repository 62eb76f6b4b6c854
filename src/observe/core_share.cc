#include "observe/core_share.h"

#include <fmt/format.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace snug {

std::optional<CoreTimes> core_times(const std::string& root) {
  CoreTimes times;
  times.wall = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  bool any = false;
  std::error_code error;
  std::filesystem::directory_iterator task(root + "/proc/self/task", error);
  for (const std::filesystem::directory_iterator end; !error && task != end; task.increment(error)) {
    std::FILE* file = std::fopen((task->path() / "schedstat").c_str(), "re");
    if (file == nullptr) continue;  // this thread has ended meanwhile
    uint64_t running = 0, waiting = 0;
    if (std::fscanf(file, "%" SCNu64 " %" SCNu64, &running, &waiting) == 2) {
      any = true;
      times.running += static_cast<double>(running) * 1e-9;
      times.waiting += static_cast<double>(waiting) * 1e-9;
    }
    std::fclose(file);
  }
  if (!any) return std::nullopt;
  return times;
}

std::optional<std::string> CoreShareWatch::look(const std::optional<CoreTimes>& now) {
  if (!now || told_) return std::nullopt;
  if (!begin_) {
    begin_ = now;
    return std::nullopt;
  }
  const double wall = now->wall - begin_->wall, running = now->running - begin_->running,
               waiting = now->waiting - begin_->waiting;
  if (wall < kWindowSeconds) return std::nullopt;
  begin_ = now;
  // A thread that ended takes its times away with it: such a window says nothing.
  if (running <= 0 || waiting < 0 || running >= kLeastShare * (running + waiting)) return std::nullopt;
  told_ = true;
  const double cores = running / wall;
  std::string text = fmt::format(
      "other processes take the cores: in the last {:.0f} s this run got {:.2f} of the {} that its {} could use, and for "
      "{:.0f} % of the time they wanted one they waited for it.",
      wall, cores, threads_ == 1 ? "one core" : fmt::format("{} cores", threads_),
      threads_ == 1 ? "thread" : "threads", 100 * waiting / (running + waiting));
  if (threads_ > 1)
    text += fmt::format(
        " --threads {} waits less beside them; another number of threads may change the bits of the result, so "
        "the run goes on as it is",
        threads_ > 2 && cores >= 1.5 ? static_cast<int>(cores + 0.5) : 1);
  return text;
}

}  // namespace snug
