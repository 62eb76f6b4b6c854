// data/windows.h — what rows of batches are made of: windows of one length, whatever they hold
//
// A window is one row of a batch: a part of a stream of tokens (data/stream_windows.h), or one or several samples
// (data/sample_windows.h). Each target of the data is in exactly one window. What a window does not fill is padding: token 0, target −100.
// Padding never enters a denominator.
//
// An update takes `batch` · `accumulation` windows. The order of windows is Permutation(windows, seed, epoch), or their own
// order without shuffling; it does not depend on the batch size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/checked.h"
#include "data/batch.h"
#include "data/permutation.h"

namespace snug {

class Windows {
 public:
  virtual ~Windows() = default;

  // For messages: the file the data come from, or the first of several.
  virtual const std::string& source() const = 0;

  virtual int64_t count() const = 0;   // at least 1
  virtual int64_t length() const = 0;  // of each, in positions
  // Tokens of the data that windows hold, without padding.
  virtual int64_t tokens() const = 0;
  // Supervised targets of all windows; at least 1.
  virtual int64_t targets() const = 0;
  // Of one window.
  virtual int64_t targets_of(int64_t window) const = 0;

  // Writes window `window` into row `row` of `batch`, which is of length(); an empty optional makes a padding row. No allocation. One
  // thread at a time. Throws UserError(kBadFile) for a file that is no longer what it was, and ids beyond the vocabulary.
  virtual void fill_row(Batch& batch, int64_t row, std::optional<int64_t> window) = 0;
};

// Which windows each update of an epoch takes.
struct Schedule {
  int64_t windows = 0, batch = 1, accumulation = 1;
  bool shuffle = true;
  uint64_t seed = 42;

  int64_t windows_per_update() const { return checked_mul(batch, accumulation); }
  int64_t updates_per_epoch() const;
  // The window at `row` of micro-step `micro_step` of update `update` (counted from 0 through all epochs); none = padding.
  std::optional<int64_t> window(int64_t update, int64_t micro_step, int64_t row) const;
};

}  // namespace snug
