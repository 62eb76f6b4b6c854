#include "observe/reserve.h"

#include <algorithm>

namespace snug {

Bytes page_tables_for(Bytes bytes) {
  constexpr int64_t kPage = 4096;
  Bytes tables;
  for (int64_t covered = int64_t{2} << 20; covered <= int64_t{512} << 30; covered *= 512)
    tables += Bytes((ceil_div(bytes.value, covered) + 1) * kPage);
  return tables;
}

Reserve compute_reserve(const ProcessMemory& now, Bytes arena, int64_t threads, Bytes allowance) {
  const Bytes stacks = kernel_stacks(std::max(threads, now.threads));
  return {.resident = now.resident + now.page_tables,
          .page_tables = page_tables_for(arena),
          .kernel_stacks = stacks,
          .allowance = allowance,
          .batches = {},
          .peak_so_far = now.peak() + page_tables_for(arena) + page_tables_for(allowance) + stacks};
}

Reserve stated(Reserve reserve) {
  const Bytes total = reserve.total() - reserve.page_tables;
  return larger_by(reserve, round_up(total, kReserveStep) + kReserveStep - total);
}

Reserve larger_by(Reserve reserve, Bytes more) {
  reserve.allowance += more;
  reserve.peak_so_far += more;
  return reserve;
}

Bytes planned_process_peak(Bytes arena, const Reserve& reserve) {
  return std::max(arena + reserve.total(), reserve.peak_so_far);
}

Bytes arena_within(Bytes budget, const Reserve& reserve) {
  const Bytes room = std::max(Bytes(0), budget - (reserve.total() - reserve.page_tables));
  return std::max(Bytes(0), room - page_tables_for(room));
}

}  // namespace snug
