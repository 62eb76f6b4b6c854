// data/sample_file.h — prepared samples on disk: tokens, which of them are learned, and where each sample begins
//
//   header    64 bytes: magic "snugdata", version, bytes of an id (2 or 4), key
//   segments  one after the other, each with a header of 96 bytes (counts, where the reader of the rows goes on, sizes, checksums) and
//               lengths  u32 of each sample: ids, and in bit 31 whether it is a document that may be cut
//               mask     one bit an id, in 64-bit words: 1 where the id is learned
//               ids      u16 or u32
//               state    bytes that the maker of the samples goes on with; mostly none
//               messages  of rows that were skipped, each ended by a line feed: those of the first of the file alone
//             each part padded to 8 bytes
//   table     24 bytes of each segment: its offset, and the samples and ids before it
//   end       64 bytes: magic "snug end", totals, checksum of the table
// All little-endian; checksums are XXH64. A file that is being written is NAME.part and holds whole segments and perhaps a broken one:
// a writer of the same key goes on behind the last whole one. A segment ends at the first row that brings it to 2^20 ids or
// 2^17 samples, so memory is bounded by 5 MiB and the longest row.
//
// The key is a fingerprint of everything that the samples follow from: contents of files, tokenizer, template, options.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/xxhash.h"
#include "formats/dataset/row.h"

namespace snug {

struct SampleTotals {
  int64_t samples = 0, ids = 0;
  int64_t supervised = 0;          // ids that are learned and are not the first of their sample
  int64_t rows = 0, bad_rows = 0;  // of the data: read, and of them skipped
  int64_t began_with_answer = 0;   // conversations, as ChatRow has it
};

// Where a reader of rows stands, in its own terms.
using RowCursor = std::array<int64_t, 3>;

// What a key of prepared rows begins with: version of Snug, and of the file.
std::string sample_form();

class SampleWriter {
 public:
  // `vocabulary`: ids are below. Goes on from a part of the same key; any other part is begun anew. `waits` as in
  // ContinuedFile: it may be that `path` is there after a wait. Throws UserError(kIo), here and below.
  SampleWriter(const std::string& path, const Fingerprint& key, int64_t vocabulary,
               const std::function<void(const FileWait&)>& waits = {});

  // What the whole segments hold; where the rows behind them begin, none where there is none; and the state that the last one came with.
  const SampleTotals& kept() const { return kept_; }
  const std::optional<RowCursor>& kept_until() const { return kept_until_; }
  const std::string& kept_state() const { return kept_state_; }

  // Forgets what the whole segments hold.
  void start_over();
  // The sample of one row. An empty `supervised` stands for all of `ids`. A document may be cut, another sample is one piece. `next` is
  // where the following row begins.
  void add(std::span<const int32_t> ids, const std::vector<bool>& supervised, bool is_document,
           const RowCursor& next = {}, bool began_with_answer = false);
  // What the maker needs to go on behind the sample that is added next, beside its `next`.
  void set_state(std::string_view state) { state_ = state; }
  // Rows behind the last sample. The first SkippedRows::kMostMessages messages are kept, 1,000 bytes of each.
  void add_bad_rows(const SkippedRows& rows);

  // Gives the file its name. The totals of all of it.
  SampleTotals finish();

 private:
  struct Entry {
    int64_t offset, samples_before, ids_before;
  };
  void keep_whole_segments(const Fingerprint& key);
  void write_segment();

  ContinuedFile file_;
  int64_t id_bytes_, vocabulary_;
  SampleTotals kept_, written_, segment_;
  std::optional<RowCursor> kept_until_;
  std::string kept_state_;
  RowCursor next_ = {};
  std::string state_;
  std::vector<Entry> table_;
  std::vector<uint32_t> lengths_;
  std::vector<uint64_t> mask_;
  std::vector<std::byte> ids_;
  std::string messages_;
  size_t message_count_ = 0;  // of the whole file

  friend class SampleFile;
};

// One sample as visit() shows it.
struct StoredSample {
  int64_t index = 0, first_id = 0;
  int64_t length = 0;
  bool is_document = false;
  std::span<const uint64_t> mask;  // of its segment
  int64_t mask_begin = 0;          // the bit of its first id

  // How many of its ids [begin, end) are learned.
  int64_t supervised(int64_t begin, int64_t end) const;
};

// A finished file. Reading is bounded and safe from several threads at once.
class SampleFile {
 public:
  // Reads all of it and checks everything: sizes, checksums, key. None, and `why` says so in a sentence, where there is no such file (`why`
  // is empty then) or it is broken or of another key or version.
  static std::unique_ptr<const SampleFile> open(const std::string& path, const Fingerprint& key,
                                                int64_t vocabulary, std::string& why);

  const std::string& path() const { return file_.path(); }
  const SampleTotals& totals() const { return totals_; }
  // What was wrong with the first rows that were skipped.
  const std::vector<std::string>& bad_rows() const { return bad_rows_; }

  // Every sample in order. Memory: lengths and mask of one segment.
  void visit(const std::function<void(const StoredSample&)>& visit) const;

  // Ids [first, first + out.size()) of the file, whatever samples they belong to. Allocates nothing. Throws UserError(kBadFile) for a
  // file that changed and ids beyond the vocabulary.
  void read_ids(int64_t first, std::span<int32_t> out) const;
  // Whether each is learned: 1 or 0.
  void read_supervised(int64_t first, std::span<uint8_t> out) const;

 private:
  struct Segment {
    int64_t offset = 0, samples_before = 0, ids_before = 0;
    int64_t samples = 0, ids = 0;
  };
  SampleFile(InputFile file, int64_t vocabulary) : file_(std::move(file)), vocabulary_(vocabulary) {}
  std::optional<std::string> check(const Fingerprint& key);
  int64_t mask_offset(const Segment& segment) const;
  int64_t ids_offset(const Segment& segment) const;
  // Calls part(segment, first id in it, place in out, count) for what lies in each segment.
  template <typename Part>
  void in_segments(int64_t first, int64_t count, const Part& part) const;

  InputFile file_;
  int64_t vocabulary_, id_bytes_ = 4;
  SampleTotals totals_;
  std::vector<std::string> bad_rows_;
  std::vector<Segment> segments_;
};

}  // namespace snug
