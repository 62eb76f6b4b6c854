// observe/process_memory.h — what this process, its control groups and this machine hold, and what they allow
//
// Everything is read from /proc and /sys below `root`, so that tests bring their own trees. A file that is
// missing or unreadable gives none or 0, never an error: containers hide a part of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace snug {

// /proc/self/status. 0 where a field is missing.
struct ProcessMemory {
  Bytes resident;       // VmRSS: resident pages now
  Bytes peak_resident;  // VmHWM: the most so far
  Bytes page_tables;    // VmPTE
  Bytes anonymous;      // RssAnon
  Bytes file_backed;    // RssFile
  int64_t threads = 1;

  // What a control group has charged at most for pages and page tables: VmHWM + VmPTE.
  Bytes peak() const { return peak_resident + page_tables; }
};
ProcessMemory process_memory(const std::string& root = "");

// What the kernel keeps per thread outside the process' pages; a control group charges it: 16 KiB a thread
// on x86-64.
Bytes kernel_stacks(int64_t threads);

// /proc/meminfo.
struct MachineMemory {
  Bytes total;      // MemTotal
  Bytes available;  // MemAvailable: what can be taken without swapping
};
MachineMemory machine_memory(const std::string& root = "");

// One control group that limits this process: its own or an ancestor.
struct MemoryGroup {
  std::string path;  // of its directory
  Bytes limit;       // memory.max and memory.high (v2) or memory.limit_in_bytes (v1), the lower one
  Bytes usage;       // charged now, without page cache that the kernel would drop (inactive_file)
};
// The groups that have a limit, from the process' own upwards; version 1 and 2, and both side by side.
std::vector<MemoryGroup> memory_groups(const std::string& root = "");

// The most memory this process may come to hold and why: the least of, for each group, limit − usage by
// others, and for the machine, what is available + what the process holds already.
struct MemoryAllowance {
  Bytes bytes;
  std::string source;  // "control group /sys/fs/cgroup/…" or "machine"
};
MemoryAllowance memory_allowance(const std::string& root = "");

// What is kept free of an allowance when no budget is named: a twentieth, at least 64 MiB, though the allowance may be less than that.
Bytes margin_below(Bytes allowance);
// What the margin leaves of it, at least 0.
Bytes budget_within(Bytes allowance);

// Threads that can run at the same time: the processors of the affinity mask, but no more than the
// processor quota of any control group (rounded down, at least 1).
int64_t default_threads(const std::string& root = "");

}  // namespace snug
