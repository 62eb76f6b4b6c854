#include "data/windows.h"

namespace snug {

int64_t Schedule::updates_per_epoch() const { return ceil_div(windows, windows_per_update()); }

std::optional<int64_t> Schedule::window(int64_t update, int64_t micro_step, int64_t row) const {
  const int64_t epoch = update / updates_per_epoch();
  const int64_t position = update % updates_per_epoch() * windows_per_update() + micro_step * batch + row;
  if (position >= windows) return std::nullopt;
  if (!shuffle) return position;
  return Permutation(windows, seed, static_cast<uint64_t>(epoch))(position);
}

}  // namespace snug
