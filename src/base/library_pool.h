// base/library_pool.h — keeps the large buffers that oneDNN takes inside its calls: include it in exactly one source file of a program
//
// Why:     every sgemm of oneDNN 2.6 takes packing buffers (0.3 to 8 MiB a thread) from posix_memalign and frees them at its end. From the
//          heap they fragment it: it grew from 3 to 21 MiB over some updates of a small model. From mmap each call pays for fresh pages.
//          Kept, they cost neither, and the process holds what CpuBackend::library_bytes() says and no more.
// What:    posix_memalign and free of the program are replaced. Requests of at least kLargeRequest bytes that come from libdnnl's code get a
//          block of the pool; everything else goes to the C library. A block that is too small is replaced by a larger one, so there
//          are never more blocks than were in use at one time, none larger than the largest request.
// Limits:  glibc. Without this header everything works, but the reserve of the plan may be exceeded. Not under AddressSanitizer, which
//          has an allocator of its own.
#pragma once

#if !defined(__SANITIZE_ADDRESS__)

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "base/library_code.h"

extern "C" {
void* __libc_memalign(size_t alignment, size_t size);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void* memory);                        // NOLINT(bugprone-reserved-identifier)
}

namespace snug::library_pool {

constexpr size_t kLargeRequest = 64 << 10;
constexpr size_t kPage = 4096;

struct Block {
  void* address = nullptr;
  size_t size = 0;
  bool taken = false;
};

struct Pool {
  std::atomic_flag lock = ATOMIC_FLAG_INIT;
  std::array<Block, 256> blocks;
  size_t count = 0;
};
inline Pool pool;

class Locked {
 public:
  Locked() {
    while (pool.lock.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~Locked() { pool.lock.clear(std::memory_order_release); }
};

inline const LibraryCode& onednn() {
  static const LibraryCode code("libdnnl");
  return code;
}

// A block of at least `size` bytes, page-aligned; nullptr when the system refuses or the table is full.
inline void* take(size_t size) {
  const Locked locked;
  Block* smaller = nullptr;
  Block* best = nullptr;
  for (size_t i = 0; i < pool.count; ++i) {
    Block& block = pool.blocks[i];
    if (block.taken) continue;
    if (block.size < size) smaller = &block;
    else if (best == nullptr || block.size < best->size) best = &block;
  }
  if (best == nullptr) {
    if (smaller == nullptr && pool.count == pool.blocks.size()) return nullptr;
    const size_t rounded = (size + kPage - 1) / kPage * kPage;
    void* address = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return nullptr;
    if (smaller != nullptr) munmap(smaller->address, smaller->size);
    best = smaller != nullptr ? smaller : &pool.blocks[pool.count++];
    *best = {address, rounded, false};
  }
  best->taken = true;
  return best->address;
}

// Whether `memory` was a block of the pool, which then has it back.
inline bool give_back(void* memory) {
  if (reinterpret_cast<uintptr_t>(memory) % kPage != 0 || memory == nullptr) return false;
  const Locked locked;
  for (size_t i = 0; i < pool.count; ++i)
    if (pool.blocks[i].address == memory && pool.blocks[i].taken) {
      pool.blocks[i].taken = false;
      return true;
    }
  return false;
}

}  // namespace snug::library_pool

// NOLINTBEGIN(misc-definitions-in-headers)
extern "C" int posix_memalign(void** result, size_t alignment, size_t size) noexcept {
  if (alignment < sizeof(void*) || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* memory = nullptr;
  if (size >= snug::library_pool::kLargeRequest && alignment <= snug::library_pool::kPage &&
      snug::library_pool::onednn().holds(__builtin_return_address(0)))
    memory = snug::library_pool::take(size);
  if (memory == nullptr) memory = __libc_memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *result = memory;
  return 0;
}

extern "C" void free(void* memory) noexcept {
  if (!snug::library_pool::give_back(memory)) __libc_free(memory);
}
// NOLINTEND(misc-definitions-in-headers)

#endif
