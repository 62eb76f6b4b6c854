// data/windows.h — a token stream cut into windows, and the batches of one epoch
//
// Window i of length L holds tokens i·L … i·L+L−1 of the stream, with targets one further on. A stream of N tokens has N−1 targets
// and ceil((N−1)/L) windows; each target is in exactly one window. What does not exist is padding: token 0, target −100,
// wherever the last window, batch or accumulation ends early. Padding never enters a denominator.
//
// An update takes `batch` · `accumulation` windows. The order of windows is Permutation(windows, seed, epoch), or the stream's own
// order without shuffling; it does not depend on the batch size.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/checked.h"
#include "data/permutation.h"
#include "formats/token_shard.h"

namespace snug {

constexpr int32_t kIgnoredTarget = -100;

// Several files as one stream, in the order given. Bounded memory whatever their size.
class JoinedStream {
 public:
  // At least one stream.
  explicit JoinedStream(std::vector<std::unique_ptr<TokenStream>> streams);
  int64_t size() const { return size_; }
  // Tokens first … first+out.size()−1; the range must lie inside the stream.
  void read(int64_t first, std::span<int32_t> out) const;

 private:
  std::vector<std::unique_ptr<TokenStream>> streams_;
  std::vector<int64_t> begins_;  // first token of each stream
  int64_t size_ = 0;
};

// One micro-step's host data, all row-major (batch, length).
struct Batch {
  std::vector<int32_t> tokens, targets, positions, document_starts;
  // (batch, 4): seed low, seed high, update, sample index within the global batch
  std::vector<uint32_t> randomness;
  int64_t supervised_tokens = 0;  // targets that are not −100
  int64_t windows = 0;            // rows that are not padding
};

class Windows {
 public:
  // length >= 1. Throws UserError(kBadFile) when the stream has fewer than two tokens: no target exists.
  Windows(JoinedStream stream, int64_t length, const std::string& source_name);

  int64_t count() const { return count_; }
  int64_t length() const { return length_; }
  int64_t tokens() const { return stream_.size(); }
  // All supervised targets: tokens() − 1.
  int64_t targets() const { return stream_.size() - 1; }
  // Supervised targets of one window: L, or what is left for the last.
  int64_t targets_of(int64_t window) const;

  // Writes window `window` into row `row` of `batch`; an empty optional makes a padding row. No allocation.
  void fill_row(Batch& batch, int64_t row, std::optional<int64_t> window);

 private:
  JoinedStream stream_;
  int64_t length_, count_;
  std::vector<int32_t> buffer_;  // length + 1 tokens
};

// Buffers for `batch` rows of `length` tokens; positions 0 … length−1 and one document a row.
Batch make_batch(int64_t batch, int64_t length);

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
