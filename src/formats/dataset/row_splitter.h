// formats/dataset/row_splitter.h — the text of each row of a data file: a line, or an element of the array that is the file
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "formats/dataset/byte_source.h"

namespace snug {

class RowTooLong : public UserError {
 public:
  explicit RowTooLong(const std::string& message) : UserError(ExitCode::kBadFile, message) {}
};

// A file whose first character is [ is one array; any other has a row a line. An element ends where its brackets do: whether it is
// JSON is for its reader to see. Memory: two buffers, and 2.5 bytes for each byte of a row that does not fit into one.
class RowSplitter {
 public:
  RowSplitter(std::unique_ptr<ByteSource> source, std::string path, int64_t most_row_bytes);
  // Goes on at a place that a splitter of the same file gave.
  RowSplitter(std::unique_ptr<ByteSource> source, std::string path, int64_t most_row_bytes, int64_t byte,
              int64_t row);

  // The next row, valid until the next call; none at the end. Throws UserError(kBadFile): RowTooLong, which the next call has passed,
  // and for an array that is broken, after which nothing can come.
  std::optional<std::string_view> next();

  bool is_array() const { return is_array_; }
  // Lines or elements so far: the number of the last row, from 1.
  int64_t row() const { return row_; }
  // Of the unpacked text: what was taken.
  int64_t byte() const { return begin_of_buffer_ + static_cast<int64_t>(at_) + (newline_ ? 1 : 0); }
  int64_t bytes_read() const { return source_->bytes_read(); }

 private:
  bool refill();  // when the buffer is used up; false at the end
  bool skip_space();
  std::optional<std::string_view> next_line();
  std::optional<std::string_view> next_element();
  // From here to where `ends` says, or to the end of the file: then it is not `whole`.
  template <typename Ends>
  std::string_view take(Ends ends, bool& whole);
  [[noreturn]] void broken_array(std::string_view expected) const;

  std::unique_ptr<ByteSource> source_;
  std::string path_;
  int64_t most_row_bytes_;
  std::vector<char> buffer_;
  size_t at_ = 0, filled_ = 0;
  int64_t begin_of_buffer_ = 0;
  std::vector<char> long_row_;  // one that does not lie in the buffer as a whole
  bool is_array_ = false, ended_ = false;
  bool newline_ = false;  // the end of the last line is to be passed over
  int64_t row_ = 0;
};

}  // namespace snug
