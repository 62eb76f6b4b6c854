#include "observe/reserve.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/allocator.h"

namespace snug {
namespace {

TEST(Reserve, AddsUpItsParts) {
  ProcessMemory now;
  now.resident = Bytes(40 << 20);
  now.peak_resident = Bytes(45 << 20);
  now.page_tables = Bytes(200 << 10);
  now.threads = 3;
  const Bytes arena = 4 * kGiB;
  const Reserve reserve = compute_reserve(now, arena, 8, Bytes(1000));
  EXPECT_EQ(reserve.resident, Bytes((40 << 20) + (200 << 10)));
  // 4 GiB = 2048 pages of entries of 2 MiB each, 4 of 1 GiB, 1 of 512 GiB; one more of each for a crooked
  // beginning
  EXPECT_EQ(reserve.page_tables, Bytes((2049 + 5 + 2) * 4096));
  EXPECT_EQ(reserve.kernel_stacks, Bytes(8 * 16 * 1024));
  EXPECT_EQ(reserve.total(), Bytes((40 << 20) + (200 << 10) + 2056 * 4096 + 8 * 16 * 1024 + 1000));
  EXPECT_EQ(planned_process_peak(arena, reserve), arena + reserve.total());
  EXPECT_EQ(compute_reserve(now, arena, 1).kernel_stacks, Bytes(3 * 16 * 1024));
}

TEST(Reserve, ForgetsNoPeakThatIsBehind) {
  ProcessMemory now;
  now.resident = Bytes(1 << 20);
  now.peak_resident = Bytes(100 << 20);
  now.page_tables = Bytes(4096);
  const Reserve reserve = compute_reserve(now, Bytes(1 << 20), 1, 3 * kMiB);
  // Page tables: one of its own, 2 + 2 + 2 for an arena of 1 MiB, 3 + 2 + 2 for 3 MiB more.
  EXPECT_EQ(planned_process_peak(Bytes(1 << 20), reserve), Bytes((100 << 20) + 14 * 4096 + 16384));
}

// In a process of its own: the plan made before an arena is touched against what the kernel counts
// afterwards.
void expect_plan_holds(HugePages huge_pages) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer's shadow of the arena comes on top of the plan";
#endif
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Bytes size(192 << 20);
    Reservation arena(size, "arena", huge_pages);
    const Reserve reserve = compute_reserve(process_memory(), size, 1);
    arena.commit(size);
    arena.touch();
    std::fill(arena.bytes().begin(), arena.bytes().end(), std::byte{1});
    const int64_t numbers[2] = {planned_process_peak(size, reserve).value, process_memory().peak().value};
    _exit(write(pipe_ends[1], numbers, sizeof numbers) == static_cast<ssize_t>(sizeof numbers) ? 0 : 1);
  }
  int64_t numbers[2] = {0, 0};
  ASSERT_EQ(read(pipe_ends[0], numbers, sizeof numbers), static_cast<ssize_t>(sizeof numbers));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  EXPECT_LE(numbers[1], numbers[0]);
  EXPECT_GE(numbers[1], numbers[0] - (16 << 20));
  std::printf("planned %ld, measured %ld, %ld KiB below\n", numbers[0], numbers[1],
              (numbers[0] - numbers[1]) / 1024);
}

TEST(Reserve, HoldsWithSmallPages) { expect_plan_holds(HugePages::kOff); }
TEST(Reserve, HoldsWithHugePages) { expect_plan_holds(HugePages::kOn); }

TEST(Reserve, ArenaWithinABudgetLeavesRoomForItsOwnPageTables) {
  Reserve reserve;
  reserve.resident = 40 * kMiB;
  reserve.kernel_stacks = kMiB;
  reserve.page_tables = 5 * kMiB;  // of another arena
  const Bytes arena = arena_within(kGiB, reserve);
  reserve.page_tables = page_tables_for(arena);
  EXPECT_LE(planned_process_peak(arena, reserve), kGiB);
  EXPECT_GE(planned_process_peak(arena, reserve), kGiB - 64 * kKiB);
  EXPECT_EQ(arena_within(41 * kMiB, reserve), Bytes(0));
  EXPECT_EQ(arena_within(Bytes(1), reserve), Bytes(0));
}

}  // namespace
}  // namespace snug
