// data/prepare_samples.h — rows become samples: one thread reads, several encode, the caller's writes in the order of the rows
//
// What is written does not depend on the number of threads. Memory: 2 · threads + 2 chunks of at most 64 rows and, beyond one row, 256 KiB
// of JSON, as rows and as samples; what each encoder holds; what the writer holds (data/sample_file.h).
//
// The reading thread may hang with its disk: it is left behind when it does not answer (base/worker.h). Encoders only compute.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/worker.h"
#include "data/sample.h"
#include "data/sample_file.h"
#include "formats/dataset/dataset_reader.h"

namespace snug {

using EncodeRow = std::function<Sample(const Row&, const RowPlace&)>;

struct PreparationProgress {
  int64_t rows = 0, samples = 0, ids = 0, bad_rows = 0;
  int64_t bytes = 0, all_bytes = 0;  // of the files
  double seconds = 0;                // since this process began
  int64_t kept_bytes = 0;            // of what an earlier process had prepared
  // Seconds to go at the rate so far; none in the first moments.
  std::optional<double> seconds_left() const;
};

struct Preparation {
  std::string source;  // for messages: the file, or the first of several
  // The next row, none at the end, and the rows before it that were skipped because they cannot be read. Called on one thread, which may
  // outlive prepare_samples(): these and bytes_read own what they refer to.
  std::function<std::optional<PlacedRow>()> next;
  std::function<SkippedRows()> take_skipped = [] { return SkippedRows{}; };
  // Bytes of the files read so far, and of all of them.
  std::function<int64_t()> bytes_read = [] { return int64_t{0}; };
  int64_t all_bytes = 0;
  // An encoder for one thread; it may throw UserError(kBadFile) for a row.
  std::function<EncodeRow()> encoder;
  int threads = 1;  // that encode
  bool skip_bad_rows = false;
  double limit_seconds = kAnswerSeconds;  // for which the reading thread may give nothing
  // Called on the caller's thread, about five times a second, and at the end.
  std::function<void(const PreparationProgress&)> progress = {};
};

// Writes the samples of all rows that `next` gives: it stands behind writer.kept(). Throws the first error in the order of the rows; with
// skip_bad_rows, rows that an encoder refuses by kBadFile are skipped, too. Throws UserError(kIo) where the reading thread does not answer.
void prepare_samples(SampleWriter& writer, const Preparation& preparation);

}  // namespace snug
