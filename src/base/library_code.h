// base/library_code.h — which shared library an address of code belongs to
#pragma once

#include <link.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace snug {

// The address ranges of the code of the loaded shared libraries whose file name contains one of two words. Takes no memory.
class LibraryCode {
 public:
  explicit LibraryCode(std::string_view name, std::string_view other = {}) : name_(name), other_(other) {
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* self) {
          static_cast<LibraryCode*>(self)->add(*info);
          return 0;
        },
        this);
  }

  bool holds(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    for (size_t i = 0; i < count_; ++i)
      if (at >= ranges_[i].first && at < ranges_[i].last) return true;
    return false;
  }

 private:
  struct Range {
    uintptr_t first = 0, last = 0;
  };

  void add(const dl_phdr_info& info) {
    const std::string_view file = info.dlpi_name;
    if (file.find(name_) == file.npos && (other_.empty() || file.find(other_) == file.npos)) return;
    for (int i = 0; i < info.dlpi_phnum && count_ < ranges_.size(); ++i) {
      const auto& segment = info.dlpi_phdr[i];
      if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
      const uintptr_t first = info.dlpi_addr + segment.p_vaddr;
      ranges_[count_++] = {first, first + segment.p_memsz};
    }
  }

  std::string_view name_, other_;
  std::array<Range, 16> ranges_;
  size_t count_ = 0;
};

}  // namespace snug
