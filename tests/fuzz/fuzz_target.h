// tests/fuzz/fuzz_target.h — what the fuzz targets share
//
// A target is one file that defines LLVMFuzzerTestOneInput (libFuzzer). For every input the parser reads it or refuses it with a
// UserError. A crash, another exception, a promise that does not hold (check), too much time or memory is a finding.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/errors.h"

namespace snug::fuzz {

// A broken promise ends the process, which keeps the input.
inline void check(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

// True when it was read. Every exception but a UserError with a message goes through and ends the process.
template <typename Parse>
bool read_or_refuse(Parse&& parse) {
  try {
    parse();
    return true;
  } catch (const UserError& error) {
    check(!std::string_view(error.what()).empty(), "a refusal says why");
    return false;
  }
}

// A file in memory that has a path and gets new bytes for every input.
class MemoryFile {
 public:
  MemoryFile()
      : descriptor_(::memfd_create("fuzz", 0)), path_("/proc/self/fd/" + std::to_string(descriptor_)) {
    check(descriptor_ >= 0, "memfd_create");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }
  void set(std::string_view bytes) {
    const auto size = static_cast<ssize_t>(bytes.size());
    check(::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == size,
          "a file in memory can be written");
  }

 private:
  int descriptor_;
  std::string path_;
};

inline std::string_view as_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace snug::fuzz
