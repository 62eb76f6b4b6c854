#include "base/allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/errors.h"

namespace snug {
namespace {

constexpr Bytes kHugePage{2 << 20};

constinit std::atomic<int64_t> allocation_count = 0;

constinit std::atomic<int64_t> requests_until_fault = 0;  // 0: none
constinit std::atomic<bool> fault_persists = false;

// Whether a test wants the request that is about to be made to fail; errno is then set.
bool fails() {
  const int64_t left = requests_until_fault.load();
  if (left == 0) return false;
  if (left > 1) {
    requests_until_fault.store(left - 1);
    return false;
  }
  if (!fault_persists.load()) requests_until_fault.store(0);
  errno = ENOMEM;
  return true;
}

int64_t page_bytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

// MemAvailable of this machine, in words: what a refused request is compared with.
std::string available_text() {
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return "unknown";
  char line[256];
  long long kibibytes = -1;
  while (std::fgets(line, sizeof line, file) != nullptr)
    if (std::sscanf(line, "MemAvailable: %lld kB", &kibibytes) == 1) break;
  std::fclose(file);
  if (kibibytes < 0) return "unknown";
  return fmt::format("{} ({} bytes)", format_bytes(Bytes(kibibytes) * 1024), kibibytes * 1024);
}

}  // namespace

void note_allocation() noexcept { allocation_count.fetch_add(1, std::memory_order_relaxed); }

int64_t allocations() noexcept { return allocation_count.load(std::memory_order_relaxed); }

void set_memory_fault(int64_t nth, bool persistent) {
  fault_persists.store(persistent);
  requests_until_fault.store(nth);
}

Reservation::Reservation(Bytes size, std::string_view purpose, HugePages huge_pages)
    : purpose_(purpose), size_(size) {
  require(size.value >= 0, "{}: a reservation of {} bytes", purpose, size.value);
  if (size.value == 0) return;
  mapping_size_ = round_up(size, Bytes(page_bytes())) + kHugePage;
  note_allocation();
  void* mapping = fails() ? MAP_FAILED
                          : mmap(nullptr, static_cast<size_t>(mapping_size_.value), PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) refuse("reserve addresses for", errno);
  mapping_ = mapping;
  const auto address = reinterpret_cast<uintptr_t>(mapping_);
  const auto unit = static_cast<uintptr_t>(kHugePage.value);
  base_ = reinterpret_cast<std::byte*>((address + unit - 1) / unit * unit);
  if (huge_pages !=
      HugePages::kSystem)  // EINVAL where the kernel has no huge pages: nothing to turn on or off
    madvise(base_, static_cast<size_t>(round_up(size, Bytes(page_bytes())).value),
            huge_pages == HugePages::kOn ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

Reservation::~Reservation() {
  if (mapping_ != nullptr) munmap(mapping_, static_cast<size_t>(mapping_size_.value));
}

Reservation::Reservation(Reservation&& other) noexcept
    : purpose_(other.purpose_),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_size_(std::exchange(other.mapping_size_, Bytes())),
      base_(std::exchange(other.base_, nullptr)),
      size_(std::exchange(other.size_, Bytes())),
      committed_(std::exchange(other.committed_, Bytes())) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  Reservation taken(std::move(other));
  std::swap(purpose_, taken.purpose_);
  std::swap(mapping_, taken.mapping_);
  std::swap(mapping_size_, taken.mapping_size_);
  std::swap(base_, taken.base_);
  std::swap(size_, taken.size_);
  std::swap(committed_, taken.committed_);
  return *this;
}

void Reservation::commit(Bytes prefix) {
  require(prefix.value >= 0 && prefix <= size_, "{}: {} bytes to commit of a reservation of {}", purpose_,
          prefix.value, size_.value);
  if (prefix <= committed_) return;
  note_allocation();
  const int result = fails()
                         ? -1
                         : mprotect(base_, static_cast<size_t>(round_up(prefix, Bytes(page_bytes())).value),
                                    PROT_READ | PROT_WRITE);
  if (result != 0) refuse("provide", errno);
  committed_ = prefix;
}

void Reservation::touch() {
#ifdef MADV_POPULATE_WRITE
  // One call instead of a fault a page (Linux 5.14; an older kernel answers EINVAL and the loop below does it).
  if (committed_.value == 0 || madvise(base_, static_cast<size_t>(committed_.value), MADV_POPULATE_WRITE) == 0) return;
#endif
  const int64_t page = page_bytes();
  for (int64_t offset = 0; offset < committed_.value; offset += page) {
    volatile std::byte* first = base_ + offset;
    *first = *first;
  }
}

void Reservation::refuse(std::string_view action, int error_number) const {
  throw_user(ExitCode::kIo, "the system refused to {} the {}: {}; planned {} ({} bytes), available {}",
             action, purpose_, std::generic_category().message(error_number), format_bytes(size_),
             size_.value, available_text());
}

}  // namespace snug
