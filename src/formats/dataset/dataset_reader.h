// formats/dataset/dataset_reader.h — the rows of data files, one after the other, in bounded memory
//
//   DatasetReader reader(find_data_files(paths), {.skip_bad_rows = true});
//   while (std::optional<PlacedRow> row = reader.next()) …
//
// A file holds one JSON object a line, or one array of them; it may be compressed (byte_source.h). A byte order mark at its beginning
// and empty lines are passed over. Unknown fields of a row are passed over, too; a field that its format needs must be there.
//
// Memory: a constant (some 40 MiB: buffers, a conversation's structure) and 4 bytes for each byte of the longest row, which is at most
// most_row_bytes; time O(n log n). Rows can be given to other threads; the reader itself belongs to one.
// Errors: UserError(kBadFile) with file, row, field, what was found and what was expected.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "formats/dataset/data_files.h"
#include "formats/dataset/row.h"

namespace snug {

struct DatasetOptions {
  // What becomes of Alpaca's rows: conversations for the model's chat template, or the prompt that Alpaca itself was trained with.
  bool has_chat_template = false;
  // The field of json_text rows where their file's names do not say it; empty: text, or content where there is no text.
  std::string text_field = {};
  // Rows that are broken are counted instead of ending the run. Files that are broken (cut off, an array that is not JSON) still end it.
  bool skip_bad_rows = false;
  int64_t most_row_bytes = kMostRowBytes;  // of JSON; a longer row is a broken row
};

// Where a row begins: enough to go on from there.
struct RowPosition {
  int64_t file = 0;  // index of the file
  int64_t byte = 0;  // of its unpacked text
  int64_t row = 0;   // lines or elements before it
};

struct PlacedRow {
  Row row;
  RowPlace place;
  RowPosition next;   // of what follows
  int64_t bytes = 0;  // of the row's JSON
};

class DatasetReader {
 public:
  // Files of row formats (is_row_format), at least one.
  DatasetReader(std::vector<DataFile> files, const DatasetOptions& options);
  ~DatasetReader();
  DatasetReader(const DatasetReader&) = delete;
  DatasetReader& operator=(const DatasetReader&) = delete;

  // The next row; none at the end.
  std::optional<PlacedRow> next();
  // Goes on at a position that a row of the same files gave.
  void seek(const RowPosition& position);

  const std::vector<DataFile>& files() const { return files_; }
  // Bytes on the disk, compressed where files are: of all files, and of those read so far.
  int64_t total_bytes() const { return total_bytes_; }
  int64_t bytes_read() const;
  // Rows that were skipped since the last call.
  SkippedRows take_skipped() { return std::exchange(skipped_, {}); }

 private:
  class OpenFile;

  void open(const RowPosition& position);
  void skip(const UserError& error);

  std::vector<DataFile> files_;
  DatasetOptions options_;
  std::vector<int64_t> bytes_before_;  // of the files before each, on the disk
  int64_t total_bytes_ = 0;
  size_t at_ = 0;  // file
  std::unique_ptr<OpenFile> open_;
  SkippedRows skipped_;
};

}  // namespace snug
