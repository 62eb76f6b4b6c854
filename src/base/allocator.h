// base/allocator.h — the one allocator layer: large memory straight from the system, and the count of all
// requests
//
// Every arena is one Reservation: a range of addresses, of which a prefix is committed and touched before the
// first step. Nothing else in Snug asks the system for memory directly.
//
// Counting: a program that includes base/count_new.h in one source file counts every `new`; a Reservation
// counts each of its requests itself. So a step that leaves allocations() unchanged took no memory of our
// own.
//
// Faults: set_memory_fault lets the N-th request to the system fail, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bytes.h"

namespace snug {

// One more allocation happened. Lock-free, safe from every thread and before main.
void note_allocation() noexcept;
// Allocations noted since the program began.
int64_t allocations() noexcept;

// Lets requests to the system fail with ENOMEM: the `nth` from now (1 = the next), and all later ones when
// `persistent`. nth = 0 takes the fault away.
void set_memory_fault(int64_t nth, bool persistent = false);

// What the kernel may back the memory with. A wish: a kernel without such pages ignores it.
enum class HugePages : uint8_t { kSystem, kOn, kOff };

// A range of addresses that holds no memory until it is committed. Moves; releases at the end.
class Reservation {
 public:
  Reservation() = default;
  // Reserves addresses for `size` bytes, aligned to 2 MiB. `purpose` names it in messages and must outlive
  // it. Throws UserError(kIo) naming purpose, planned and available bytes when the system refuses.
  Reservation(Bytes size, std::string_view purpose, HugePages huge_pages = HugePages::kSystem);
  ~Reservation();
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;

  Bytes size() const { return size_; }
  Bytes committed() const { return committed_; }

  // Makes [0, prefix) readable and writable; new bytes are zero. Does nothing when that much is committed
  // already. Throws InternalError when prefix > size(), UserError(kIo) as above when the system refuses.
  void commit(Bytes prefix);

  // Writes to every page of the committed prefix, so that the kernel has to provide all of them now and not
  // in the middle of a step. Changes no byte.
  void touch();

  // The committed prefix, page-aligned.
  std::span<std::byte> bytes() const { return {base_, static_cast<size_t>(committed_.value)}; }

 private:
  [[noreturn]] void refuse(std::string_view action, int error_number) const;

  std::string_view purpose_;
  void* mapping_ = nullptr;  // what mmap returned: base_ lies in its first 2 MiB
  Bytes mapping_size_;
  std::byte* base_ = nullptr;
  Bytes size_, committed_;
};

}  // namespace snug
