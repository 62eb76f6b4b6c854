// data/stream_statistics.h — what a stream of tokens looks like: which ids it has, and which windows are there twice
#pragma once

#include <cstdint>
#include <optional>

#include "data/repetitions.h"
#include "data/stream_windows.h"

namespace snug {

struct StreamStatistics {
  int64_t different_ids = 0;
  int32_t largest_id = 0;
  int64_t ends_of_text = 0;
  int64_t repeated_windows = 0;  // that have the ids of an earlier one
};

// Reads the stream once, and once more for each `most_hashes` windows of `length` tokens. Memory: a bit for each id of the vocabulary, a
// window, and the hashes (repetitions.h). Throws UserError(kBadFile) for an id beyond the vocabulary.
StreamStatistics stream_statistics(const JoinedStream& stream, int64_t vocabulary,
                                   std::optional<int32_t> end_of_text, int64_t length,
                                   int64_t most_hashes = kMostHashes);

}  // namespace snug
