// tests/program/memory_group.h — a control group of this machine that limits memory
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

namespace snug {

// For a process that enters it (Surroundings::cgroup). `path` is empty where this machine lets us make none.
class MemoryGroup {
 public:
  explicit MemoryGroup(int64_t limit_bytes) {
    for (const auto& [root, limit] : {std::pair{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                      std::pair{"/sys/fs/cgroup", "memory.max"}}) {
      const std::string path = root + ("/snug-test-" + std::to_string(::getpid()));
      if (::mkdir(path.c_str(), 0755) != 0) continue;
      std::ofstream file(path + "/" + limit);
      file << limit_bytes << std::flush;
      if (file.good()) {
        path_ = path;
        return;
      }
      ::rmdir(path.c_str());
    }
  }
  ~MemoryGroup() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace snug
