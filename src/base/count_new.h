// base/count_new.h — operator new that counts: include it in exactly one source file of a program
//
// Replaces the global operator new and delete by ones over malloc that call note_allocation(). In a header,
// so that only the programs that want it (snug and tests) get it, and no library forces it on its users. What oneDNN and
// OpenMP ask for inside their own code is theirs and not counted: it belongs to the reserve.
#pragma once

#include <cstdlib>
#include <new>

#include "base/allocator.h"
#include "base/library_code.h"

namespace snug::counted_new {

inline void* allocate(std::size_t size, std::size_t alignment, const void* caller) {
  static const LibraryCode libraries("libdnnl", "libgomp");
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

inline void* allocate_or_null(std::size_t size, std::size_t alignment, const void* caller) noexcept {
  try {
    return allocate(size, alignment, caller);
  } catch (...) {  // of the program's own handler
    return nullptr;
  }
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
// The forms that return nullptr, too: a sanitizer's own ones would not match the operator delete below.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return snug::counted_new::allocate_or_null(size, 1, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return snug::counted_new::allocate_or_null(size, 1, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return snug::counted_new::allocate_or_null(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return snug::counted_new::allocate_or_null(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
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
