// data/batch.h — what one micro-step reads from the host
#pragma once

#include <cstdint>
#include <vector>

namespace snug {

constexpr int32_t kIgnoredTarget = -100;

// All but `randomness` is row-major (batch, length).
struct Batch {
  std::vector<int32_t> tokens, targets, positions;
  std::vector<int32_t> document_starts;  // of each position, the first one in its row that it may look at
  // (batch, 4): seed low, seed high, update, sample index within the global batch
  std::vector<uint32_t> randomness;
  int64_t supervised_tokens = 0;  // targets that are not −100
  int64_t windows = 0;            // rows that are not padding
};

// Buffers for `batch` rows of `length` tokens; positions 0 … length−1 and one document a row.
Batch make_batch(int64_t batch, int64_t length);
// What they take. Throws UserError beyond 64 bits.
int64_t batch_bytes(int64_t batch, int64_t length);

}  // namespace snug
