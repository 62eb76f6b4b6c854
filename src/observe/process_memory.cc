#include "observe/process_memory.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>

namespace snug {
namespace {

// Version 1 writes "no limit" as the largest multiple of a page; nothing this large is a limit.
constexpr int64_t kNoLimit = int64_t{1} << 60;

// A small file of /proc or /sys, whole; none when it cannot be read.
std::optional<std::string> contents(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return std::nullopt;
  std::string text;
  char piece[4096];
  while (const size_t count = std::fread(piece, 1, sizeof piece, file)) text.append(piece, count);
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) return std::nullopt;
  return text;
}

// Splits off the text up to `separator` (or all of it).
std::string_view take(std::string_view& rest, char separator) {
  const size_t end = rest.find(separator);
  const std::string_view part = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return part;
}

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> parts;
  while (!line.empty()) {
    const std::string_view word = take(line, ' ');
    if (!word.empty()) parts.push_back(word);
  }
  return parts;
}

std::optional<int64_t> number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;
  return value;
}

// The number behind "key:" or "key " at the beginning of a line.
std::optional<int64_t> field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = take(text, '\n');
    if (!line.starts_with(key) || line.size() == key.size()) continue;
    const char next = line[key.size()];
    if (next == ':' || next == ' ') return number(line.substr(key.size() + 1));
  }
  return std::nullopt;
}

Bytes kibibytes(std::string_view text, std::string_view key) {
  return Bytes(field(text, key).value_or(0)) * 1024;
}

// Where a hierarchy of control groups is mounted, and the directory of it that the mount shows as its top.
struct Mount {
  std::string directory;
  std::string top;
};

// The mount of version 2 (controller "") or of a version 1 hierarchy with that controller.
std::optional<Mount> find_mount(const std::string& root, std::string_view controller) {
  const auto text = contents(root + "/proc/self/mountinfo");
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  while (!rest.empty()) {
    // "36 35 98:0 /top /directory options optional… - type source super,options"
    const auto parts = words(take(rest, '\n'));
    const auto dash = std::find(parts.begin(), parts.end(), "-");
    if (parts.size() < 6 || parts.end() - dash < 4) continue;
    const std::string_view type = dash[1];
    bool matches = controller.empty() ? type == "cgroup2" : false;
    if (!controller.empty() && type == "cgroup") {
      std::string_view options = dash[3];
      while (!options.empty()) matches |= take(options, ',') == controller;
    }
    if (matches) return Mount{std::string(parts[4]), std::string(parts[3])};
  }
  return std::nullopt;
}

// The group of this process in that hierarchy, as /proc/self/cgroup names it.
std::optional<std::string> group_path(const std::string& root, std::string_view controller) {
  const auto text = contents(root + "/proc/self/cgroup");
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  while (!rest.empty()) {
    std::string_view line = take(rest, '\n');  // "4:cpu,cpuacct:/path", version 2 "0::/path"
    const std::string_view hierarchy = take(line, ':');
    std::string_view controllers = take(line, ':');
    if (controller.empty() ? hierarchy == "0" && controllers.empty() : false) return std::string(line);
    while (!controller.empty() && !controllers.empty())
      if (take(controllers, ',') == controller) return std::string(line);
  }
  return std::nullopt;
}

// Directories of the process' group and its ancestors, as far as they are visible, the innermost first.
std::vector<std::string> group_directories(const std::string& root, std::string_view controller) {
  const auto mount = find_mount(root, controller);
  const auto path = group_path(root, controller);
  if (!mount || !path) return {};
  // A container may see only its own part: the path is then told from the host's top, or from outside with
  // "/..".
  std::string below = *path;
  if (mount->top != "/" && below.starts_with(mount->top)) below = below.substr(mount->top.size());
  if (below.find("/..") != std::string::npos || (mount->top != "/" && below == *path)) below.clear();
  while (!below.empty() && below.back() == '/') below.pop_back();

  std::vector<std::string> directories;
  for (;;) {
    directories.push_back(root + mount->directory + below);
    if (below.empty()) return directories;
    below.resize(below.rfind('/') == std::string::npos ? 0 : below.rfind('/'));
  }
}

// The limit in a file; none for "max", an unlimited number, or no file.
std::optional<int64_t> limit_in(const std::string& path) {
  const auto text = contents(path);
  if (!text) return std::nullopt;
  const auto value = number(*text);
  if (!value || *value < 0 || *value >= kNoLimit) return std::nullopt;
  return value;
}

void add_groups(const std::string& root, bool version_2, std::vector<MemoryGroup>& groups) {
  for (const std::string& directory : group_directories(root, version_2 ? "" : "memory")) {
    std::optional<int64_t> limit =
        limit_in(directory + (version_2 ? "/memory.max" : "/memory.limit_in_bytes"));
    if (version_2)
      if (const auto high = limit_in(directory + "/memory.high"))
        limit = std::min(limit.value_or(*high), *high);
    if (!limit) continue;
    const auto usage =
        limit_in(directory + (version_2 ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
    const std::string statistics = contents(directory + "/memory.stat").value_or("");
    const int64_t cache = field(statistics, version_2 ? "inactive_file" : "total_inactive_file").value_or(0);
    groups.push_back(
        {directory.substr(root.size()), Bytes(*limit), Bytes(std::max<int64_t>(0, usage - cache))});
  }
}

// Processors that the quota in a group's directory is worth, rounded down; none without a quota.
std::optional<int64_t> quota_in(const std::string& directory, bool version_2) {
  std::optional<int64_t> quota, period;
  if (version_2) {
    const std::string text =
        contents(directory + "/cpu.max").value_or("");  // "max 100000" or "150000 100000"
    const auto parts = words(text);
    if (parts.size() >= 2) quota = number(parts[0]), period = number(parts[1]);
  } else {
    quota = number(contents(directory + "/cpu.cfs_quota_us").value_or(""));
    period = number(contents(directory + "/cpu.cfs_period_us").value_or(""));
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return std::max<int64_t>(1, *quota / *period);
}

// "0-3,8,10-11" → 7
int64_t count_processors(std::string_view list) {
  int64_t count = 0;
  while (!list.empty()) {
    std::string_view range = take(list, ',');
    const auto first = number(take(range, '-'));
    if (!first) continue;
    const auto last = number(range);
    count += last ? std::max<int64_t>(0, *last - *first + 1) : 1;
  }
  return count;
}

}  // namespace

ProcessMemory process_memory(const std::string& root) {
  const std::string text = contents(root + "/proc/self/status").value_or("");
  return {.resident = kibibytes(text, "VmRSS"),
          .peak_resident = kibibytes(text, "VmHWM"),
          .page_tables = kibibytes(text, "VmPTE"),
          .anonymous = kibibytes(text, "RssAnon"),
          .file_backed = kibibytes(text, "RssFile"),
          .threads = field(text, "Threads").value_or(1)};
}

Bytes kernel_stacks(int64_t threads) { return threads * Bytes(16 << 10); }

MachineMemory machine_memory(const std::string& root) {
  const std::string text = contents(root + "/proc/meminfo").value_or("");
  return {.total = kibibytes(text, "MemTotal"), .available = kibibytes(text, "MemAvailable")};
}

std::vector<MemoryGroup> memory_groups(const std::string& root) {
  std::vector<MemoryGroup> groups;
  add_groups(root, true, groups);
  add_groups(root, false, groups);
  return groups;
}

MemoryAllowance memory_allowance(const std::string& root) {
  const ProcessMemory process = process_memory(root);
  const Bytes own = process.resident + process.page_tables + kernel_stacks(process.threads);
  const MachineMemory machine = machine_memory(root);
  MemoryAllowance allowance{machine.available + own, "machine"};
  for (const MemoryGroup& group : memory_groups(root)) {
    const Bytes others = std::max(Bytes(0), group.usage - own);
    const Bytes left = std::max(Bytes(0), group.limit - others);
    if (left < allowance.bytes) allowance = {left, "control group " + group.path};
  }
  return allowance;
}

Bytes margin_below(Bytes allowance) { return std::max(Bytes(allowance.value / 20), 64 * kMiB); }

Bytes budget_within(Bytes allowance) { return std::max(Bytes(0), allowance - margin_below(allowance)); }

int64_t default_threads(const std::string& root) {
  const std::string status = contents(root + "/proc/self/status").value_or("");
  int64_t threads = 1;
  std::string_view rest = status;
  constexpr std::string_view kKey = "Cpus_allowed_list:";
  while (!rest.empty())
    if (std::string_view line = take(rest, '\n'); line.starts_with(kKey))
      threads = std::max<int64_t>(1, count_processors(line.substr(kKey.size())));
  for (const bool version_2 : {true, false})
    for (const std::string& directory : group_directories(root, version_2 ? "" : "cpu"))
      if (const auto quota = quota_in(directory, version_2)) threads = std::min(threads, *quota);
  return threads;
}

}  // namespace snug
