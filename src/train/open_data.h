// train/open_data.h — a run's data files as windows: found, prepared, cut, and what a user should know of them
//
// Text and token shards are streams (data/stream_windows.h). Rows of JSON are prepared as samples once, in the cache, and packed or
// padded at every run (data/sample_windows.h). All of it happens before the arena is touched; what it takes is in the peak that the plan
// counts as behind us (observe/reserve.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/prepare_samples.h"
#include "data/sample_cache.h"
#include "data/sample_windows.h"
#include "data/stream_windows.h"
#include "formats/dataset/data_files.h"
#include "formats/model_directory.h"
#include "formats/tokenizer/tokenizer.h"
#include "train/run_options.h"

namespace snug {

// The files of a run, each with its format.
struct RunFiles {
  std::vector<DataFile> train, validation;
};
// Throws UserError(kBadFile) as find_data_files, kUsage for a validation_split beside validation_file.
RunFiles find_run_files(const RunOptions& options);
// Whether they hold text, which takes a tokenizer.
bool hold_text(const std::vector<DataFile>& files);

// What training or validation data are.
struct DataReport {
  std::string format;  // as --dataset_format spells it; "alpaca, messages" for files of several
  int64_t files = 0;   // 0: none
  bool is_stream = false;
  int64_t tokens = 0;  // of the stream, or of the samples that were chosen
  // Of rows: what the files hold, training and validation parts together
  SampleTotals totals;
  bool was_prepared = false;          // by an earlier run
  std::vector<std::string> bad_rows;  // what was wrong with the first ones that were skipped
  WindowsReport windows;
};
// Some lines for people, the first beginning with `title`, each ended.
std::string data_lines(std::string_view title, const DataReport& report, int64_t length);

// Who is told while data are prepared. Either may be empty.
struct DataWatch {
  std::function<void(std::string_view)>
      note;  // a sentence: a cache that is made anew, a wait for another run
  std::function<void(std::string_view file, const PreparationProgress&)> progress;
};

struct RunData {
  std::shared_ptr<Windows> train, validation;  // null without files
  DataReport train_report, validation_report;
};

// `tokenizer` is null for Snug's byte tokenizer. `vocabulary` is the model's. Throws UserError: kBadFile for files that are broken or hold
// nothing to learn, kUsage for a validation_split that leaves nothing on one side, kIo.
RunData open_run_data(const RunFiles& files, const RunOptions& options, const ModelDirectory& directory,
                      int64_t vocabulary, const Tokenizer* tokenizer, const DataWatch& watch = {});

// The prepared samples of row files; of snug data inspect too. `tokenizer` as above. `report` gets what is known of them.
std::shared_ptr<const SampleFile> prepare_rows(const std::vector<DataFile>& files, const RunOptions& options,
                                               const ModelDirectory& directory, int64_t vocabulary,
                                               const Tokenizer* tokenizer, const SampleCache& cache,
                                               const DataWatch& watch, DataReport& report);

// The stream of text and shard files; of snug data inspect too. `cache` gives the place of prepared ids, and is asked where text has to be
// prepared (bytes and shards need none). All else as above.
JoinedStream open_stream(const std::vector<DataFile>& files, const RunOptions& options,
                         const ModelDirectory& directory, int64_t vocabulary, const Tokenizer* tokenizer,
                         const std::function<const SampleCache&()>& cache, const DataWatch& watch,
                         DataReport& report);

// Where prepared data lie: in options.data_cache. Where none is named, in the directory "data" of the user's cache, else of the system's
// directory for temporary files; and where that cannot be written, in "prepared_data" of options.output_dir, which is told. Throws
// UserError(kIo).
SampleCache open_sample_cache(const RunOptions& options, const std::function<void(std::string_view)>& note);

}  // namespace snug
