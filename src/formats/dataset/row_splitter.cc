#include "formats/dataset/row_splitter.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/json_cursor.h"

namespace snug {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kBufferBytes = size_t{1} << 20;

// Where a line ends.
struct LineEnd {
  size_t operator()(std::string_view chunk) const { return chunk.find('\n'); }
};

// Where an element of an array ends: behind its last bracket or quote, or before what follows a number or word.
struct ElementEnd {
  bool in_string = false, escaped = false;
  int64_t depth = 0;

  size_t operator()(std::string_view chunk) {
    for (size_t i = 0; i < chunk.size(); ++i) {
      const char c = chunk[i];
      if (in_string) {
        if (escaped) {
          escaped = false;
        } else if (c == '\\') {
          escaped = true;
        } else if (c == '"') {
          in_string = false;
          if (depth == 0) return i + 1;
        }
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        if (depth == 0) return i;
        if (--depth == 0) return i + 1;
      } else if (depth == 0 && (c == ',' || is_json_space(c))) {
        return i;
      }
    }
    return std::string_view::npos;
  }
};

}  // namespace

RowSplitter::RowSplitter(std::unique_ptr<ByteSource> source, std::string path, int64_t most_row_bytes)
    : source_(std::move(source)),
      path_(std::move(path)),
      most_row_bytes_(most_row_bytes),
      buffer_(kBufferBytes) {
  refill();
  const std::string_view first(buffer_.data(), filled_);
  if (first.starts_with("\xFF\xFE") || first.starts_with("\xFE\xFF"))
    throw_user(ExitCode::kBadFile, "{}: is UTF-16; expected UTF-8. Convert it with: iconv -f UTF-16 -t UTF-8",
               path_);
  if (first.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  // White space before an array; before a line it is part of the line.
  const size_t line = at_;
  if (skip_space() && buffer_[at_] == '[') {
    is_array_ = true;
    ++at_;
  } else if (begin_of_buffer_ == 0) {
    at_ = line;
  }
}

RowSplitter::RowSplitter(std::unique_ptr<ByteSource> source, std::string path, int64_t most_row_bytes,
                         int64_t byte, int64_t row)
    : RowSplitter(std::move(source), std::move(path), most_row_bytes) {
  if (byte == 0) return;
  row_ = row;
  const int64_t end_of_buffer = begin_of_buffer_ + static_cast<int64_t>(filled_);
  if (byte <= end_of_buffer) {
    at_ = static_cast<size_t>(byte - begin_of_buffer_);
    return;
  }
  source_->skip(byte - end_of_buffer);
  begin_of_buffer_ = byte;
  at_ = filled_ = 0;
}

bool RowSplitter::refill() {
  begin_of_buffer_ += static_cast<int64_t>(filled_);
  at_ = 0;
  filled_ = source_->read(buffer_);
  return filled_ > 0;
}

// False at the end of the file.
bool RowSplitter::skip_space() {
  for (;;) {
    while (at_ < filled_ && is_json_space(buffer_[at_])) ++at_;
    if (at_ < filled_) return true;
    if (!refill()) return false;
  }
}

template <typename Ends>
std::string_view RowSplitter::take(Ends ends, bool& whole) {
  if (long_row_.capacity() > kBufferBytes) std::vector<char>().swap(long_row_);
  long_row_.clear();
  bool too_long = false;
  for (;;) {
    const std::string_view chunk(buffer_.data() + at_, filled_ - at_);
    const size_t end = ends(chunk);
    whole = end != std::string_view::npos;
    const std::string_view part = chunk.substr(0, end);
    at_ += part.size();
    too_long = too_long || static_cast<int64_t>(long_row_.size() + part.size()) > most_row_bytes_;
    if (too_long) {
      std::vector<char>().swap(long_row_);
    } else if (whole && long_row_.empty()) {
      return part;
    } else {
      // By halves: memory stays below 2.5 times the row.
      if (const size_t needed = long_row_.size() + part.size(); needed > long_row_.capacity())
        long_row_.reserve(std::max(needed, long_row_.capacity() + long_row_.capacity() / 2));
      long_row_.insert(long_row_.end(), part.begin(), part.end());
    }
    if (whole || !refill()) break;
  }
  if (too_long)
    throw RowTooLong(fmt::format("{}:{}: the row has more than {}; expected a shorter one", path_, row_,
                                 format_bytes(Bytes(most_row_bytes_))));
  return {long_row_.data(), long_row_.size()};
}

std::optional<std::string_view> RowSplitter::next() { return is_array_ ? next_element() : next_line(); }

std::optional<std::string_view> RowSplitter::next_line() {
  for (;;) {
    // The end of the last line, which stays behind so that a line in the buffer can be handed out.
    if (newline_) {
      ++at_;
      newline_ = false;
    }
    if (at_ == filled_ && !refill()) return std::nullopt;
    ++row_;
    const std::string_view line = take(LineEnd{}, newline_);
    if (!std::all_of(line.begin(), line.end(), is_json_space)) return line;
  }
}

std::optional<std::string_view> RowSplitter::next_element() {
  if (ended_) return std::nullopt;
  if (!skip_space()) broken_array("',' or ']'");
  if (buffer_[at_] == ']') {
    ++at_;
    if (skip_space()) broken_array("nothing behind the array");
    ended_ = true;
    return std::nullopt;
  }
  if (row_ > 0) {
    if (buffer_[at_] != ',') broken_array("',' or ']'");
    ++at_;
    if (!skip_space()) broken_array("another element");
  }
  ++row_;
  bool whole = false;
  const std::string_view element = take(ElementEnd{}, whole);
  if (!whole) broken_array("the end of this element");
  return element;
}

void RowSplitter::broken_array(std::string_view expected) const {
  const std::string found = at_ < filled_ ? fmt::format("'{}'", buffer_[at_]) : "the end of the file";
  throw_user(ExitCode::kBadFile, "{}: byte {}, behind {} elements of the array: found {}; expected {}", path_,
             byte() + 1, row_, found, expected);
}

}  // namespace snug
