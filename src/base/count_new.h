// base/count_new.h — operator new that counts: include it in exactly one source file of a program
//
// Replaces the global operator new and delete by ones over malloc that call note_allocation(). In a header,
// so that only the programs that want it (snug and tests) get it, and no library forces it on its users. What oneDNN and
// OpenMP ask for inside their own code is theirs and not counted: it belongs to the reserve.
#pragma once

#include <link.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <new>

#include "base/allocator.h"

namespace snug::counted_new {

// Address ranges of the code of libraries whose requests are not ours.
struct LibraryCode {
  struct Range {
    uintptr_t first = 0, last = 0;
  };
  std::array<Range, 16> ranges;
  size_t count = 0;

  LibraryCode() {
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* self) {
          const std::string_view name = info->dlpi_name;
          if (name.find("libdnnl") == name.npos && name.find("libgomp") == name.npos) return 0;
          auto& code = *static_cast<LibraryCode*>(self);
          for (int i = 0; i < info->dlpi_phnum && code.count < code.ranges.size(); ++i) {
            const auto& segment = info->dlpi_phdr[i];
            if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
            const uintptr_t first = info->dlpi_addr + segment.p_vaddr;
            code.ranges[code.count++] = {first, first + segment.p_memsz};
          }
          return 0;
        },
        this);
  }
  bool holds(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    for (size_t i = 0; i < count; ++i)
      if (at >= ranges[i].first && at < ranges[i].last) return true;
    return false;
  }
};

inline void* allocate(std::size_t size, std::size_t alignment, const void* caller) {
  static const LibraryCode libraries;
  if (!libraries.holds(caller)) note_allocation();
  if (size == 0) size = 1;
  for (;;) {
    void* memory = alignment <= alignof(std::max_align_t)
                       ? std::malloc(size)
                       : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (memory != nullptr) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) return nullptr;
    handler();
  }
}

inline void* allocate_or_throw(std::size_t size, std::size_t alignment, const void* caller) {
  void* memory = allocate(size, alignment, caller);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace snug::counted_new

// Not inlined: gcc would take a visible free() behind an invisible new for a mistake.
// NOLINTBEGIN(misc-definitions-in-headers)
[[gnu::noinline]] void* operator new(std::size_t size) {
  return snug::counted_new::allocate_or_throw(size, 1, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return snug::counted_new::allocate_or_throw(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](std::size_t size) {
  return snug::counted_new::allocate_or_throw(size, 1, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](std::size_t size, std::align_val_t alignment) {
  return snug::counted_new::allocate_or_throw(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
// NOLINTEND(misc-definitions-in-headers)
