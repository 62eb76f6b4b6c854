// base/peak_new.h — for tests only: operator new that knows how many bytes it has given out, and the most at one time
//
// Include it in exactly one source file of a test program. Memory that C libraries take by themselves does not count.
#pragma once

#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>

namespace snug::peak_new {

inline std::atomic<int64_t> live_bytes = 0, peak_bytes = 0;

inline void* allocate_or_null(std::size_t size) noexcept {
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) return nullptr;
  const int64_t live = live_bytes += static_cast<int64_t>(::malloc_usable_size(memory));
  if (live > peak_bytes) peak_bytes = live;
  return memory;
}

inline void* allocate(std::size_t size) {
  void* memory = allocate_or_null(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

inline void release(void* memory) {
  if (memory != nullptr) live_bytes -= static_cast<int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}

// The most that `work` had beyond what was there before.
inline int64_t peak_of(const std::function<void()>& work) {
  const int64_t before = live_bytes;
  peak_bytes = before;
  work();
  return peak_bytes - before;
}

}  // namespace snug::peak_new

// NOLINTBEGIN(misc-definitions-in-headers)
[[gnu::noinline]] void* operator new(std::size_t size) { return snug::peak_new::allocate(size); }
[[gnu::noinline]] void* operator new[](std::size_t size) { return snug::peak_new::allocate(size); }
// The forms that return nullptr, too (std::stable_sort uses them): a sanitizer's own ones would not match the operator delete below.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return snug::peak_new::allocate_or_null(size);
}
[[gnu::noinline]] void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return snug::peak_new::allocate_or_null(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { snug::peak_new::release(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { snug::peak_new::release(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  snug::peak_new::release(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept {
  snug::peak_new::release(memory);
}
// NOLINTEND(misc-definitions-in-headers)
