#include "base/allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/errors.h"

namespace snug {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A number of /proc/self/smaps over the mapping that contains `address`, in KiB; -1 if there is none.
long smaps_kib(const void* address, const std::string& key) {
  std::FILE* file = std::fopen("/proc/self/smaps", "re");
  char line[512];
  bool inside = false;
  long found = -1;
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    unsigned long begin = 0, end = 0;
    long value = 0;
    if (std::sscanf(line, "%lx-%lx ", &begin, &end) == 2 && std::string(line).find(':') != 0)
      inside =
          begin <= reinterpret_cast<unsigned long>(address) && reinterpret_cast<unsigned long>(address) < end;
    if (inside && std::sscanf(line, (key + ": %ld kB").c_str(), &value) == 1) found = value;
  }
  if (file != nullptr) std::fclose(file);
  return found;
}

TEST(Reservation, HoldsNothingUntilCommittedAndTouched) {
  Reservation memory(Bytes(10 << 20), "arena", HugePages::kOff);
  EXPECT_EQ(memory.size(), Bytes(10 << 20));
  EXPECT_EQ(memory.committed(), Bytes(0));
  EXPECT_TRUE(memory.bytes().empty());

  memory.commit(Bytes((3 << 20) + 1));
  ASSERT_EQ(memory.bytes().size(), size_t{(3 << 20) + 1});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.bytes().data()) % (2 << 20), 0u);
  EXPECT_EQ(smaps_kib(memory.bytes().data(), "Rss"), 0);
  memory.touch();
  EXPECT_EQ(smaps_kib(memory.bytes().data(), "Rss"), 3 * 1024 + 4);  // every page of the prefix, and no other
  EXPECT_TRUE(std::all_of(memory.bytes().begin(), memory.bytes().end(),
                          [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Reservation, GrowsAndKeepsWhatItHolds) {
  Reservation memory(Bytes(1 << 20), "arena");
  memory.commit(Bytes(4096));
  std::fill(memory.bytes().begin(), memory.bytes().end(), std::byte{7});
  memory.commit(Bytes(1 << 20));
  memory.touch();
  EXPECT_EQ(memory.bytes()[4095], std::byte{7});
  EXPECT_EQ(memory.bytes()[4096], std::byte{0});
  memory.commit(Bytes(1));
  EXPECT_EQ(memory.committed(), Bytes(1 << 20));
}

TEST(Reservation, MovesAndReleases) {
  Reservation first(Bytes(4096), "arena");
  first.commit(Bytes(4096));
  std::byte* data = first.bytes().data();
  Reservation second(std::move(first));
  EXPECT_EQ(second.bytes().data(), data);
  EXPECT_EQ(first.size(), Bytes(0));  // NOLINT(bugprone-use-after-move): a moved-from reservation is empty
  second = Reservation();
  EXPECT_EQ(second.size(), Bytes(0));
  EXPECT_EQ(smaps_kib(data, "Rss"), -1);
  EXPECT_TRUE(Reservation(Bytes(0), "nothing").bytes().empty());
}

TEST(Reservation, CountsItsRequests) {
  const int64_t before = allocations();
  Reservation memory(Bytes(8192), "arena");
  memory.commit(Bytes(4096));
  memory.commit(Bytes(8192));
  memory.touch();
  memory.commit(Bytes(8192));
  EXPECT_EQ(allocations() - before, 3);
}

TEST(Reservation, RefusesMoreThanItReserved) {
  Reservation memory(Bytes(4096), "arena");
  EXPECT_THROW(memory.commit(Bytes(4097)), InternalError);
  EXPECT_THROW(Reservation(Bytes(-1), "arena"), InternalError);
}

// Every request fails in turn, once and for good: a message with planned and available bytes, and nothing is
// left behind.
TEST(Reservation, ReportsEveryRefusal) {
  for (const bool persistent : {false, true}) {
    int refusals = 0;
    for (int64_t nth = 1;; ++nth) {
      set_memory_fault(nth, persistent);
      try {
        Reservation memory(Bytes(1 << 20), "arena", HugePages::kOn);
        memory.commit(Bytes(1 << 20));
        memory.touch();
        set_memory_fault(0);
        break;
      } catch (const UserError& error) {
        ++refusals;
        EXPECT_EQ(error.code(), ExitCode::kIo);
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr("the arena: Cannot allocate memory"),
                          HasSubstr("planned 1.00 MiB (1048576 bytes)"), HasSubstr("available ")));
      }
      ASSERT_LT(nth, 10);
    }
    EXPECT_EQ(refusals, 2);
  }
}

TEST(Reservation, ReportsARealRefusal) {
  try {
    Reservation memory(Bytes(int64_t{1} << 55), "arena");  // more than any address space
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("planned 32.0 PiB"));
  }
}

}  // namespace
}  // namespace snug
