// observe/reserve.h — the bytes of the process that lie outside the arena, known before the arena is touched
//
//   reserve = resident now + page tables now    what exists already: libraries, threads, kernels
//           + page tables of the arena          one page for each 2 MiB, 1 GiB and 512 GiB begun, and one more
//           + kernel stacks                     16 KiB a thread
//           + allowance                         stated: what is still to grow
//           + batches                           the host's copies of batches
//   process peak = max(arena + reserve, the peak so far)
//
// Measure when the libraries are loaded, all threads run and one warm-up product of each kind has run (a
// library makes its code then), but no page of the arena has been touched. `snug plan` does exactly what `snug train` does
// up to there, so that both state one number. The peak is what a control group charges. VmHWM + VmPTE,
// which can be measured, is lower by the kernel stacks. With transparent huge pages the kernel sets aside
// the same pages of entries (one per huge page), so the formula holds.
//
// A peak that is behind us is VmHWM, but VmPTE still grows with the mappings of the arena and of the allowance, and the kernel's two
// counts are of different moments: peak so far = VmHWM + VmPTE + page tables of arena and allowance + kernel stacks.
#pragma once

#include "base/bytes.h"
#include "observe/process_memory.h"

namespace snug {

// Heap that still grows, stacks of threads that deepen, code of libraries that is paged in at first use.
constexpr Bytes kGrowthAllowance{4 << 20};

struct Reserve {
  Bytes resident;     // VmRSS + VmPTE when it was measured
  Bytes page_tables;  // of the arena
  Bytes kernel_stacks;
  Bytes allowance;
  Bytes batches;      // of the run's sizes
  Bytes peak_so_far;  // what VmHWM + VmPTE will come to if no page is held beyond a peak that is already behind us

  Bytes total() const { return resident + page_tables + kernel_stacks + allowance + batches; }
};

// Page tables that map `bytes` contiguous bytes at any place, with pages of 4 KiB on x86-64.
Bytes page_tables_for(Bytes bytes);

// What two processes of the same run may measure apart is less than a step of this.
constexpr Bytes kReserveStep{1 << 20};

// The reserve beside an arena of `arena` bytes. `threads`: kernel threads of the process at its busiest; at
// least those of `now` are counted.
Reserve compute_reserve(const ProcessMemory& now, Bytes arena, int64_t threads,
                        Bytes allowance = kGrowthAllowance);

// The same reserve with more bytes that are still to grow.
Reserve larger_by(Reserve reserve, Bytes more);
// What is told of a reserve, so that it holds in another process of the same run: rounded up to whole steps, and one more.
Reserve stated(Reserve reserve);

// What the process is planned to hold at most.
Bytes planned_process_peak(Bytes arena, const Reserve& reserve);

// The largest arena beside which the process stays within `budget`, whatever arena `reserve` was made for; 0 where
// none does.
Bytes arena_within(Bytes budget, const Reserve& reserve);

}  // namespace snug
